"""Sends what the process reports to Preheat's server, when there is one: at leisure, and never to the model's harm.

Why it exists: what a pod says in its log is not counted anywhere. Where the installation takes reports, injection sets
an address and mounts a token that is good for nothing else; elsewhere no thread is started and nothing is imported.

A daemon thread waits a moment, so that first answers are out of the way, sends what has gathered, with a few tries, and
ends. What cannot be sent is dropped and counted; nothing is said of it, since the log has it all. The process never
waits for it, also not at its exit. At a fork it steps aside, because a child inherits the locks of every other thread.
"""

from __future__ import annotations

import os
import random
import threading
import time
from collections import deque
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from .locks import ForkLock
from .variables import ENV_MODEL, ENV_REPORTS_CA, ENV_REPORTS_TOKEN, ENV_REPORTS_URL

if TYPE_CHECKING:
    import http.client
    from collections.abc import Callable, Mapping

#: Records that wait; more are dropped. A process that answers from all its buckets at once has more than a message takes.
MAX_WAITING: Final = 256
#: Records in one message, as many as the server takes.
MAX_RECORDS: Final = 64
#: Seconds from a report to its sending, to leave the first answers alone.
DELAY_SECONDS: Final = 1.0
#: Seconds between two sendings of counts alone.
COUNTS_SECONDS: Final = 60.0
#: Seconds before each further try; then what was to be sent is dropped.
RETRY_SECONDS: Final = (2.0, 10.0, 60.0)
#: Seconds that connecting, and each read, may take.
TIMEOUT_SECONDS: Final = 5.0
_MAX_TOKEN_BYTES: Final = 16384
#: Seconds that a fork waits for the thread to step aside: while it imports (a child could not import the same), and else.
_FORK_WAITS_SECONDS: Final = (1.0, 0.05)


class Sender:
    """Takes records from any thread. Never raises and never waits for the network."""

    def __init__(
        self,
        environ: Mapping[str, str],
        take_counts: Callable[[], dict[str, int]],
        tell: Callable[[list[Mapping[str, object]], Mapping[str, int]], dict[str, Any]] = lambda records, counts: {},
    ) -> None:
        """`take_counts` gives the counts of calls that no bucket is for, by shape, and forgets them.

        `tell` gives what else is to be said with these records and counts; `modules` in it says whose each shape is.
        """
        self._url = environ.get(ENV_REPORTS_URL, "")
        self._token = Path(environ.get(ENV_REPORTS_TOKEN, ""))
        self._ca = environ.get(ENV_REPORTS_CA, "")
        self._model = environ.get(ENV_MODEL, "")
        self._take_counts = take_counts
        self._tell = tell
        self._lock = ForkLock()
        self.enabled = bool(self._url and environ.get(ENV_REPORTS_TOKEN))
        self._begin()
        if self.enabled:
            os.register_at_fork(before=self._pause, after_in_parent=self._resume, after_in_child=self._begin)

    def _begin(self) -> None:
        """As new, also in a forked child: the thread is not in it."""
        self._waiting: deque[Mapping[str, object]] = deque()
        self._paused = threading.Event()
        self._thread: threading.Thread | None = None
        self._importing = False
        self._counts_due = 0.0
        self.dropped = 0

    def send(self, record: Mapping[str, object]) -> None:
        """Have a record sent, some time soon."""
        if not self.enabled:
            return
        with self._lock:
            if len(self._waiting) >= MAX_WAITING:
                self.dropped += 1
                return
            self._waiting.append(record)
            self._start()

    def counted(self) -> None:
        """Have the counts sent, unless they were a moment ago."""
        if self.enabled and self._thread is None and time.monotonic() >= self._counts_due:
            with self._lock:
                self._start()

    def _start(self) -> None:
        """Start the thread when there is none; the lock is held."""
        if self._thread is not None or self._paused.is_set():
            return
        self._thread = threading.Thread(target=self._run, name="preheat-reports", daemon=True)
        try:
            self._thread.start()
        except RuntimeError:  # no more threads, or the interpreter is ending
            self._thread, self.enabled = None, False

    def _pause(self) -> None:
        self._paused.set()
        thread = self._thread
        if thread is not None:
            thread.join(_FORK_WAITS_SECONDS[0] if self._importing else _FORK_WAITS_SECONDS[1])

    def _resume(self) -> None:
        self._paused.clear()
        with self._lock:
            if self._waiting:
                self._start()

    def _run(self) -> None:
        # Not earlier: what is imported and sent takes the interpreter's lock from the first answers.
        self._paused.wait(DELAY_SECONDS)
        if not self._paused.is_set():
            self._importing = True
            try:
                _import()
            except ImportError:  # a Python without ssl
                self.enabled = False
            finally:
                self._importing = False
        while True:
            with self._lock:
                going_on = self.enabled and not self._paused.is_set()
                records = list(islice(self._waiting, MAX_RECORDS)) if going_on else []
                # Where such calls keep coming there are always some; alone they wait for their minute.
                due = going_on and (bool(records) or time.monotonic() >= self._counts_due)
                counts = self._take_counts() if due else {}
                if not (records or counts):
                    self._thread = None
                    return
                for _ in records:
                    self._waiting.popleft()
            self._counts_due = time.monotonic() + COUNTS_SECONDS
            self._deliver(records, counts)

    def _deliver(self, records: list[Mapping[str, object]], counts: Mapping[str, int]) -> None:
        import json

        more = self._told(records, counts)
        modules = more.pop("modules", {})
        uncovered = [
            {"shape": shape, "count": count, **({"module": modules[shape]} if shape in modules else {})}
            for shape, count in counts.items()
        ]
        message = {
            "v": 1, "model": self._model, "records": records, "uncovered": uncovered, "dropped": self.dropped, **more,
        }  # fmt: skip
        body = json.dumps(message).encode()
        for wait in (*RETRY_SECONDS, None):
            try:
                status = post(self._url, body, token=_read_token(self._token), ca=self._ca)
            except Exception:  # whatever it is: there is nobody to tell
                status = 0
            if 200 <= status < 300:
                return
            if wait is None or not (status in (0, 408, 429) or status >= 500):
                break
            # Not all pods of a roll-out at the same moment.
            if self._paused.wait(wait * random.uniform(0.5, 1.5)):  # noqa: S311
                with self._lock:
                    self._waiting.extendleft(reversed(records))
                return
        self.dropped += len(records)

    def _told(self, records: list[Mapping[str, object]], counts: Mapping[str, int]) -> dict[str, Any]:
        try:
            return self._tell(records, counts)
        except Exception:  # a driver that does not answer, say: the rest is worth sending
            return {}


def _import() -> None:
    """What sending needs; most of it is there already in most processes."""
    import urllib.parse  # noqa: F401


def post(url: str, body: bytes, *, token: str, ca: str) -> int:
    """POST a message; the status of the answer. Raises what the network and TLS raise.

    Straight to the address: a proxy that the environment names is for the model's own traffic.
    """
    from urllib.parse import urlsplit

    address = urlsplit(url)
    headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/json"}
    connection = _connect(address.scheme, address.hostname or "", address.port, ca)
    try:
        connection.request("POST", f"{address.path.rstrip('/')}/v1/reports", body=body, headers=headers)
        return connection.getresponse().status
    finally:
        connection.close()


def _connect(scheme: str, host: str, port: int | None, ca: str) -> http.client.HTTPConnection:
    import http.client

    if scheme != "https":
        return http.client.HTTPConnection(host, port, timeout=TIMEOUT_SECONDS)
    import ssl

    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    if ca:
        context.load_verify_locations(cadata=ca)
    else:
        context.load_default_certs()
    return http.client.HTTPSConnection(host, port, timeout=TIMEOUT_SECONDS, context=context)


def _read_token(path: Path) -> str:
    # Anew each time: the kubelet replaces it before it runs out.
    with path.open(encoding="ascii") as file:
        return file.read(_MAX_TOKEN_BYTES).strip()
