"""What an installation decides about injection; the chart's values in the policy, a parameter of the reference."""

from __future__ import annotations

from dataclasses import dataclass

from preheat_operator.api import names


@dataclass(frozen=True, kw_only=True)
class InjectionSettings:
    """Settings of one installation.

    Attributes:
        image: the product image, by digest where possible.
        image_pull_policy: how a node pulls it.
        image_pull_secrets: names of pull secrets; those a namespace does not have are ignored by the kubelet.
        cluster_id: first part of the store's tenant; the second is the pod's namespace.
        store_endpoint: URL of the store; empty means AWS.
        store_bucket: bucket of the store.
        store_region: region of the store.
        store_secret: name of the Secret with read-only credentials, in the pod's namespace.
        store_ca_config_map: name of the ConfigMap with `ca.crt`, in the pod's namespace; empty means none.
        fetch_timeout_seconds: deadline of the whole fetch.
        run_as_user: user of the fetch container; None leaves it to the cluster (OpenShift assigns one).
        reports_url: where pods report how they were served; empty means nowhere.
        reports_ca: certificates, as PEM, of which the one at `reports_url` must be or be signed by; empty means those
            of the pod's own image.
        gating: whether pods may be held back; only where a server releases them should the controller be gone.
        excluded_namespaces: where no pod is ever injected: kube-system and the release's own namespace.
    """

    image: str
    cluster_id: str
    store_bucket: str
    image_pull_policy: str = "IfNotPresent"
    image_pull_secrets: tuple[str, ...] = ()
    store_endpoint: str = ""
    store_region: str = ""
    store_secret: str = names.SECRET_FETCH
    store_ca_config_map: str = ""
    fetch_timeout_seconds: int = 60
    run_as_user: int | None = 65532
    reports_url: str = ""
    reports_ca: str = ""
    gating: bool = True
    excluded_namespaces: tuple[str, ...] = ("kube-system", "preheat-system")
