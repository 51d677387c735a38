from apiserver.fixtures import apiserver

__all__ = ["apiserver"]
