"""A small HTTP service around the pitch tracker: load, torch.compile, warm up, serve.

POST /pitch with 1024 float32 samples (little endian, 16 kHz) answers the frequency in Hz. GET /readyz is 200 once the
first answer has been computed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STARTED = time.perf_counter()

import torch  # noqa: E402  (its import is part of what a cold start costs, so it is timed)

IMPORTED = time.perf_counter()

from model import FRAME, frequency, load, normalise, sine  # noqa: E402


class Service:
    """The model and whether it has answered once."""

    def __init__(self) -> None:
        model = load()
        self.model = torch.compile(model) if os.environ.get("COMPILE", "1") == "1" else model
        self.ready = threading.Event()
        self.first: dict[str, float] = {}

    def warm_up(self) -> None:
        """Compute one answer before traffic comes."""
        before = time.perf_counter()
        self.pitch(sine(440))
        now = time.perf_counter()
        self.first = {
            "first_answer_seconds": now - before,
            "since_import_seconds": now - IMPORTED,
            "since_start_seconds": now - STARTED,
        }
        print(json.dumps({"event": "ready", **self.first}), flush=True)
        self.ready.set()

    def pitch(self, frame: torch.Tensor) -> dict[str, float]:
        """Answer the frequency of one frame."""
        frames = normalise(frame)[None]
        with torch.inference_mode():
            before = time.perf_counter()
            activation = self.model(frames)[0]
            seconds = time.perf_counter() - before
        return {"hertz": frequency(activation), "confidence": float(activation.max()), "seconds": seconds}


def handler(service: Service) -> type[BaseHTTPRequestHandler]:
    """Make the request handler for `service`."""

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def answer(self, status: int, body: object) -> None:
            data = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def do_GET(self) -> None:
            if self.path == "/readyz":
                self.answer(200 if service.ready.is_set() else 503, service.first)
            else:
                self.answer(404, {"error": "GET /readyz or POST /pitch"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            if self.path != "/pitch" or len(body) != 4 * FRAME:
                self.answer(400, {"error": f"POST /pitch with {4 * FRAME} bytes: {FRAME} float32 samples at 16 kHz"})
                return
            self.answer(200, service.pitch(torch.frombuffer(bytearray(body), dtype=torch.float32)))

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def main() -> None:
    """Serve on port 8080 until stopped."""
    # The first process of a container ignores SIGTERM unless it says what to do.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    service = Service()
    server = ThreadingHTTPServer(("0.0.0.0", 8080), handler(service))  # noqa: S104
    threading.Thread(target=server.serve_forever, daemon=True).start()
    service.warm_up()
    threading.Event().wait()


if __name__ == "__main__":
    main()
