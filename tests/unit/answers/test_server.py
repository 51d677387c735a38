"""The server over real HTTP. TokenReview is played here, for what a real one cannot be made to do; the real one is
asked in tests/cluster/answers."""

from __future__ import annotations

import asyncio
import json
import subprocess
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest

from preheat_operator.answers.limits import Limits, Rate
from preheat_operator.api import names
from preheat_operator.cluster.client import ApiError
from preheat_operator.server import Server
from preheat_operator.settings import ServerSettings, SettingsError
from preheat_runtime import sending
from preheat_runtime.sending import Sender
from preheat_runtime.variables import ENV_REPORTS_CA, ENV_REPORTS_TOKEN, ENV_REPORTS_URL

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

RECORD = {
    "event": "preheat",
    "when": "first-answer",
    "outcome": "hot",
    "reasonClass": "Package",
    "firstAnswerSeconds": 0.1,
}
REPORT = {"v": 1, "model": "vision", "records": [RECORD]}


@dataclass
class Reviewer:
    """Plays the API server: knows the tokens `good-…`, each another pod of namespace prod."""

    asked: list[str] = field(default_factory=list)
    fails: Exception | None = None
    unreadable: Exception | None = None
    hold: asyncio.Event | None = None
    reached: asyncio.Event = field(default_factory=asyncio.Event)

    async def get(self, path: str) -> None:
        """No pod is there to be written to; tests/unit/answers/test_noting.py has some."""
        if self.unreadable:
            raise self.unreadable

    async def request(self, method: str, path: str, *, body: dict[str, Any]) -> dict[str, Any]:
        assert (method, path) == ("POST", "/apis/authentication.k8s.io/v1/tokenreviews")
        token = body["spec"]["token"]
        self.asked.append(token)
        self.reached.set()
        if self.hold:
            await self.hold.wait()
        if self.fails:
            raise self.fails
        if not token.startswith("good-"):
            return {"status": {"authenticated": False}}
        extra = {f"authentication.kubernetes.io/pod-{key}": [token] for key in ("name", "uid")}
        user = {"username": "system:serviceaccount:prod:default", "extra": extra}
        return {"status": {"authenticated": True, "audiences": body["spec"]["audiences"], "user": user}}


@dataclass
class Running:
    """A server that listens on loopback, and a client."""

    server: Server
    reviewer: Reviewer
    client: aiohttp.ClientSession
    reports: int
    side: int

    def stop_the_clock(self) -> None:
        """Let no time pass for the rates, however long the test takes."""
        self.server._intake._clock = lambda: 1000.0

    async def report(self, token: str | None = "good-1", body: Any = REPORT, **options: Any) -> int:
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        url = f"http://127.0.0.1:{self.reports}/v1/reports"
        async with self.client.post(url, data=data, headers=headers, **options) as answer:
            await answer.read()
            return answer.status

    async def get(self, path: str) -> tuple[int, str]:
        async with self.client.get(f"http://127.0.0.1:{self.side}{path}") as answer:
            return answer.status, await answer.text()

    async def value(self, series: str) -> float | None:
        lines = (await self.get("/metrics"))[1].splitlines()
        return next((float(line.rpartition(" ")[2]) for line in lines if line.rpartition(" ")[0] == series), None)


@asynccontextmanager
async def running(tls: str = "") -> AsyncIterator[Running]:
    reviewer = Reviewer()
    settings = ServerSettings(reports_port=0, metrics_port=0, drain_seconds=0, tls_directory=tls)
    server = Server(settings, reviewer, host="127.0.0.1")  # type: ignore[arg-type]
    reports, side = await server.start()
    try:
        async with aiohttp.ClientSession() as client:
            yield Running(server, reviewer, client, reports, side)
    finally:
        await server.stop()


FIRST = 'preheat_first_answers_total{model="vision",namespace="prod",outcome="hot",reason="Package"}'


async def test_a_report_is_counted() -> None:
    async with running() as here:
        assert await here.report() == 204
        assert await here.report() == 204
        assert await here.value(FIRST) == 2
        assert here.reviewer.asked == ["good-1"], "one question for one token"


async def test_who_is_not_known_is_not_listened_to() -> None:
    async with running() as here:
        assert [await here.report(token) for token in (None, "bad", "bad")] == [401] * 3
        assert here.reviewer.asked == ["bad"]
        assert await here.value(FIRST) is None
        assert await here.value('preheat_reports_refused_total{why="token"}') == 3


@pytest.mark.parametrize(
    "error", [ApiError(status=500, reason="x", message="y"), aiohttp.ClientError(), TimeoutError(), OSError()]
)
async def test_without_the_api_server_the_sender_may_come_again(error: Exception) -> None:
    async with running() as here:
        here.reviewer.fails = error
        assert await here.report() == 503
        here.reviewer.fails = None
        assert await here.report() == 204, "it was not remembered"


async def test_a_wrong_answer_that_cannot_be_noted_is_not_taken_yet() -> None:
    record = {"event": "preheat-mismatch", "module": "main", "bucket": "one", "hardware": "cpu"}
    wrong = {"v": 1, "model": "vision", "records": [record, RECORD]}
    async with running() as here:
        here.reviewer.unreadable = ApiError(status=503, reason="x", message="y")
        assert await here.report(body=wrong) == 503
        assert await here.value(FIRST) is None, "or it would be counted twice"
        here.reviewer.unreadable = None
        assert await here.report(body=wrong) == 204
        assert await here.value(FIRST) == 1
        assert await here.value('preheat_wrong_answers_total{model="vision",namespace="prod"}') == 1


async def test_many_with_one_token_ask_once() -> None:
    async with running() as here:
        here.reviewer.hold = asyncio.Event()
        sent = [asyncio.create_task(here.report()) for _ in range(10)]
        await asyncio.sleep(0.2)
        here.reviewer.hold.set()
        assert await asyncio.gather(*sent) == [204] * 10
        # All that wait at once may have asked; whoever came later did not.
        asked = len(here.reviewer.asked)
        assert await here.report() == 204
        assert len(here.reviewer.asked) == asked


async def test_unknown_tokens_do_not_flood_the_api_server() -> None:
    async with running() as here:
        here.stop_the_clock()
        statuses = [await here.report(f"bad-{number}") for number in range(300)]
        assert statuses == [401] * 200 + [503] * 100
        assert len(here.reviewer.asked) == 200


async def test_a_pod_that_reports_without_end_is_slowed_down() -> None:
    async with running() as here:
        here.server._intake._limits = Limits(pod=Rate(burst=3, per_second=0))
        assert [await here.report("good-loop") for _ in range(5)] == [204, 204, 204, 429, 429]
        assert await here.report("good-other") == 204


@pytest.mark.parametrize("body", [b"", b"{}", b"\x00" * 100, REPORT | {"v": 9}])
async def test_what_is_no_report_is_refused(body: Any) -> None:
    async with running() as here:
        assert await here.report(body=body) == 400
        assert await here.value('preheat_reports_refused_total{why="body"}') == 1


async def test_a_large_body_is_not_read() -> None:
    async with running() as here:
        assert await here.report(body=b" " * 70_000) == 413
        assert await here.report() == 204


async def test_there_is_nothing_else_at_that_port() -> None:
    async with running() as here:
        for path, status in (("/metrics", 404), ("/", 404), ("/v1/reports", 405)):
            async with here.client.get(f"http://127.0.0.1:{here.reports}{path}") as answer:
                assert answer.status == status


async def test_probes() -> None:
    async with running() as here:
        assert [(await here.get(path))[0] for path in ("/healthz", "/readyz")] == [200, 200]
        here.server.ready = False
        assert [(await here.get(path))[0] for path in ("/healthz", "/readyz")] == [200, 503]


async def test_what_was_begun_is_finished_when_it_stops() -> None:
    reviewer = Reviewer(hold=asyncio.Event())
    server = Server(ServerSettings(reports_port=0, metrics_port=0, drain_seconds=0), reviewer, host="127.0.0.1")  # type: ignore[arg-type]
    reports, side = await server.start()
    async with aiohttp.ClientSession() as client:
        here = Running(server, reviewer, client, reports, side)
        sent = asyncio.create_task(here.report())
        await reviewer.reached.wait()
        stopping = asyncio.create_task(server.stop())
        await asyncio.sleep(0.1)
        assert reviewer.hold
        reviewer.hold.set()
        assert await sent == 204
        await stopping
        with pytest.raises(aiohttp.ClientConnectionError):
            await here.report()


def certificate(folder: Path, name: str = "127.0.0.1") -> str:
    """Make tls.crt and tls.key for an address; the certificate."""
    folder.mkdir(exist_ok=True)
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2",
         "-subj", "/CN=x", "-addext", f"subjectAltName=IP:{name}", "-keyout", folder / "tls.key", "-out", folder / "tls.crt"],
        check=True, capture_output=True,
    )  # fmt: skip
    return (folder / "tls.crt").read_text()


async def sent(environ: dict[str, str]) -> Sender:
    counts = [{"float32[2]": 3}]
    sender = Sender(environ, lambda: counts.pop() if counts else {})
    sender.send(RECORD)
    thread = sender._thread
    assert thread is not None
    await asyncio.to_thread(thread.join, 30)
    return sender


@pytest.fixture
def pod(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    monkeypatch.setattr(sending, "DELAY_SECONDS", 0)
    monkeypatch.setattr(sending, "RETRY_SECONDS", ())
    (tmp_path / "token").write_text("good-1")
    return {ENV_REPORTS_TOKEN: str(tmp_path / "token"), "PREHEAT_MODEL": "vision"}


async def test_the_runtime_s_own_sender_over_tls(tmp_path: Path, pod: dict[str, str]) -> None:
    authority = certificate(tmp_path / "tls")
    async with running(tls=str(tmp_path / "tls")) as here:
        sender = await sent(pod | {ENV_REPORTS_URL: f"https://127.0.0.1:{here.reports}", ENV_REPORTS_CA: authority})
        assert sender.dropped == 0
        assert await here.value(FIRST) == 1
        assert (
            await here.value('preheat_uncovered_calls_total{model="vision",namespace="prod",shape="float32[2]"}') == 3
        )


async def test_it_tells_its_token_to_nobody_else(tmp_path: Path, pod: dict[str, str]) -> None:
    certificate(tmp_path / "tls")
    other = certificate(tmp_path / "other")
    async with running(tls=str(tmp_path / "tls")) as here:
        sender = await sent(pod | {ENV_REPORTS_URL: f"https://127.0.0.1:{here.reports}", ENV_REPORTS_CA: other})
        assert (sender.dropped, here.reviewer.asked) == (1, [])
        elsewhere = certificate(tmp_path / "tls", name="127.0.0.2")
        here.server._certificate.load()  # type: ignore[union-attr]
        sender = await sent(pod | {ENV_REPORTS_URL: f"https://127.0.0.1:{here.reports}", ENV_REPORTS_CA: elsewhere})
        assert (sender.dropped, here.reviewer.asked) == (1, [])


async def test_a_renewed_certificate_is_taken_without_a_restart(tmp_path: Path, pod: dict[str, str]) -> None:
    certificate(tmp_path / "tls")
    async with running(tls=str(tmp_path / "tls")) as here:
        renewed = certificate(tmp_path / "tls")
        here.server._certificate.load()  # type: ignore[union-attr]
        assert (
            await sent(pod | {ENV_REPORTS_URL: f"https://127.0.0.1:{here.reports}", ENV_REPORTS_CA: renewed})
        ).dropped == 0


async def test_without_a_certificate_it_does_not_start(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"tls\.crt"):
        Server(ServerSettings(tls_directory=str(tmp_path)), Reviewer())  # type: ignore[arg-type]


def test_settings() -> None:
    assert ServerSettings.from_env({}) == ServerSettings()
    assert ServerSettings.from_env({"PREHEAT_TLS_DIRECTORY": "/tls", "PREHEAT_DRAIN_SECONDS": "0"}).drain_seconds == 0
    with pytest.raises(SettingsError, match="PREHEAT_METRICS_PORT"):
        ServerSettings.from_env({"PREHEAT_METRICS_PORT": "x"})


def test_the_audience_is_preheat_s_own() -> None:
    assert names.REPORTS_AUDIENCE.startswith("preheat.dev/")
