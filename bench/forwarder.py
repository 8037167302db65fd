"""The inside of the proxy process: sockets, the fault they suffer, and delayed messages."""

from __future__ import annotations

import asyncio
import random
import socket
import struct
import time
from collections import deque
from typing import Literal, TypedDict, cast

from bench.sockets import belongs_to
from bench.timers import Alarm

# Seconds between two attempts to reach a server.
RETRY_EVERY = 0.02
# Enough for a demo's slow messages; older ones are forgotten, so that memory is bounded.
KEPT_DELAYS = 100_000

Fault = Literal["none", "delay", "stall", "cut"]


class Order(TypedDict, total=False):
    """What the parent asks for; ``do`` is a fault, ``"undo"`` is ``"none"``.

    ``open`` makes a link and needs ``upstream``, ``host``, ``port``, ``seed`` and ``patience``; all
    else names the ``link``, by the order in which they were opened.
    """

    link: int
    do: Fault | Literal["open", "stats", "refuse"]
    delay: float
    jitter: float
    request_delay: float
    request_jitter: float
    pids: list[int]
    upstream: tuple[str, int]
    host: str
    port: int
    seed: int
    patience: float


class ProxyStats(TypedDict):
    """What the proxy really did since it started, durations in seconds.

    ``delays`` are measured from the arrival of a reply to its departure, ``request_delays``
    likewise; oldest first.
    """

    port: int
    messages: int
    connections: int
    delays: list[float]
    request_delays: list[float]


class Pipe(asyncio.Protocol):
    """One of the two sockets of a proxied connection; forwards what it reads to its peer."""

    def __init__(self, proxy: Forwarder, peer: Pipe | None = None) -> None:
        self._proxy = proxy
        self.peer = peer
        self.transport: asyncio.Transport | None = None
        self._early: list[bytes] = []
        # Messages not yet due: when each may leave, when it came, its bytes.
        self._waiting: deque[tuple[float, float, bytes]] = deque()
        self.is_reply_path = peer is not None
        self._has_ended = False

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Look for the other side: connect to the upstream, or tell the peer that we are it."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.get_extra_info("socket").setsockopt(
            socket.IPPROTO_TCP, socket.TCP_NODELAY, 1
        )
        self._proxy.pipes.add(self)
        if self._proxy.fault == "stall":
            self.transport.pause_reading()
        if self._proxy.refuses(self):
            self.reset()
        elif self.peer is None:
            self._proxy.connect_upstream(self)
        else:
            self.peer.peer = self
            self.peer.send_early()

    def data_received(self, data: bytes) -> None:
        """Pass on what came, at once or, if delayed, in its time."""
        self._proxy.messages += 1
        if self._waiting or self._proxy.delays_path(self.is_reply_path):
            self._hold(data)
        elif self.peer is None or self.peer.transport is None:
            self._early.append(data)
        else:
            _write(self.peer.transport, data)

    def connection_lost(self, error: Exception | None) -> None:
        """End the other side too, after what is still on its way to it."""
        self._proxy.pipes.discard(self)
        self._has_ended = True
        if not self._waiting:
            self._end_peer()

    def reset(self) -> None:
        """End this side with a RST, as a dead server's kernel would, and not with a FIN."""
        if self.transport is not None and not self.transport.is_closing():
            connection = self.transport.get_extra_info("socket")
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self.transport.abort()

    def send_early(self) -> None:
        """Send what came before the upstream connection was there."""
        if self._early and self.peer is not None and self.peer.transport is not None:
            _write(self.peer.transport, b"".join(self._early))
            self._early.clear()
        self.flush()

    def flush(self) -> None:
        """Send the messages that are due, unless stalled; a later call sends the rest."""
        if self._proxy.fault == "stall" or self.peer is None or self.peer.transport is None:
            return
        now = time.monotonic()
        while self._waiting and self._waiting[0][0] <= now:
            _, came_at, data = self._waiting.popleft()
            _write(self.peer.transport, data)
            self._proxy.delays[self.is_reply_path].append(now - came_at)
        if self._has_ended and not self._waiting:
            self._end_peer()

    def _end_peer(self) -> None:
        if self.peer is not None and self.peer.transport is not None:
            self.peer.transport.close()

    def _hold(self, data: bytes) -> None:
        now = time.monotonic()
        due_at = now + self._proxy.draw_delay(self.is_reply_path)
        if self._waiting:
            due_at = max(due_at, self._waiting[-1][0])
        self._waiting.append((due_at, now, data))
        self._proxy.alarm.at(due_at, self.flush)


def _write(transport: asyncio.Transport, data: bytes) -> None:
    """Write, unless the other side has gone meanwhile."""
    if not transport.is_closing():
        transport.write(data)


class Forwarder:
    """All connections of one link and the fault they suffer.

    Args:
        upstream: Host and port of the server.
        alarm: Of the running event loop.
        host: Where the link listens; the host of the server when None.
        port: Where the link listens; any free port when 0.
        seed: Decides the jitter.
        patience: Seconds for which to go on trying to connect to a server that refuses.
    """

    def __init__(
        self,
        upstream: tuple[str, int],
        alarm: Alarm,
        *,
        host: str | None = None,
        port: int = 0,
        seed: int = 0,
        patience: float = 0.0,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.alarm = alarm
        self.fault: Fault = "none"
        self.pipes: set[Pipe] = set()
        self.messages = 0
        # By whether the message was a reply.
        self.delays: dict[bool, deque[float]] = {
            is_reply: deque(maxlen=KEPT_DELAYS) for is_reply in (False, True)
        }
        self._upstream = upstream
        # By whether the message is a reply: seconds, and how much more or less at most.
        self._delays = dict.fromkeys((False, True), (0.0, 0.0))
        self._refused: frozenset[int] = frozenset()
        self._rng = random.Random(seed)
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[None]] = set()
        self._host = host or upstream[0]
        self._port = port
        self._patience = patience

    async def listen(self) -> None:
        """Accept connections, on the same port every time."""
        self._server = await self.loop.create_server(
            lambda: Pipe(self), self._host, self._port, reuse_address=True
        )
        self._port = self._server.sockets[0].getsockname()[1]

    def refuses(self, pipe: Pipe) -> bool:
        """Return whether the other end of a pipe is in a process that is refused."""
        if not self._refused or pipe.is_reply_path or pipe.transport is None:
            return False
        port = pipe.transport.get_extra_info("peername")[1]
        return belongs_to(self._refused, port, self._port)

    def connect_upstream(self, pipe: Pipe) -> None:
        """Connect a new client's pipe to the upstream, or reset it when that refuses."""
        task = self.loop.create_task(self._connect_upstream(pipe))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _connect_upstream(self, pipe: Pipe) -> None:
        until = time.monotonic() + self._patience
        while pipe in self.pipes:
            try:
                await self.loop.create_connection(lambda: Pipe(self, pipe), *self._upstream)
            except OSError:
                if time.monotonic() >= until:
                    pipe.reset()
                    return
                await asyncio.sleep(RETRY_EVERY)
            else:
                return

    def delays_path(self, is_reply: bool) -> bool:
        """Return whether replies, or requests, are held back now."""
        return self.fault == "delay" and (is_reply or self._delays[False][0] > 0)

    def draw_delay(self, is_reply: bool) -> float:
        """Return the seconds by which to hold back one message."""
        delay, jitter = self._delays[is_reply]
        return self._rng.uniform(delay - jitter, delay + jitter) if jitter else delay

    async def obey(self, order: Order) -> ProxyStats:
        """Do what the parent asks and return what has happened so far."""
        wanted = order["do"]
        if wanted == "refuse":
            self._refuse(frozenset(order["pids"]))
        elif wanted == "open":
            await self.listen()
        elif wanted != "stats":
            await self._change(wanted, order)
        asked = wanted == "stats"
        return {
            "port": self._port,
            "messages": self.messages,
            "connections": len(self.pipes) // 2,
            "delays": list(self.delays[True]) if asked else [],
            "request_delays": list(self.delays[False]) if asked else [],
        }

    def _refuse(self, pids: frozenset[int]) -> None:
        self._refused = pids
        for pipe in list(self.pipes):
            if self.refuses(pipe):
                pipe.reset()

    async def _change(self, fault: Fault, order: Order) -> None:
        if self.fault == "cut" and fault != "cut":
            await self.listen()
        self.fault = fault
        self._delays = {
            True: (order.get("delay", 0.0), order.get("jitter", 0.0)),
            False: (order.get("request_delay", 0.0), order.get("request_jitter", 0.0)),
        }
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
