"""What no real server does on demand: to listen where nobody should call, and to lie."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from io import BufferedIOBase
from types import TracebackType
from typing import Self, TypeAlias

from bench.servers.redis import RedisNode

HOST = "127.0.0.1"
IDLE = 30.0
"""Seconds without a word after which a connection is given up."""

Request: TypeAlias = list[str]
Lie: TypeAlias = Callable[[Request], bytes | None]


class Stranger:
    """An address outside the cluster, which takes note of what it is told; a context manager."""

    def __init__(self) -> None:
        self._socket = socket.create_server((HOST, 0))
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self.endpoint = f"{HOST}:{self.port}"

    def heard(self) -> list[bytes]:
        """Return what each caller has said since the last time, be it nothing."""
        said: list[bytes] = []
        while True:
            try:
                caller, _ = self._socket.accept()
            except BlockingIOError:
                return said
            with caller:
                caller.setblocking(False)
                try:
                    said.append(caller.recv(4096))
                except BlockingIOError:
                    said.append(b"")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._socket.close()


class Liar:
    """A server, except for the requests that `lie` has an answer to; a context manager.

    Args:
        node: the real one behind it.
    """

    host = HOST

    def __init__(self, node: RedisNode) -> None:
        outer = self

        class Handler(socketserver.StreamRequestHandler):
            timeout = IDLE

            def handle(self) -> None:
                outer._sockets.append(self.connection)
                with suppress(OSError):
                    outer._serve(self.rfile, self.wfile)

        self.node = node
        self.requests: list[Request] = []
        self.lie: Lie = lambda request: None
        self._sockets: list[socket.socket] = []
        self._server = socketserver.ThreadingTCPServer((HOST, 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.02,))
        self.port: int = self._server.server_address[1]
        self.endpoint = f"{HOST}:{self.port}"

    def _serve(self, incoming: BufferedIOBase, outgoing: BufferedIOBase) -> None:
        address = (HOST, self.node.port)
        with (
            socket.create_connection(address, timeout=IDLE) as connection,
            connection.makefile("rb") as replies,
        ):
            while raw := _reply(incoming):  # a request looks like a reply
                request = [part.decode(errors="replace") for part in raw.split(b"\r\n")[2::2]]
                self.requests.append(request)
                answer = self.lie(request)
                if answer is None:
                    connection.sendall(raw)
                    answer = _reply(replies)
                outgoing.write(answer)
                outgoing.flush()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._server.shutdown()
        self._thread.join()
        for each in self._sockets:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
        self._server.server_close()

    def count(self, command: str) -> int:
        """Return how often `command` was asked for."""
        return sum(request[0].upper() == command for request in list(self.requests))


def encode(value: object) -> bytes:
    """Return a value as a RESP3 reply: None, int, str, or a sequence of them."""
    if value is None:
        return b"_\r\n"
    if isinstance(value, int):
        return b":%d\r\n" % value
    if isinstance(value, str):
        return b"$%d\r\n%s\r\n" % (len(value), value.encode())
    assert isinstance(value, Sequence)
    return b"*%d\r\n" % len(value) + b"".join(map(encode, value))


def _reply(stream: BufferedIOBase) -> bytes:
    """Read one reply, RESP2 or RESP3, and return its bytes; none at the end of the stream."""
    line = stream.readline()
    kind, size = line[:1], line[1:-2]
    if kind in (b"$", b"=", b"!") and int(size) >= 0:
        return line + stream.read(int(size) + 2)
    if kind in (b"*", b"~", b">", b"%"):
        count = max(0, int(size)) * (2 if kind == b"%" else 1)
        return line + b"".join(_reply(stream) for _ in range(count))
    return line
