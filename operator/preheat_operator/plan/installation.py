"""What the chart installed, as far as decisions need it: images, store, tenant. Read once, at the edge."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Installation:
    """Facts about this installation of Preheat that go into every compile Job.

    `image` is the product image, `store_endpoint` a URL (empty: AWS), `store_ca_config_map` the name of a ConfigMap
    with `ca.crt` in the model's namespace (empty: the system's bundle), `priority_class` the name of the
    non-preempting class of compile pods (empty: none is set), `run_as_user` the user of our own containers (None: the
    cluster assigns one), `gating` whether pods may be held back: only where a server releases them should the
    controller be gone.
    """

    image: str
    image_pull_policy: str
    cluster_id: str
    store_endpoint: str
    store_bucket: str
    store_region: str
    store_ca_config_map: str = ""
    publish_secret: str = "preheat-publish"  # noqa: S105 - the name of a Secret, not its contents
    priority_class: str = ""
    run_as_user: int | None = 65532
    image_pull_secrets: tuple[str, ...] = ()
    gating: bool = True

    def tenant(self, namespace: str) -> str:
        """The store prefix of a namespace: `<clusterId>.<namespace>`."""
        return f"{self.cluster_id}.{namespace}"
