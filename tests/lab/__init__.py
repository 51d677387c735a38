"""A real one-node Kubernetes, an S3 server and an image registry on one machine, for tests and for the demo.

Why it exists: what Preheat promises can only be shown on real parts (admission policies, image digests, a kubelet that
restarts containers), and a machine that runs the tests may reach package registries only. So the lab builds Kubernetes
from Go modules, keeps what it built in a cache outside the checkout, and runs it in a network namespace without a way out.

``python -m lab up`` starts it, ``python -m lab down`` leaves nothing behind. In tests, use the fixtures of
``lab.fixtures``; in scripts, :class:`lab.cluster.Lab`. docs/testing.md tells how to work with it.

Nothing is imported here at run time, since ``python -m lab venv`` runs before any dependency is installed.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lab.cluster import Lab as Lab
