"""The compile driver: runs in the user's image on its own torch and the standard library; see docs/contracts.md, 4."""
