"""The Kubernetes API of Preheat as pydantic models: the one source of the CRDs, so schema and code cannot drift."""
