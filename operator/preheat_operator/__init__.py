"""Preheat: a Kubernetes operator that compiles PyTorch models ahead of time and starts pods hot."""
