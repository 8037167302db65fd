"""The inside of the proxy process: sockets, the fault they suffer, and delayed replies."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections import deque
from typing import Literal, TypedDict, cast

from bench.timers import Alarm

HOST = "127.0.0.1"
# Enough for a demo's slow replies; older ones are forgotten, so that memory is bounded.
KEPT_DELAYS = 100_000

Fault = Literal["none", "delay", "stall", "cut"]


class Order(TypedDict, total=False):
    """What the parent asks for; ``do`` is a fault, ``"undo"`` is ``"none"``."""

    do: Fault | Literal["stats"]
    delay: float
    jitter: float


class ProxyStats(TypedDict):
    """What the proxy really did since it started, durations in seconds.

    ``delays`` are measured from the arrival of a reply to its departure; oldest first.
    """

    messages: int
    connections: int
    delays: list[float]


class Pipe(asyncio.Protocol):
    """One of the two sockets of a proxied connection; forwards what it reads to its peer."""

    def __init__(self, proxy: Forwarder, peer: Pipe | None = None) -> None:
        self._proxy = proxy
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        # Replies not yet due: when each may leave, when it came, its bytes.
        self._waiting: deque[tuple[float, float, bytes]] = deque()
        self._is_reply_path = peer is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look for the other side: connect to the upstream, or tell the peer that we are it."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        self._proxy.pipes.add(self)
        if self._proxy.fault == "stall":
            self.transport.pause_reading()
        if self.peer is None:
            self._proxy.connect_upstream(self)
        else:
            self.peer.peer = self
            self.peer.send_early()

    def data_received(self, data: bytes) -> None:
        """Pass on what came, at once or, for a delayed reply, in its time."""
        self._proxy.messages += 1
        if self._is_reply_path and (self._proxy.fault == "delay" or self._waiting):
            self._hold(data)
        elif self.peer is None or self.peer.transport is None:
            self._early.append(data)
        else:
            _write(self.peer.transport, data)

    def connection_lost(self, error: Exception | None) -> None:
        """End the other side too."""
        self._proxy.pipes.discard(self)
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def reset(self) -> None:
        """End this side with a RST, as a dead server's kernel would, and not with a FIN."""
        if self.transport is not None:
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def send_early(self) -> None:
        """Send what came before the upstream connection was there."""
        if self._early and self.peer is not None and self.peer.transport is not None:
            _write(self.peer.transport, b"".join(self._early))
            self._early.clear()

    def flush(self) -> None:
        """Send the replies that are due, unless stalled; a later call sends the rest."""
        if self._proxy.fault == "stall" or self.peer is None or self.peer.transport is None:
            return
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, came_at, data = self._waiting.popleft()
            _write(self.peer.transport, data)
            self._proxy.delays.append(now - came_at)

    def _hold(self, data: bytes) -> None:
        now = time.monotonic()
        due_at = now + self._proxy.draw_delay()
        if self._waiting:
            due_at = max(due_at, self._waiting[-1][0])
        self._waiting.append((due_at, now, data))
        self._proxy.alarm.at(due_at, self.flush)


def _write(transport: asyncio.Transport, data: bytes) -> None:
    """Write, unless the other side has gone meanwhile."""
    if not transport.is_closing():
        transport.write(data)


class Forwarder:
    """All connections of the proxy process and the fault they suffer."""

    def __init__(self, upstream: tuple[str, int], *, seed: int) -> None:
        self.loop = asyncio.get_running_loop()
        self.alarm = Alarm(self.loop)
        self.fault: Fault = "none"
        self.pipes: set[Pipe] = set()
        self.messages = 0
        self.delays: deque[float] = deque(maxlen=KEPT_DELAYS)
        self._upstream = upstream
        self._delay = self._jitter = 0.0
        self._rng = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._port = 0

    async def listen(self) -> int:
        """Accept connections; return the port, which is the same every time."""
        self._server = await self.loop.create_server(
            lambda: Pipe(self), HOST, self._port, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]
        return self._port

    def connect_upstream(self, pipe: Pipe) -> None:
        """Connect a new client's pipe to the upstream, or reset it when that refuses."""
        task = self.loop.create_task(self._connect_upstream(pipe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_upstream(self, pipe: Pipe) -> None:
        try:
            await self.loop.create_connection(lambda: Pipe(self, pipe), *self._upstream)
        except OSError:
            pipe.reset()

    def draw_delay(self) -> float:
        """Return the seconds by which to hold back one reply."""
        return self._rng.uniform(self._delay - self._jitter, self._delay + self._jitter)

    async def obey(self, order: Order) -> ProxyStats:
        """Do what the parent asks and return what has happened so far."""
        wanted = order["do"]
        if wanted != "stats":
            await self._change(wanted, order.get("delay", 0.0), order.get("jitter", 0.0))
        return {
            "messages": self.messages,
            "connections": len(self.pipes) // 2,
            "delays": list(self.delays) if wanted == "stats" else [],
        }

    async def _change(self, fault: Fault, delay: float, jitter: float) -> None:
        if self.fault == "cut" and fault != "cut":
            await self.listen()
        self.fault, self._delay, self._jitter = fault, delay, jitter
        if fault == "cut" and self._server is not None:
            self._server.close()
        for pipe in list(self.pipes):
            if pipe.transport is None:
                continue
            if fault == "cut":
                pipe.reset()
            elif fault == "stall":
                pipe.transport.pause_reading()
            else:
                pipe.transport.resume_reading()
                pipe.flush()
