"""Without a cluster: `preheat compile` into a folder, then an unmodified script, hot."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

import kept
from preheat_compiler.layout import compiler_runs, shims
from preheat_operator.cli.found import find
from preheat_operator.cli.stores import StoreLocation
from preheat_runtime.manifest import canonical_json

pytestmark = [pytest.mark.torch, pytest.mark.timeout(900)]

ROOT = Path(__file__).resolve().parents[3]
TINY = ROOT / "tests/e2e/tiny"
# Not through PYTHONPATH: the user's code must not find the operator, nor a runtime that was not fetched.
PREHEAT = (
    f"import sys; sys.path[:0] = {[str(ROOT / 'operator'), str(ROOT / 'compiler_job')]!r}; "
    "from preheat_operator.cli.main import main; sys.exit(main())"
)
SERVE = """
import json, sys
import torch
from model import load

net = load()
model = torch.compile(net)
x = torch.randn(1, 64)
with torch.no_grad():
    error = (model(x) - net(x)).abs().max().item()
assert error < 1e-4, error
compiler = sorted(name for name in sys.modules if name.startswith(("torch._dynamo", "torch._inductor")))
print(json.dumps({"compiler": compiler, "words": sys.argv[1:]}))
"""


@dataclass
class App:
    """A folder with a model, a script, and a CompiledModel that names no workload."""

    folder: Path

    def preheat(self, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PREHEAT_", "PYTHONPATH", "TORCHINDUCTOR_"))}
        kept |= {"XDG_CACHE_HOME": str(self.folder / "cache"), "TMPDIR": str(self.folder / "tmp")}
        (self.folder / "tmp").mkdir(exist_ok=True)
        return subprocess.run(
            [sys.executable, "-c", PREHEAT, *words], cwd=self.folder, env={**kept, **env},
            capture_output=True, text=True, timeout=800,
        )  # fmt: skip

    def serve(self, **env: str) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the script printed, and the line that the runtime logged."""
        no_compilers = self.folder / "bin"
        if not no_compilers.exists():
            shims(no_compilers, log=self.folder / "compilers.log", pass_on=False)
        done = self.preheat(
            "run",
            "--store",
            "store",
            "tiny",
            "--",
            sys.executable,
            "serve.py",
            "--port",
            "1",
            PATH=str(no_compilers),
            **env,
        )
        assert done.returncode == 0, done.stderr
        lines = [json.loads(each) for each in done.stderr.splitlines() if each.startswith("{")]
        (line,) = [each for each in lines if each["event"] == "preheat"]
        return json.loads(done.stdout), line


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[App, dict[str, Any]]:
    """The app after `preheat compile`, and what that said."""
    folder = tmp_path_factory.mktemp("app")
    shutil.copy(TINY / "model.py", folder)
    (folder / "serve.py").write_text(SERVE)
    document = yaml.safe_load((TINY / "compiledmodel.yaml").read_text())
    del document["spec"]["workloadRef"]
    # Small models are not always faster on a busy machine; this test is about what is kept.
    document["spec"]["keepIf"] = {"minSpeedup": "0"}
    (folder / "compiledmodel.yaml").write_text(yaml.safe_dump(document))

    def compile_it(place: Path) -> str:
        done = App(place).preheat(
            "compile", "-f", "compiledmodel.yaml", "--store", "store", "--output", "json", "--python", sys.executable
        )
        assert done.returncode == 0, done.stderr
        assert list((place / "tmp").iterdir()) == [], "nothing is left of the compile but the store"
        return done.stdout

    inputs = ("compiler_job", "operator", "tests/e2e/tiny", "tests/torch/cli")
    said = json.loads(kept.made(folder, compile_it, "cli", inputs=inputs))
    return App(folder), said


def test_the_target_is_kept_with_its_figures(compiled: tuple[App, dict[str, Any]]) -> None:
    app, said = compiled
    (target,) = said["targets"]
    assert (target["verdict"], target["tier"], target["hardware"]) == ("Kept", "package", "cpu"), target
    assert float(target["figures"]["speedup"]) > 0
    assert int(target["figures"]["sizeBytes"]) > 0
    text = app.preheat("inspect", "--store", "store", "tiny").stdout
    assert said["digest"] in text
    assert "main/one/cpu: Kept" in text
    assert "x eager" in text


def test_an_unmodified_script_is_hot_without_a_compiler(compiled: tuple[App, dict[str, Any]]) -> None:
    app, said = compiled
    printed, line = app.serve()
    assert printed == {"compiler": [], "words": ["--port", "1"]}
    assert (line["outcome"], line["reason"]) == ("hot", "package")
    assert (line["model"], line["manifest"]) == ("tiny", said["digest"])
    assert compiler_runs(app.folder / "compilers.log") == 0


def test_other_weights_are_served_hot_too(compiled: tuple[App, dict[str, Any]]) -> None:
    app, _ = compiled
    assert app.serve(TINY_SEED="11")[1]["outcome"] == "hot"


def test_a_changed_model_falls_back_and_says_why(compiled: tuple[App, dict[str, Any]], tmp_path: Path) -> None:
    app, _ = compiled
    changed = App(tmp_path / "changed")
    shutil.copytree(app.folder, changed.folder)
    source = (changed.folder / "model.py").read_text()
    assert "gelu(" in source
    (changed.folder / "model.py").write_text(source.replace("gelu(", "silu("))
    _, line = changed.serve()
    assert (line["outcome"], line["reasonClass"]) == ("eager", "ModelDiffers")
    assert "the code of the module (Tiny), or something it uses, differs" in line["reason"]
    assert "no C++ compiler" in line["reason"]


def test_what_was_asked_is_kept_and_is_what_the_key_is_the_hash_of(compiled: tuple[App, dict[str, Any]]) -> None:
    app, said = compiled
    found = find(said["digest"], StoreLocation.parse(str(app.folder / "store"), tenant=said["tenant"]))
    (target,) = found.manifest.targets
    report = found.report(target)
    assert report is not None
    assert hashlib.sha256(canonical_json(report["asked"])).hexdigest() == target.request_key == report["requestKey"]
    assert (report["asked"]["torch"]["factory"], report["asked"]["fingerprint"]) == ("model:load", target.fingerprint)
    same = app.preheat("diff", "--store", "store", "tiny", said["digest"])
    assert (same.returncode, same.stdout) == (0, f"main/one/cpu: the same key {target.request_key}\n")
