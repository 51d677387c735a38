"""A small HTTP service around the classifier, as one writes it: load, torch.compile, warm up, serve.

POST /classify with 3x224x224 float32 values (little endian) answers the five best classes. GET /readyz is 200 once the
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

from model import load  # noqa: E402

SHAPE = (1, 3, 224, 224)


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
        self.classify(torch.zeros(SHAPE))
        now = time.perf_counter()
        self.first = {
            "first_answer_seconds": now - before,
            "since_import_seconds": now - IMPORTED,
            "since_start_seconds": now - STARTED,
        }
        print(json.dumps({"event": "ready", **self.first}), flush=True)
        self.ready.set()

    def classify(self, image: torch.Tensor) -> dict[str, object]:
        """Answer the five best classes with their logits."""
        with torch.inference_mode():
            before = time.perf_counter()
            logits = self.model(image)[0]
            seconds = time.perf_counter() - before
        values, classes = logits.topk(5)
        return {"classes": classes.tolist(), "logits": values.tolist(), "seconds": seconds}


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
                self.answer(404, {"error": "GET /readyz or POST /classify"})

        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
            expected = 4 * torch.Size(SHAPE).numel()
            if self.path != "/classify" or len(body) != expected:
                self.answer(400, {"error": f"POST /classify with {expected} bytes: float32 of shape {SHAPE}"})
                return
            image = torch.frombuffer(bytearray(body), dtype=torch.float32).reshape(SHAPE)
            self.answer(200, service.classify(image))

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
