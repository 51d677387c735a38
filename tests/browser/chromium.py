"""A headless browser without any network, told what to do through a pipe.

In a network namespace of its own it cannot even reach loopback, so a page that needs anything but itself fails; and its
protocol needs no library, since over a pipe it is JSON with a zero byte behind each message.
"""

from __future__ import annotations

import json
import os
import select
import subprocess
import time
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from children import die_with_parent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PROGRAM = "chromium-headless-shell"
SECONDS = 60.0


class BrowserError(Exception):
    """The browser refused a command, ended, or was too slow."""


@dataclass
class Browser:
    """One page in one browser; `events` is all that was heard of it, in order."""

    into: int
    out: int
    events: list[dict[str, Any]] = field(default_factory=list)
    _buffer: bytes = b""
    _last: int = 0
    _session: str | None = None

    def attach(self) -> None:
        """Open an empty page and listen to everything about it."""
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network", "Audits"):
            self.call(f"{domain}.enable")

    def open(self, url: str) -> None:
        """Go to `url` and wait until it has loaded."""
        seen = len(self.events)
        self.call("Page.navigate", url=url)
        until = time.monotonic() + SECONDS
        while not any(event["method"] == "Page.loadEventFired" for event in self.events[seen:]):
            self._read(until)
        self.evaluate("document.fonts.ready.then(() => 0)")

    def evaluate(self, expression: str) -> Any:
        """The value of a JavaScript expression, awaited."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise BrowserError(json.dumps(answer["exceptionDetails"]))
        return answer["result"].get("value")

    def call(self, method: str, **params: Any) -> dict[str, Any]:
        """One command and its answer."""
        self._last += 1
        message: dict[str, Any] = {"id": self._last, "method": method, "params": params}
        if self._session is not None:
            message["sessionId"] = self._session
        os.write(self.into, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + SECONDS
        while True:
            answer = self._read(until)
            if answer.get("id") == self._last:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                result: dict[str, Any] = answer["result"]
                return result

    def _read(self, until: float) -> dict[str, Any]:
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.out], [], [], max(until - time.monotonic(), 0))
            data = os.read(self.out, 1 << 20) if ready else b""
            if not data:
                raise BrowserError("the browser ended" if ready else f"no answer within {SECONDS:.0f} s")
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        message: dict[str, Any] = json.loads(line)
        if "method" in message:
            self.events.append(message)
        return message


@contextmanager
def browser(profile: Path, *arguments: str) -> Iterator[Browser]:
    """A browser with an empty profile below `profile`; it is gone afterwards."""
    to_browser, from_us = os.pipe()
    to_us, from_browser = os.pipe()
    words = [
        PROGRAM, "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", f"--user-data-dir={profile}",
        "--window-size=1100,1400", *arguments,
    ]  # fmt: skip
    # The protocol is spoken on descriptors 3 and 4, whatever numbers the pipes have here. (dash knows one digit only.)
    script = f'exec 3<&{to_browser} 4>&{from_browser} && exec "$@"'
    process = subprocess.Popen(
        ["unshare", "--net", "bash", "-c", script, "bash", *words], pass_fds=(to_browser, from_browser),
        stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        preexec_fn=die_with_parent,
    )  # fmt: skip
    for end in (to_browser, from_browser):
        os.close(end)
    try:
        page = Browser(into=from_us, out=to_us)
        page.attach()
        yield page
    finally:
        for end in (from_us, to_us):
            os.close(end)
        # It ends when its pipe does; its helpers with it.
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, 9)
            process.wait()
