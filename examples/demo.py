"""The main job, shown on a real cluster: one CompiledModel, one label, and a pod that starts hot.

Run by `make demo`, which brings up the cluster, builds the images and installs the chart. Needs KUBECONFIG,
PREHEAT_DEMO_NAMESPACE and PREHEAT_DEMO_IMAGE_VISION / _PITCH in the environment; works on any cluster that has them.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
import time
from pathlib import Path

import kit

EXAMPLES = ("vision", "pitch")
STARTED = time.monotonic()


def say(text: str) -> None:
    """Print one line of progress."""
    print(f"[{time.monotonic() - STARTED:5.0f} s] {text}", flush=True)


def serve_once(
    kube: kit.Kube, example: str, image: str, *, label: str, env: dict[str, str] | None = None, name: str = ""
) -> kit.Served:
    """As `kit.start_one`, and scale back to none: what starts a pod of the same Deployment next waits until it is gone."""
    served = kit.start_one(kube, example, image, label=label, env=env, name=name)
    kit.scale(kube, name or example, 0, wait=False)
    return served


def show(kube: kit.Kube, example: str) -> dict[str, object]:
    """Measure the example eager, cold and with Preheat, from pods of the same image."""
    image = os.environ[f"PREHEAT_DEMO_IMAGE_{example.upper()}"]
    say(f"{example}: a pod that does not compile (usually 10 s)")
    eager = serve_once(kube, example, image, label="", env={"COMPILE": "0"}, name=f"{example}-eager")
    say(f"{example}: a pod that calls torch.compile, without Preheat (usually 1 minute)")
    cold = serve_once(kube, example, image, label="")
    say(f"{example}: kubectl apply -f examples/{example}/compiledmodel.yaml (the first time usually 3 minutes)")
    kube.apply(kit.compiled_model(example))
    model = kit.wait_ready_model(kube, example, image=image, tell=lambda line: say(f"{example}: {line}"))
    say(f"{example}: the same Deployment with the label preheat.dev/model={example} (usually 10 s)")
    ours = serve_once(kube, example, image, label=example)
    target = model["status"]["targets"][0]
    rows = {"eager": eager, "torch.compile, cold": cold, "Preheat": ours}
    print(
        f"\n  {example}: {target['verdict']} ({target['reason']}), speed-up {target.get('speedup', '?')}, "
        f"artifact {int(target.get('size') or 0) / 1e6:.1f} MB"
    )
    print(f"  {'':22}{'first answer':>14}{'from start':>12}{'steady p50':>12}   served")
    for name, row in rows.items():
        print(
            f"  {name:22}{row.first_answer_seconds:>12.2f} s{row.since_start_seconds:>10.2f} s"
            f"{row.p50_ms:>9.1f} ms   {row.outcome or '-'}{': ' + row.reason if row.reason else ''}"
        )
    print()
    return {"target": target, **{name: dataclasses.asdict(row) for name, row in rows.items()}}


def main() -> int:
    """Show both examples; 0 when each was served as its verdict says."""
    kube = kit.from_environment(os.environ["PREHEAT_DEMO_NAMESPACE"])
    results = {example: show(kube, example) for example in EXAMPLES}
    print(kube.run("get", "compiledmodels"))
    out = Path(os.environ.get("PREHEAT_DEMO_RESULTS", "demo-results.json"))
    out.write_text(json.dumps(results, indent=2) + "\n")
    say(f"figures as JSON: {out}")
    expected = {"Kept": {"hot", "warm"}, "Rejected": {"eager"}}
    wrong = [e for e, r in results.items() if r["Preheat"]["outcome"] not in expected.get(r["target"]["verdict"], ())]
    if wrong:
        say(f"not served as the verdict says: {', '.join(wrong)}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
