"""How many reads each server executed, by its own counters and not by the client's books."""

from __future__ import annotations

import contextlib
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Self, cast

from bench.servers.redis import RedisNode

# Seconds that a server may take to answer; a frozen one must not be asked.
TIMEOUT = 5.0


@dataclass(frozen=True, slots=True)
class CallCounts:
    """Calls per endpoint since its start, at a time of ``time.perf_counter``."""

    at: float
    calls: dict[str, int]


@dataclass(slots=True)
class CallCounter:
    """Reads INFO commandstats over one raw connection per server.

    Raw, and parsed only when asked for, because it runs beside a measurement: a sample costs some
    tens of microseconds of the interpreter instead of a millisecond.

    Attributes:
        nodes: The servers.
        commands: Lower-case names of the commands whose calls are added up.
    """

    nodes: Sequence[RedisNode]
    commands: Sequence[str] = ("get",)
    _sockets: dict[str, socket.socket] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for node in self.nodes:
            connection = socket.create_connection((node.host, node.port), timeout=TIMEOUT)
            self._sockets[node.endpoint] = connection
        return self

    def __exit__(self, *_: object) -> None:
        for connection in self._sockets.values():
            connection.close()

    def read(self) -> CallCounts:
        """Return the counts of now."""
        return self._parse(*self._ask())

    @contextlib.contextmanager
    def sampling(self, interval: float) -> Iterator[list[CallCounts]]:
        """Count every ``interval`` seconds; the list is filled when the block ends."""
        raw: list[tuple[float, dict[str, bytes]]] = []
        stop = threading.Event()

        def sample() -> None:
            while not stop.wait(interval):
                raw.append(self._ask())

        counts: list[CallCounts] = []
        thread = threading.Thread(target=sample, daemon=True)
        thread.start()
        try:
            yield counts
        finally:
            stop.set()
            thread.join()
            counts.extend(self._parse(at, replies) for at, replies in raw)

    def _ask(self) -> tuple[float, dict[str, bytes]]:
        at = time.perf_counter()
        return at, {endpoint: _info(connection) for endpoint, connection in self._sockets.items()}

    def _parse(self, at: float, replies: dict[str, bytes]) -> CallCounts:
        names = "|".join(map(re.escape, self.commands)).encode()
        pattern = re.compile(rb"^cmdstat_(?:" + names + rb"):calls=(\d+)", re.MULTILINE)
        return CallCounts(at, {e: sum(map(int, pattern.findall(r))) for e, r in replies.items()})


def calls_between(before: CallCounts, after: CallCounts) -> dict[str, int]:
    """Return the calls per endpoint between two counts."""
    return {endpoint: calls - before.calls[endpoint] for endpoint, calls in after.calls.items()}


@contextlib.contextmanager
def logging_every_read(nodes: Sequence[RedisNode], *, limit: int) -> Iterator[None]:
    """Let each server log, inside, every command with its arguments, up to ``limit`` each.

    It is the slow log with a threshold of zero: exact, and it costs the client nothing.
    """
    for node in nodes:
        node.ask("CONFIG", "SET", "slowlog-max-len", limit, "slowlog-log-slower-than", 0)
    try:
        yield
    finally:
        for node in nodes:
            node.ask("CONFIG", "SET", "slowlog-log-slower-than", -1)


def logged_reads(nodes: Sequence[RedisNode]) -> dict[str, str]:
    """Return the endpoint that executed GET of each key, by the servers' logs."""
    endpoints: dict[str, str] = {}
    for node in nodes:
        for entry in cast("list[list[Any]]", node.ask("SLOWLOG", "GET", -1)):
            name, *arguments = entry[3]
            if name.lower() == "get":
                endpoints[arguments[0]] = node.endpoint
    return endpoints


def _info(connection: socket.socket) -> bytes:
    connection.sendall(b"INFO commandstats\r\n")
    reply = b""
    expected: int | None = None
    while expected is None or len(reply) < expected:
        chunk = connection.recv(65536)
        if not chunk:
            raise ConnectionError("the server closed the connection of the counter")
        reply += chunk
        if expected is None and b"\r\n" in reply:
            header = reply[: reply.index(b"\r\n")]
            expected = len(header) + 2 + int(header[1:]) + 2
    return reply
