"""The servers that people put around a model, and a notebook: each process of theirs is hot and right, after a reload too.

All share one package. Servers are spoken to through sockets in a folder; no port is taken.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import shutil
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from children import die_with_parent
from lab.paths import REPOSITORY
from lab.venv import packages

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.torch, pytest.mark.soak]

HERE = Path(__file__).parent
#: Answers with its process id, and whether what the model said is what eager says.
SERVICE = """
import json, os, pathlib, time
import torch
import nets

torch.set_num_threads(1)  # what forks after it has answered hangs otherwise, as it does without Preheat
net = nets.trap(seed=7)
model = torch.compile(net)
X = torch.linspace(-1, 1, 64).reshape(4, 16)

def body():
    with torch.no_grad():
        right = torch.allclose(model(X)["y"], net(X)["y"], rtol=1e-4, atol=1e-5)
    return json.dumps({"pid": os.getpid(), "right": right}).encode()

if os.environ.get("ANSWER_FIRST"):
    body()

def wsgi(environ, start_response):
    data = body()
    start_response("200 OK", [("Content-Length", str(len(data)))])
    return [data]

async def asgi(scope, receive, send):
    if scope["path"] == "/until-let-go":  # as a model that takes long: nothing else is answered by this worker
        pathlib.Path(f"busy-{os.getpid()}").touch()
        while not pathlib.Path("let-go").exists():
            time.sleep(0.01)
    data = body()
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", str(len(data)).encode())]})
    await send({"type": "http.response.body", "body": data})
"""


@dataclass
class Site:
    """A folder with the service's code, and the pod that it runs in."""

    folder: Path
    pod: object
    environment: dict[str, str]

    @contextlib.contextmanager
    def running(self, *words: str, **env: str) -> Iterator[Path]:
        """Run a server; yields its socket. It is ended as the kubelet ends it."""
        place = self.folder / "socket"
        log = self.folder / "log"
        with log.open("wb") as file:
            server = subprocess.Popen(
                [sys.executable, "-m", *(word.format(socket=place) for word in words)],
                cwd=self.folder, env={**self.environment, **env}, stdout=file, stderr=file, start_new_session=True,
                preexec_fn=die_with_parent,
            )  # fmt: skip
        try:
            yield place
        finally:
            server.send_signal(signal.SIGTERM)
            with contextlib.suppress(subprocess.TimeoutExpired):
                server.wait(30)
            left = server.poll() is None
            if left:
                server.kill()
                server.wait()
            assert not left, f"it does not end: {log.read_text()[-2000:]}"

    def busy(self) -> int:
        """The process that was told to answer nothing until it is let go."""
        for _ in range(600):
            if found := list(self.folder.glob("busy-*")):
                return int(found[0].name.removeprefix("busy-"))
            time.sleep(0.1)
        raise AssertionError("nobody is busy")

    @property
    def outcomes(self) -> list[tuple[int, str]]:
        """Process and outcome of each line about an answer; a master that only compiles and forks says that it did."""
        text = (self.pod.work / "reports.jsonl").read_text()
        return [(line["pid"], line["outcome"]) for line in self.pod.said(text) if line["when"] != "exit"]


def ask(place: Path, path: str = "/", *, timeout: float = 60) -> dict[str, object]:
    connection = http.client.HTTPConnection("pod", timeout=timeout)
    connection.sock = socket.socket(socket.AF_UNIX)
    connection.sock.settimeout(timeout)
    with contextlib.closing(connection):
        connection.sock.connect(str(place))
        connection.request("GET", path)
        return json.loads(connection.getresponse().read())


def answer(place: Path, *, but: frozenset[int] = frozenset()) -> int:
    """The process that answers, once there is one that is none of `but`; its answer must be right."""
    for _ in range(1200):
        with contextlib.suppress(OSError, http.client.HTTPException):
            found = ask(place)
            assert found["right"], found
            if found["pid"] not in but:
                return int(found["pid"])
        time.sleep(0.1)
    raise AssertionError("no answer of another process")


def all_of(place: Path, count: int) -> set[int]:
    """The processes that answer, once so many did, each asked by several at once."""
    found: set[int] = set()
    answer(place)
    with ThreadPoolExecutor(8) as pool:
        for _ in range(200):
            found |= set(pool.map(lambda _: answer(place), range(8)))
            if len(found) >= count:
                return found
    raise AssertionError(f"only {found} answered")


@pytest.fixture
def site(pod, trap_package, tmp_path):
    pod.write((trap_package[0], pod.entry(trap_package[0])))
    folder = tmp_path / "app"
    folder.mkdir()
    (folder / "service.py").write_text(SERVICE)
    shutil.copy(HERE / "nets.py", folder)
    path = f"{pod.site}:{folder}:{packages(REPOSITORY / 'requirements' / 'servers.txt')}"
    return Site(folder, pod, pod.environment(PYTHONPATH=path))


@pytest.mark.parametrize(
    ("words", "env"),
    [
        (["gunicorn", "service:wsgi", "--threads", "2"], {}),
        (["gunicorn", "service:wsgi", "--threads", "2", "--preload"], {}),
        (["gunicorn", "service:wsgi", "--preload"], {"ANSWER_FIRST": "1"}),
    ],
    ids=["each loads", "preload", "preload, and answered before the fork"],
)
def test_workers_of_gunicorn(site, words, env):
    with site.running(*words, "--bind", "unix:{socket}", "--workers", "2", **env) as place:
        workers = all_of(place, 2)
    said = site.outcomes
    assert {outcome for _, outcome in said} == {"hot"}
    assert workers <= {pid for pid, _ in said}
    assert len(said) == 2 + len(env)  # once for each process, the one that forked them as well if it answered


def test_workers_of_uvicorn(site):
    with site.running("uvicorn", "service:asgi", "--lifespan", "off", "--uds", "{socket}", "--workers", "2") as place:
        # One takes all that it can, so the other is seen only while that one is busy.
        answer(place)
        with ThreadPoolExecutor(1) as pool, contextlib.ExitStack() as stack:
            held = pool.submit(ask, place, "/until-let-go", timeout=300)
            stack.callback((site.folder / "let-go").touch)
            busy = site.busy()
            second = ask(place, timeout=240)
        first = held.result()
    assert (first, second["right"]) == ({"pid": busy, "right": True}, True)
    assert second["pid"] != busy
    assert sorted(site.outcomes) == sorted([(busy, "hot"), (second["pid"], "hot")])


def test_uvicorn_that_reloads_what_was_edited(site):
    words = ["uvicorn", "service:asgi", "--lifespan", "off", "--uds", "{socket}", "--reload", "--reload-dir", "."]
    with site.running(*words) as place:
        first = answer(place)
        # An edit that is not of the model, then one that is.
        (site.folder / "service.py").write_text(SERVICE + "\n# edited\n")
        second = answer(place, but=frozenset({first}))
        nets = site.folder / "nets.py"
        nets.write_text(nets.read_text().replace("GAIN = 2.0", "GAIN = 3.25"))
        third = answer(place, but=frozenset({first, second}))
    outcomes = dict(site.outcomes)
    # The image has no compiler; what matters is that the artifact is not taken for the edited model's.
    assert (outcomes[first], outcomes[second], outcomes[third]) == ("hot", "hot", "eager")


def test_ranks_of_torchrun(site):
    (site.folder / "rank.py").write_text(
        """
import os
import torch
import torch.distributed as dist
import nets

dist.init_process_group("gloo")
net = nets.trap(seed=dist.get_rank())
x = torch.randn(4, 16)
with torch.no_grad():
    right = torch.tensor(float(torch.allclose(torch.compile(net)(x)["y"], net(x)["y"], rtol=1e-4, atol=1e-5)))
dist.all_reduce(right)
assert right == dist.get_world_size() == 2, right
dist.destroy_process_group()
"""
    )
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", "rank.py"]
    env = {**site.environment, "GLOO_SOCKET_IFNAME": "lo"}
    done = subprocess.run(words, cwd=site.folder, env=env, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    assert [outcome for _, outcome in site.outcomes] == ["hot", "hot"]
    assert len({pid for pid, _ in site.outcomes}) == 2


#: Runs cells in a kernel of its own, as a notebook does; prints for each what it wrote to its two streams.
NOTEBOOK = """
import json, sys
from jupyter_client.manager import start_new_kernel

def stream(message):
    content = message["content"]
    if message["msg_type"] == "stream":
        seen[content["name"]] += content["text"]
    if message["msg_type"] == "error":
        seen["error"] += "\\n".join(content["traceback"])

manager, client = start_new_kernel(startup_timeout=240)
try:
    for cell in json.load(sys.stdin):
        seen = {"stdout": "", "stderr": "", "error": ""}
        client.execute_interactive(cell, output_hook=stream, timeout=240, allow_stdin=False)
        print(json.dumps(seen))
finally:
    client.stop_channels()
    manager.shutdown_kernel(now=True)
"""


def test_cells_of_a_notebook_that_are_run_again_and_reload_their_modules(site):
    make = "import torch, nets\nnet = nets.trap(seed=5)\nmodel = torch.compile(net)\nx = torch.randn(4, 16)"
    call = "with torch.no_grad(): print(torch.allclose(model(x)['y'], net(x)['y'], rtol=1e-4, atol=1e-5))"
    edit = "import pathlib\nfile = pathlib.Path('nets.py')\nfile.write_text(file.read_text().replace('GAIN = 2.0', 'GAIN = 3.25'))"
    cells = {
        "make": make, "call": call,
        "make again": make, "call again": call,
        "reload": "import importlib; importlib.reload(nets)", "make what was reloaded": make, "call that": call,
        "import again": "import sys; del sys.modules['nets']\n" + make, "call what was imported again": call,
        "edit": "%load_ext autoreload\n%autoreload 2\n" + edit, "call the edited": call,
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", NOTEBOOK], input=json.dumps(list(cells.values())), cwd=site.folder,
        env={**site.environment, "IPYTHONDIR": str(site.folder), "JUPYTER_RUNTIME_DIR": str(site.folder / "runtime")},
        capture_output=True, text=True, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-3000:]
    seen = dict(zip(cells, map(json.loads, done.stdout.splitlines()), strict=True))
    assert not [each["error"] for each in seen.values() if each["error"]]
    assert {name: each["stdout"].strip() for name, each in seen.items() if "call" in name} == {
        name: "True" for name in cells if "call" in name
    }
    # The notebook shows the line; what is as before is not said again.
    assert '"outcome": "hot"' in seen["call"]["stderr"]
    assert [outcome for _, outcome in site.outcomes] == ["hot", "eager"]
    assert '"outcome": "eager"' in seen["call the edited"]["stderr"]
