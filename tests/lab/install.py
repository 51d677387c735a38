"""The images of the product and its examples, and the product installed from its own chart.

Why it exists: the tests and the demo must install Preheat as a user does (`helm install`, an image by digest, a Secret in
each namespace), and all of them in the same way.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import yaml

from lab.paths import REPOSITORY, cache_root
from lab.progress import step

if TYPE_CHECKING:
    from collections.abc import Mapping

    from lab.cluster import Lab
    from lab.images import Image

NAMESPACE = "preheat-system"
RELEASE = "preheat"
# There is no cluster DNS, so pods are given an address.
_SERVER_ADDRESS = "10.96.0.88"
_CHART = REPOSITORY / "charts" / "preheat"
_PRODUCT = (
    "LICENSE",
    "README.md",
    "compiler_job",
    "operator",
    "pyproject.toml",
    "requirements/build.txt",
    "requirements/operator.txt",
)
# The tests bring an example of their own.
_EXAMPLES = (REPOSITORY / "examples", REPOSITORY / "tests" / "e2e")


@dataclass(frozen=True, kw_only=True)
class Installed:
    """Preheat as it runs in a lab."""

    namespace: str
    release: str
    image: str
    """Reference of the product image, by digest."""
    cluster_id: str
    """First part of every tenant in the store."""

    @property
    def controller(self) -> str:
        """Name of the controller's Deployment."""
        return f"{self.release}-controller"

    @property
    def server(self) -> str:
        """Name of the server's Deployment and Service."""
        return f"{self.release}-server"

    @property
    def controller_selector(self) -> str:
        """Selects the controller's pods."""
        return f"app.kubernetes.io/name=preheat,app.kubernetes.io/instance={self.release},app.kubernetes.io/component=controller"


def product_image(lab: Lab) -> Image:
    """The product's image, from the Dockerfile at the top of the repository."""
    local = lab.images.build(
        "preheat", context=REPOSITORY, inputs=_PRODUCT, args={"BASE": lab.images.base()}, usually="1 min"
    )
    return lab.images.push(local)


def torch_base(lab: Lab) -> str:
    """Local name of the image that the examples are built on: Python, torch, a C++ compiler."""
    return lab.images.build(
        "preheat-torch", context=REPOSITORY / "examples", dockerfile="base/Dockerfile", inputs=("requirements.txt",),
        args={"BASE": lab.images.base()}, usually="4 min, mostly torch",
    )  # fmt: skip


def cached_base(lab: Lab) -> str:
    """Local name of the same with a cache for what its compiler makes, which the node mounts."""
    return lab.images.build(
        "preheat-torch-cached", context=Path(__file__).parent / "cached", inputs=(), args={"BASE": torch_base(lab)},
        usually="20 s",
    )  # fmt: skip


def example_image(lab: Lab, example: str, args: Mapping[str, str] | None = None, *, cached: bool = False) -> Image:
    """An example's image; other build arguments make another image of the same model.

    ``cached``: what its compiler makes is kept for the next run of the tests.
    """
    context = next(folder / example for folder in _EXAMPLES if (folder / example / "Dockerfile").exists())
    inputs = sorted(path.name for path in context.iterdir() if path.suffix in {".py", ".txt"})
    base = {"BASE": cached_base(lab) if cached else torch_base(lab), **(args or {})}
    return lab.images.push(
        lab.images.build(f"preheat-example-{example}", context=context, inputs=inputs, args=base, usually="20 s")
    )


def prepare_namespace(lab: Lab, name: str) -> None:
    """Makes a namespace, when there is none, with the two Secrets that Preheat asks for."""
    secrets = {"preheat-publish": lab.s3.publish, "preheat-fetch": lab.s3.fetch}
    lab.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})
    lab.apply(*(
        {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": secret, "namespace": name}, "stringData": credentials.files()}
        for secret, credentials in secrets.items()
    ))  # fmt: skip
    # Pods are refused until this exists.
    lab.wait(
        f"service account of namespace {name}",
        lambda: lab.kubectl("get", "serviceaccount", "default", "-n", name, "--ignore-not-found", "-o", "name"),
        seconds=30,
    )


def install_preheat(lab: Lab, *, values: Mapping[str, object] | None = None) -> Installed:
    """Installs, or upgrades to, the checkout's product from its own chart, and waits until the controller is available.

    ``values`` are laid over those that the lab needs.
    """
    image = product_image(lab)
    needed = {
        "image": {"repository": image.repository, "digest": image.digest},
        "store": {"endpoint": lab.s3.endpoint, "bucket": lab.s3.bucket, "region": lab.s3.region},
        "server": {"clusterIP": _SERVER_ADDRESS},
    }
    file = lab.layout.root / "values.yaml"
    file.write_text(yaml.safe_dump(_merged(needed, values or {})))
    with step("installing the chart", usually="15 s"):
        lab.helm(
            "upgrade", "--install", RELEASE, str(_CHART), "--namespace", NAMESPACE, "--create-namespace", "--wait",
            "--timeout", "180s", "--values", str(file), timeout=240,
        )  # fmt: skip
    cluster = lab.get("namespace", "kube-system")["metadata"]["uid"]
    chosen = str((values or {}).get("clusterId") or cluster)
    return Installed(namespace=NAMESPACE, release=RELEASE, image=image.pinned, cluster_id=chosen)


def demo_environment(lab: Lab) -> dict[str, str]:
    """Everything that examples/demo.py expects to find: images, the chart, a namespace; returned as its environment."""
    images = {example: example_image(lab, example) for example in ("vision", "pitch")}
    install_preheat(lab)
    prepare_namespace(lab, "demo")
    return {
        **lab.environment(),
        "PREHEAT_DEMO_NAMESPACE": "demo",
        "PREHEAT_DEMO_RESULTS": str(cache_root() / "demo-results.json"),
        **{f"PREHEAT_DEMO_IMAGE_{example.upper()}": image.pinned for example, image in images.items()},
    }


def demo_script() -> Path:
    """What the demo runs."""
    return REPOSITORY / "examples" / "demo.py"


def _merged(base: Mapping[str, object], over: Mapping[str, object]) -> dict[str, object]:
    result = dict(base)
    for key, value in over.items():
        below = result.get(key)
        result[key] = _merged(below, value) if isinstance(below, dict) and isinstance(value, dict) else value
    return result
