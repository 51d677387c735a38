"""What every test may use: the fixtures of the real cluster.

They start nothing by themselves; a test that asks for one, and is run without a cluster, fails and says what to run.
"""

pytest_plugins = ("lab.fixtures",)
