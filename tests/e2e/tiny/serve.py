"""The smallest service around a compiled model: POST /run with 64 float32 values; POST /crash ends it."""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

STARTED = time.perf_counter()

import tiny_version  # noqa: E402, F401  (found through the PYTHONPATH that the image sets)
import torch  # noqa: E402
from model import load  # noqa: E402

model = load()
if os.environ.get("COMPILE", "1") == "1":
    model = torch.compile(model)
ready = threading.Event()


def run(x: torch.Tensor) -> dict[str, object]:
    with torch.inference_mode():
        before = time.perf_counter()
        answer = model(x)[0]
        seconds = time.perf_counter() - before
        return {"answer": answer.tolist(), "seconds": seconds, "pod": os.environ.get("HOSTNAME", "")}


class Handler(BaseHTTPRequestHandler):
    def answer(self, status: int, body: object) -> None:
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_GET(self) -> None:
        self.answer(200 if ready.is_set() else 503, {})

    def do_POST(self) -> None:
        if self.path == "/crash":
            ctypes.string_at(0)  # SIGSEGV
        body = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, run(torch.frombuffer(bytearray(body), dtype=torch.float32).reshape(-1, 64)))

    def log_message(self, *_: object) -> None:
        pass


signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
server = ThreadingHTTPServer(("0.0.0.0", 8080), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
before = time.perf_counter()
run(torch.zeros(1, 64))
now = time.perf_counter()
print(
    json.dumps({"event": "ready", "first_answer_seconds": now - before, "since_start_seconds": now - STARTED}),
    flush=True,
)
ready.set()
threading.Event().wait()
