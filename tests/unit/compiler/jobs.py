"""One run of the compile driver, as in a compile container, and what it left behind."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import kept
from preheat_compiler.layout import lay_out
from preheat_compiler.prove import pod_environment, said_by_runtime
from preheat_compiler.request import read_request
from preheat_runtime.manifest import digest_of
from unit.compiler import requests, toolkits

if TYPE_CHECKING:
    from pathlib import Path

INPUTS = ("compiler_job", "tests/unit/compiler/toolkits.py")
#: Looking for garbage among the modules imported so far is a sixth of importing torch.
QUICK_IMPORT = "import gc; gc.disable(); import torch; gc.enable()\n"
#: Runs each of some scripts in a process of its own, forked after what all of them import.
EACH = """
import os, sys
{imports}
for name, script in {scripts!r}:
    if (child := os.fork()) == 0:
        exec(compile(script, name, "exec"), {{"__name__": "__main__"}})
        sys.exit()
    assert os.waitpid(child, 0)[1] == 0, name
    print(child)
"""


@dataclass
class Job:
    """One run of the driver."""

    folder: Path
    code: int
    said: str

    @property
    def app(self) -> Path:
        return self.folder / "app"

    def result(self) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.app / "out" / "result.json").read_text())
        return content

    def target(self, module: str, bucket: str) -> dict[str, Any]:
        (found,) = [each for each in self.result()["targets"] if (each["module"], each["bucket"]) == (module, bucket)]
        return found

    def report(self, module: str, bucket: str) -> dict[str, Any]:
        content: dict[str, Any] = json.loads((self.app / "out" / module / bucket / "report.json").read_text())
        return content


def tensor(*shape: int | str, dtype: str = "float32") -> dict[str, Any]:
    return {"tensor": {"shape": list(shape), "dtype": dtype}}


def bucket(name: str, *args: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"name": name, "dims": [], "args": list(args), "kwargs": [], **more}


def compile_job(folder: Path, model: str, factory: str, *modules: dict[str, Any], **changes: Any) -> Job:
    """Run the driver on what `lay_down` writes, in a folder that becomes `folder / "app"`, or take from `kept` what came of it before."""
    toolkit = lay_down(folder, model, factory, *modules, **changes)
    request = (folder / "app" / "request.json").read_text()

    def run(app: Path) -> str:
        return json.dumps(run_driver(toolkit, app))

    code, said = json.loads(kept.made(folder / "app", run, "job", model, request, inputs=INPUTS))
    return Job(folder=folder, code=code, said=said)


def run_driver(toolkit: Path, app: Path) -> tuple[int, str]:
    """The driver's exit code and everything it said, where a secret is set."""
    return toolkits.run(toolkit, app, HF_TOKEN="hf_verysecret")


def lay_down(
    folder: Path,
    model: str,
    factory: str,
    *modules: dict[str, Any],
    torch: dict[str, Any] | None = None,
    base: Path | None = None,
    **changes: Any,
) -> Path:
    """Write a model.py and a request with `torch` and `changes` into `folder / "app"`, and beside it the toolkit, which is returned.

    `base` is the folder of an earlier revision, as `former` makes it.
    """
    app = folder / "app"
    app.mkdir(parents=True)
    if base is not None:
        shutil.copytree(base, app / "base")
        changes["base"] = digest_of((base / "manifest.json").read_bytes())
    (app / "model.py").write_text(model)
    raw = requests.make(torch={"factory": factory, "modules": list(modules), **(torch or {})}, **changes)
    raw["targets"] = [{"module": each["name"], "bucket": b["name"]} for each in modules for b in each["buckets"]]
    (app / "request.json").write_text(json.dumps(raw))
    return toolkits.make(folder / "toolkit")


def former(job: Job, module: str, bucket: str, folder: Path) -> Path:
    """What the toolkit lays beside the request of a job that follows this one."""
    target = job.target(module, bucket)
    pod = lay_out(
        folder, job.app / "out" / module / bucket, request=read_request(job.app / "request.json"), module=module,
        bucket=bucket, tier=target["tier"], request_key=target["requestKey"], fingerprint=target["fingerprint"],
    )  # fmt: skip
    return pod / "revision"


def serve(
    job: Job, module: str, bucket: str, script: str, folder: Path, *, compiler: bool = True
) -> list[dict[str, Any]]:
    """Run a script as in a pod that has this one artifact, and a C++ compiler or none; what the runtime reported of it, but for counts.

    Without a compiler what is not served runs eagerly at once, instead of being compiled for a minute.
    """
    return _serve(job, module, bucket, script, folder, compiler=compiler)[1]


def serve_each(
    job: Job,
    module: str,
    bucket: str,
    scripts: dict[str, str],
    folder: Path,
    *,
    imports: str = "",
    compiler: bool = True,
) -> dict[str, list[dict[str, Any]]]:
    """`serve` of several scripts by name, each in a process of its own; torch and `imports` are imported once for all."""
    script = EACH.format(imports=imports, scripts=list(scripts.items()))
    out, said = _serve(job, module, bucket, script, folder, compiler=compiler)
    processes = dict(zip(scripts, map(int, out.split()), strict=True))
    return {name: [line for line in said if line["pid"] == pid] for name, pid in processes.items()}


def _serve(
    job: Job, module: str, bucket: str, script: str, folder: Path, *, compiler: bool
) -> tuple[str, list[dict[str, Any]]]:
    target = job.target(module, bucket)
    pod = lay_out(
        folder / "pod", job.app / "out" / module / bucket, request=read_request(job.app / "request.json"), module=module,
        bucket=bucket, tier=target["tier"], request_key=target["requestKey"], fingerprint=target["fingerprint"],
    )  # fmt: skip
    environment = pod_environment(folder, os.environ)
    environment.update(PREHEAT_DIR=str(pod), PREHEAT_WORK_DIR=str(folder), PYTHONPATH=f"{pod}/site:{job.app}")
    if not compiler:
        environment["PATH"] = str(pod)
    command = [sys.executable, "-c", QUICK_IMPORT + script]
    out = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True).stdout
    return out, [line for line in said_by_runtime(folder) if line["event"] != "preheat-uncovered"]
