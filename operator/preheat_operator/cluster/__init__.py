"""Kubernetes reads and writes: the only place that talks to the API server."""
