"""The server process: takes pods' reports of how they were served, and serves what it counted of them.

Why it exists: whether a fleet starts hot is asked of a dashboard, not of a thousand logs; and a revision that answers wrong
is taken back by the controller, which learns of it from the pods that the server notes it on. It has no state to lose:
with all replicas down, pods start and answer as before, and their logs say the same. Two ports: one that pods talk to
(TLS, a token), one for Prometheus and the kubelet. Beside that it lets pods go on whose wait is over, so that this
does not hang on the controller alone.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, disable_created_metrics, generate_latest

from preheat_operator.answers.intake import Intake
from preheat_operator.answers.metrics import Metrics
from preheat_operator.api import names
from preheat_operator.cluster.client import connect
from preheat_operator.cluster.overdue import Overdue
from preheat_operator.settings import ServerSettings, SettingsError

if TYPE_CHECKING:
    from preheat_operator.cluster.client import Api

_LOG: Final = logging.getLogger(__name__)
_RELOAD_SECONDS: Final = 60.0
_SHUTDOWN_SECONDS: Final = 10.0


class Server:
    """Both listeners, between `start` and `stop`."""

    def __init__(self, settings: ServerSettings, api: Api, *, host: str | None = None) -> None:
        """`host` is the address to listen at; None means all, IPv4 and IPv6."""
        self._settings = settings
        self._host = host
        self._metrics = Metrics()
        self._intake = Intake(api=api, metrics=self._metrics, audience=names.REPORTS_AUDIENCE)
        self._runners: list[web.AppRunner] = []
        self._certificate = Certificate(settings.tls_directory) if settings.tls_directory else None
        self._overdue = Overdue(api=api)
        self._tasks: list[asyncio.Task[None]] = []
        self.ready = False

    async def start(self) -> tuple[int, int]:
        """Listen; the ports for reports and for metrics. Raises OSError, also for a certificate that cannot be read."""
        context = self._certificate.context if self._certificate else None
        reports = await self._listen(self._intake.application(), self._settings.reports_port, context)
        metrics = await self._listen(self._side(), self._settings.metrics_port, None)
        self._tasks.append(asyncio.create_task(self._intake.notes.run()))
        if self._certificate:
            self._tasks.append(asyncio.create_task(self._certificate.keep_fresh()))
        self._tasks.append(asyncio.create_task(self._overdue.run()))
        self.ready = True
        return reports, metrics

    async def _listen(self, application: web.Application, port: int, context: ssl.SSLContext | None) -> int:
        runner = web.AppRunner(application, access_log=None, shutdown_timeout=_SHUTDOWN_SECONDS, keepalive_timeout=15)
        await runner.setup()
        self._runners.append(runner)
        await web.TCPSite(runner, self._host, port, ssl_context=context).start()
        return int(runner.addresses[0][1])

    def _side(self) -> web.Application:
        application = web.Application()
        application.router.add_get("/metrics", self._exposed)
        application.router.add_get("/healthz", self._healthy)
        application.router.add_get("/readyz", self._is_ready)
        return application

    async def _exposed(self, _: web.Request) -> web.Response:
        return web.Response(body=generate_latest(self._metrics.registry), headers={"Content-Type": CONTENT_TYPE_LATEST})

    async def _healthy(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def _is_ready(self, _: web.Request) -> web.Response:
        return web.Response(text="ok\n") if self.ready else web.Response(status=503, text="stopping\n")

    async def stop(self) -> None:
        """Be unready, take what still comes for a while, finish what was begun."""
        self.ready = False
        await asyncio.sleep(self._settings.drain_seconds)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for runner in self._runners:
            await runner.cleanup()


class Certificate:
    """The certificate in a folder, as the kubelet keeps it: read again when it was renewed."""

    def __init__(self, directory: str) -> None:
        """Raises OSError."""
        self._files = (Path(directory) / "tls.crt", Path(directory) / "tls.key")
        self.context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._loaded = b""
        self.load()

    def load(self) -> None:
        """Take the files when they are others than before; connections made from now on get them. Raises OSError."""
        found = b"".join(file.read_bytes() for file in self._files)
        if found != self._loaded:
            self.context.load_cert_chain(*self._files)
            self._loaded = found

    async def keep_fresh(self) -> None:
        """Look again, for ever."""
        while True:
            await asyncio.sleep(_RELOAD_SECONDS)
            try:
                self.load()
            except OSError as error:
                _LOG.warning("the renewed certificate cannot be used: %s", error)


async def run(settings: ServerSettings) -> None:
    """Serve until a signal ends it. Raises OSError when it cannot listen."""
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopped.set)
    async with connect(manager="preheat-server") as api:
        server = Server(settings, api)
        try:
            ports = await server.start()
            _LOG.info("reports at port %d, metrics at port %d", *ports)
            await stopped.wait()
        finally:
            with contextlib.suppress(asyncio.CancelledError):
                await server.stop()


def main() -> int:
    """Entry point; answers the exit code."""
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    disable_created_metrics()  # type: ignore[no-untyped-call]
    try:
        settings = ServerSettings.from_env(os.environ)
    except SettingsError as error:
        _LOG.error("%s", error)
        return 2
    try:
        asyncio.run(run(settings))
    except OSError as error:
        _LOG.error("it cannot listen, or has no usable certificate: %s", error)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
