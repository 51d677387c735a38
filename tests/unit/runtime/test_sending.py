"""Reports reach a real HTTP server, in time or not at all; the process never notices."""

import json
import os
import subprocess
import sys
import textwrap
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import torch

from preheat_runtime import sending
from preheat_runtime.fallback import EAGERLY, NO_COMPILER
from preheat_runtime.report import Answer, Reporter
from preheat_runtime.room import NO_ROOM
from preheat_runtime.sending import MAX_RECORDS, MAX_WAITING, Sender
from preheat_runtime.uncovered import Uncovered
from preheat_runtime.variables import ENV_REPORTS_CA, ENV_REPORTS_TOKEN, ENV_REPORTS_URL

SOURCES = str(Path(__file__).resolve().parents[3] / "compiler_job")


class Collector:
    """A server that answers with the statuses it is given, then 204, and keeps what came."""

    def __init__(self, *statuses):
        self.statuses = list(statuses)
        self.got = []
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self):
                body = self.rfile.read(int(self.headers["Content-Length"]))
                outer.got.append((self.path, self.headers["Authorization"], json.loads(body)))
                self.send_response(outer.statuses.pop(0) if outer.statuses else 204)
                self.end_headers()

            def log_message(self, *_):
                pass

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def close(self):
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()


@pytest.fixture
def collector(request):
    found = Collector(*getattr(request, "param", ()))
    yield found
    found.close()


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(sending, "DELAY_SECONDS", 0.05)
    monkeypatch.setattr(sending, "RETRY_SECONDS", (0.05, 0.05))
    monkeypatch.setattr("atexit.register", lambda function: None)


@pytest.fixture
def environ(collector, tmp_path):
    (tmp_path / "token").write_text("one\n")
    return {ENV_REPORTS_URL: collector.url, ENV_REPORTS_TOKEN: str(tmp_path / "token"), "PREHEAT_MODEL": "vision"}


def ended(sender):
    for _ in range(400):
        if sender._thread is None:
            return True
        time.sleep(0.02)
    return False


def threads():
    return [each for each in threading.enumerate() if each.name == "preheat-reports"]


def test_without_an_address_there_is_no_thread(monkeypatch):
    started = []
    monkeypatch.setattr(threading.Thread, "start", lambda self: started.append(self))
    for environ in ({}, {ENV_REPORTS_URL: "http://127.0.0.1:1"}, {ENV_REPORTS_TOKEN: "/t"}):
        sender = Sender(environ, Uncovered().take)
        sender.send({"event": "preheat"})
        sender.counted()
    assert not started


def test_records_gather_and_go_with_the_pod_s_token(collector, environ):
    sender = Sender(environ, Uncovered().take)
    sender.send({"outcome": "hot"})
    sender.send({"outcome": "cold"})
    assert ended(sender)
    (path, token, message), *more = collector.got
    assert not more
    assert (path, token) == ("/v1/reports", "Bearer one")
    assert message == {
        "v": 1, "model": "vision", "records": [{"outcome": "hot"}, {"outcome": "cold"}], "uncovered": [], "dropped": 0,
    }  # fmt: skip
    assert not threads(), "nothing lingers"


def test_the_token_is_read_anew(collector, environ):
    sender = Sender(environ, Uncovered().take)
    sender.send({"n": 1})
    assert ended(sender)
    Path(environ[ENV_REPORTS_TOKEN]).write_text("two")
    sender.send({"n": 2})
    assert ended(sender)
    assert [token for _, token, _ in collector.got] == ["Bearer one", "Bearer two"]


@pytest.mark.parametrize("collector", [(503, 429)], indirect=True)
def test_a_server_that_is_busy_is_asked_again(collector, environ):
    sender = Sender(environ, Uncovered().take)
    sender.send({"n": 1})
    assert ended(sender)
    assert len(collector.got) == 3
    assert sender.dropped == 0


@pytest.mark.parametrize("collector", [(401,)], indirect=True)
def test_a_refusal_is_final_and_counted(collector, environ):
    sender = Sender(environ, Uncovered().take)
    sender.send({"n": 1})
    assert ended(sender)
    assert (len(collector.got), sender.dropped) == (1, 1)
    sender.send({"n": 2})
    assert ended(sender)
    assert collector.got[1][2]["dropped"] == 1


def test_nobody_there_is_no_error(environ):
    sender = Sender(environ | {ENV_REPORTS_URL: "http://127.0.0.1:1"}, Uncovered().take)
    sender.send({"n": 1})
    assert ended(sender)
    assert sender.dropped == 1


@pytest.mark.parametrize("broken", ["http://[", "ftp://x", "nonsense", "https://127.0.0.1:1"])
def test_a_broken_address_or_certificate_is_no_error(environ, broken):
    sender = Sender(environ | {ENV_REPORTS_URL: broken, ENV_REPORTS_CA: "no certificate"}, Uncovered().take)
    sender.send({"n": 1})
    assert ended(sender)
    assert sender.dropped == 1


def test_a_token_that_is_not_there_is_no_error(environ):
    sender = Sender(environ | {ENV_REPORTS_TOKEN: "/nowhere"}, Uncovered().take)
    sender.send({"n": 1})
    assert ended(sender)
    assert sender.dropped == 1


def test_what_cannot_be_sent_does_not_pile_up(environ, monkeypatch):
    monkeypatch.setattr(sending, "DELAY_SECONDS", 0.3)
    sender = Sender(environ, Uncovered().take)
    for number in range(MAX_WAITING + 10):
        sender.send({"n": number})
    assert len(sender._waiting) <= MAX_WAITING
    assert sender.dropped == 10
    assert ended(sender)


def test_sending_is_not_waited_for(environ, monkeypatch):
    """A server that hangs: whoever reports has gone on long before."""
    let_go = threading.Event()
    monkeypatch.setattr(sending, "post", lambda *_, **__: let_go.wait(30) and 204)
    sender = Sender(environ, Uncovered().take)
    sender.send({"n": 1})
    sender.send({"n": 2})
    assert sender._thread is not None
    let_go.set()
    assert ended(sender)


def test_counts_go_along_and_not_at_every_call(collector, environ):
    counts = Uncovered()
    sender = Sender(environ, counts.take)
    for _ in range(5):
        counts.add((torch.zeros(2),), {})
    sender.counted()
    assert ended(sender)
    for _ in range(7):
        counts.add((torch.zeros(2),), {})
        sender.counted()
    assert sender._thread is None, "a minute has not passed"
    sender.send({"n": 1})
    assert ended(sender)
    assert [message["uncovered"] for *_, message in collector.got] == [
        [{"shape": "float32[2]", "count": 5}], [{"shape": "float32[2]", "count": 7}],
    ]  # fmt: skip


def test_counts_that_never_end_are_sent_once_in_their_time(collector, environ):
    sender = Sender(environ, lambda: {"float32[2]": 1})  # another call has come each time it looks
    sender.counted()
    assert ended(sender)
    sender.counted()
    assert ended(sender)
    assert len(collector.got) == 1


def test_more_records_than_a_message_takes_go_in_several(collector, environ, monkeypatch):
    monkeypatch.setattr(sending, "DELAY_SECONDS", 0.3)
    sender = Sender(environ, Uncovered().take)
    for number in range(MAX_WAITING):
        sender.send({"n": number})
    assert ended(sender)
    messages = [[record["n"] for record in message["records"]] for *_, message in collector.got]
    assert [number for message in messages for number in message] == list(range(MAX_WAITING))
    assert max(map(len, messages)) == MAX_RECORDS
    assert sender.dropped == 0


def test_the_words_of_a_reason_stay_in_the_pod(collector, environ, capfd):
    reporter = Reporter(environ, manifest="sha256:1")
    reason = "no bucket answers this call: one: argument x: has shape (2, 64), compiled for (1, 64)"
    reporter.answered(Answer(outcome="cold", reason=reason, class_name="Net", size=5, first_answer_seconds=0.5))
    reporter.failed("binding", ValueError("words"))
    assert ended(reporter._sender)
    assert [message["records"] for *_, message in collector.got] == [
        [
            {"event": "preheat", "when": "first-answer", "outcome": "cold", "reasonClass": "CallNotCovered", "bytes": 5,
             "firstAnswerSeconds": 0.5},
            {"event": "preheat-error"},
        ]
    ]  # fmt: skip
    said = [json.loads(line) for line in capfd.readouterr().err.splitlines()]
    assert said[0]["reason"] == reason
    assert said[0]["reasonClass"] == "CallNotCovered"


def script(body, environ, **options):
    code = textwrap.dedent(body)
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", code], env={"PATH": os.environ["PATH"], "PYTHONPATH": SOURCES, **environ},
        capture_output=True, text=True, timeout=60, **options,
    )  # fmt: skip


def test_the_end_of_the_process_waits_for_nothing(tmp_path):
    """The server accepts and never answers; the process ends all the same, with its own code."""
    import socket

    (tmp_path / "token").write_text("t")
    with socket.create_server(("127.0.0.1", 0)) as listening:
        url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        done = script(
            """
            import os, sys, time
            from preheat_runtime import sending
            sending.DELAY_SECONDS, sending.TIMEOUT_SECONDS = 0, 3600
            sender = sending.Sender(os.environ, dict)
            sender.send({"n": 1})
            time.sleep(0.5)
            assert sender._thread is not None and sender._thread.is_alive()
            sys.exit(7)
            """,
            {ENV_REPORTS_URL: url, ENV_REPORTS_TOKEN: str(tmp_path / "token")},
        )
    assert (done.returncode, done.stderr) == (7, "")


def test_what_sending_needs_is_imported_by_the_thread_alone(environ):
    done = script(
        """
        import os, sys
        from preheat_runtime import sending
        before = {"http.client", "ssl", "urllib.parse", "socket"} & set(sys.modules)
        sending.Sender(os.environ, dict).send({"n": 1})
        after = {"http.client", "ssl", "urllib.parse", "socket"} & set(sys.modules)
        print(sorted(before ^ after))
        """,
        environ,
    )
    assert done.stdout == "[]\n", done.stderr


def test_a_forked_child_reports_for_itself_and_the_parent_loses_nothing(collector, environ):
    done = script(
        """
        import os, threading, time, warnings
        from preheat_runtime import sending
        sending.DELAY_SECONDS = 0.3
        sender = sending.Sender(os.environ, dict)
        sender.send({"from": "parent"})
        pid = os.fork()
        if pid == 0:
            assert threading.active_count() == 1 and sender._thread is None
            sender.send({"from": "child"})
        while sender._thread is not None:
            time.sleep(0.02)
        if pid == 0:
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        """,
        environ,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert sorted(record["from"] for *_, message in collector.got for record in message["records"]) == [
        "child",
        "parent",
    ]


def test_forking_while_it_is_sent_does_not_hang(environ, monkeypatch):
    """The child must not wait for a lock that only the parent's thread could release."""
    let_go = threading.Event()
    monkeypatch.setattr(sending, "post", lambda *_, **__: let_go.wait(30) and 204)
    sender = Sender(environ, Uncovered().take)
    sender.send({"n": 1})
    pid = os.fork()
    if pid == 0:
        opened = sender._lock.acquire(timeout=5)
        os._exit(0 if opened and sender._thread is None and not sender._waiting else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0
    let_go.set()
    assert ended(sender)


def reporter_of(environ):
    return Reporter(environ | {"PREHEAT_LOG": "off"}, manifest=None)


def test_what_the_log_says_of_shapes_is_not_sent_twice(collector, environ, monkeypatch):
    monkeypatch.setattr(sending, "DELAY_SECONDS", 0.3)
    reporter = reporter_of(environ)
    for _ in range(4):
        reporter.uncovered((torch.zeros(2),), {}, "main")
    assert ended(reporter._sender)
    assert [(message["records"], message["uncovered"]) for *_, message in collector.got] == [
        ([], [{"shape": "float32[2]", "count": 4, "module": "main"}])
    ]


def test_shapes_go_with_their_module_and_with_how_many_calls_were_answered(collector, environ):
    reporter = reporter_of(environ)
    reporter.by_artifact += 7
    reporter.uncovered((torch.zeros(2),), {}, "main")
    assert ended(reporter._sender)
    message = collector.got[0][2]
    assert message["uncovered"] == [{"shape": "float32[2]", "count": 1, "module": "main"}]
    assert message["answered"] == 7
    assert "modules" not in message
    assert reporter.by_artifact == 0, "they are not counted twice"


@pytest.mark.parametrize(
    ("reason", "told"),
    [
        ("main/one/cpu: CPU lacks avx512f, which code for X86_64_V4 needs", True),
        ("main/one/cpu: torch 2 in the pod, artifact has 1", True),
        ("main/one/cpu: Python 3.12 in the pod, artifact has 3.11", True),
        ("torch.compile was called with backend='eager'", False),
    ],
)
@pytest.mark.parametrize(
    ("outcome", "more"),
    [
        ("cold", ""),
        ("eager", f"; {NO_COMPILER}{EAGERLY}"),
        ("eager", f"; {NO_ROOM}: /tmp is mounted noexec; x{EAGERLY}"),
    ],
    ids=["cold", "no compiler", "no room"],
)
def test_what_the_machine_is_is_told_where_nothing_fits_it(collector, environ, reason, told, outcome, more):
    reporter = reporter_of(environ)
    reporter.answered(Answer(outcome=outcome, reason=reason + more))
    assert ended(reporter._sender)
    message = collector.got[0][2]
    assert ("node" in message) is told
    if told:
        assert set(message["node"]) <= {"torch", "python", "machine", "cpuIsa"}, "CUDA is not touched for it"
        assert message["node"]["machine"]
        assert message["node"]["torch"] == torch.__version__


def test_what_cannot_be_told_keeps_nothing_else_back(collector, environ):
    def broken(records, counts):
        raise OSError("the driver does not answer")

    sender = Sender(environ, Uncovered().take, broken)
    sender.send({"n": 1})
    assert ended(sender)
    assert collector.got[0][2]["records"] == [{"n": 1}]
