"""A TCP proxy on loopback that is slow, cuts connections, or swallows everything, as networks do."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@dataclass
class Behaviour:
    """How answers are passed on; may be changed while connections are open."""

    bytes_per_second: int = 0
    cut_after: int = 0
    cuts_left: int = 0
    swallow: bool = False


@contextlib.contextmanager
def proxy(port: int, behaviour: Behaviour) -> Iterator[str]:
    """Serve on a loopback port, passing on to `port`; yields the endpoint."""
    stop = threading.Event()
    threads: list[threading.Thread] = []
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.1)

        def accept() -> None:
            while not stop.is_set():
                try:
                    client, _ = listener.accept()
                except TimeoutError:
                    continue
                thread = threading.Thread(target=_serve, args=(client, port, behaviour, stop))
                thread.start()
                threads.append(thread)

        acceptor = threading.Thread(target=accept)
        acceptor.start()
        try:
            yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        finally:
            stop.set()
            acceptor.join()
            for thread in threads:
                thread.join()


def _serve(client: socket.socket, port: int, behaviour: Behaviour, stop: threading.Event) -> None:
    with client, socket.create_connection(("127.0.0.1", port)) as server:
        back = threading.Thread(target=_answers, args=(server, client, behaviour, stop))
        back.start()
        _pump(client, server, stop)
        back.join()


def _pump(source: socket.socket, target: socket.socket, stop: threading.Event) -> None:
    source.settimeout(0.1)
    while not stop.is_set():
        try:
            data = source.recv(65536)
            if not data:
                break
            target.sendall(data)
        except TimeoutError:
            continue
        except OSError:
            break
    with contextlib.suppress(OSError):
        target.shutdown(socket.SHUT_WR)


def _answers(server: socket.socket, client: socket.socket, behaviour: Behaviour, stop: threading.Event) -> None:
    passed = 0
    server.settimeout(0.1)
    while not stop.is_set():
        size = min(65536, max(1, behaviour.bytes_per_second // 20)) if behaviour.bytes_per_second else 65536
        try:
            data = server.recv(size)
            if not data:
                break
            if behaviour.swallow:
                continue
            if behaviour.bytes_per_second:
                time.sleep(len(data) / behaviour.bytes_per_second)
            client.sendall(data)
        except TimeoutError:
            continue
        except OSError:
            break
        passed += len(data)
        if behaviour.cut_after and behaviour.cuts_left > 0 and passed > behaviour.cut_after:
            behaviour.cuts_left -= 1
            break
    for end in (client, server):
        with contextlib.suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
