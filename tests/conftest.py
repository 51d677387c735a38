"""What every test may use: the fixtures of the real cluster.

They start nothing by themselves; a test that asks for one, and is run without a cluster, fails and says what to run.
"""

from hypothesis import settings

pytest_plugins = ("lab.fixtures",)

# No deadline: how long an example takes says something about the machine only. Hypothesis prints what reproduces a failure.
settings.register_profile("gate", deadline=None, print_blob=True)
settings.register_profile("soak", deadline=None, print_blob=True, max_examples=5000)
settings.load_profile("gate")
