"""Real architectures, what the compile driver must make of each, and how one is put to the test.

Why it exists: `tests/torch/matrix` holds the driver to it, `benchmarks/architectures.py` writes it down as a table, and
the compile Jobs of both import the factories from here, as they would from a user's image.
"""
