"""The clients that compete, and how each is opened.

A contender with one of the client's own strategies is the plain class of redis-py, untouched by
this project; the others are ours. ``ideal`` is the limit: redis-py's round robin with the
degraded endpoints taken out of its slot table by hand, which nobody can do in production.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass, field
from typing import Any, Literal, cast

import redis.asyncio.retry
import redis.retry
from redis.asyncio.cluster import RedisCluster as UpstreamAsyncRedisCluster
from redis.backoff import NoBackoff
from redis.cluster import LoadBalancingStrategy as UpstreamStrategy
from redis.cluster import RedisCluster as UpstreamRedisCluster

from bench.load import AsyncioDriver, Driver, SyncDriver
from bench.peers import installed_peers, open_peer

Mode = Literal["sync", "asyncio"]
Address = tuple[str, int]

UPSTREAM = frozenset(member.value for member in UpstreamStrategy)


@dataclass(frozen=True, slots=True)
class Contender:
    """A client and its strategy.

    Attributes:
        name: As reported.
        strategy: Value of a ``LoadBalancingStrategy``.
        leaves_out_degraded: Whether the degraded endpoints are removed by hand.
        is_peer: Whether it is another library's client, called ``name``; then the strategy is
            that library's own.
    """

    name: str
    strategy: str
    leaves_out_degraded: bool = False
    is_peer: bool = False

    @property
    def is_ours(self) -> bool:
        """Whether the strategy is one that redis-py does not have."""
        return self.strategy not in UPSTREAM and not self.is_peer


IDEAL = Contender("ideal", UpstreamStrategy.ROUND_ROBIN.value, leaves_out_degraded=True)


def named(*strategies: str) -> list[Contender]:
    """Return a contender for each strategy, called like it."""
    return [Contender(strategy, strategy) for strategy in strategies]


def peers(mode: Mode) -> list[Contender]:
    """Return other libraries' clients, where installed; they are asyncio clients."""
    names = installed_peers() if mode == "asyncio" else []
    return [Contender(name, "", is_peer=True) for name in names]


@dataclass(frozen=True, slots=True)
class Target:
    """The cluster that clients connect to.

    Attributes:
        host: Where to start.
        port: Where to start.
        remap: From a server's address to that of its proxy.
        degraded: Names ("host:port", as the client knows them) of the degraded endpoints.
        socket_timeout: Seconds; None leaves redis-py's default.
        retries: Of redis-py itself, without pauses; None leaves its default.
    """

    host: str
    port: int
    remap: dict[Address, Address] = field(default_factory=dict)
    degraded: Collection[str] = ()
    socket_timeout: float | None = None
    retries: int | None = None

    def open(self, contender: Contender, mode: Mode) -> Driver:
        """Return a driver of a new client."""
        if contender.is_peer:
            return AsyncioDriver(lambda: open_peer(contender.name, self.host, self.port))
        if mode == "sync":
            return SyncDriver(lambda: self._open_sync(contender))
        return AsyncioDriver(lambda: self._open_asyncio(contender))

    def _open_sync(self, contender: Contender) -> object:
        arguments = self._arguments(contender)
        if self.retries is not None:
            arguments["retry"] = redis.retry.Retry(NoBackoff(), self.retries)
        client = _sync_class(contender)(**arguments)
        if contender.leaves_out_degraded:
            self._leave_out(client.nodes_manager.slots_cache)
        return client

    async def _open_asyncio(self, contender: Contender) -> object:
        arguments = self._arguments(contender)
        if self.retries is not None:
            arguments["retry"] = redis.asyncio.retry.Retry(NoBackoff(), self.retries)
        client = _asyncio_class(contender)(**arguments)
        await cast("Awaitable[object]", client.initialize())
        if contender.leaves_out_degraded:
            self._leave_out(client.nodes_manager.slots_cache)
        return client

    def _arguments(self, contender: Contender) -> dict[str, object]:
        strategy: object = contender.strategy
        if not contender.is_ours:
            strategy = UpstreamStrategy(contender.strategy)
        arguments: dict[str, object] = {
            "host": self.host,
            "port": self.port,
            "load_balancing_strategy": strategy,
            "address_remap": lambda address: self.remap.get(address, address),
        }
        if self.socket_timeout is not None:
            arguments["socket_timeout"] = self.socket_timeout
        return arguments

    def _leave_out(self, slots: dict[int, list[Any]]) -> None:
        for slot, nodes in slots.items():
            slots[slot] = [node for node in nodes if node.name not in self.degraded]


def _sync_class(contender: Contender) -> Callable[..., Any]:
    """Return the client's class; ours is imported only where one of our strategies runs."""
    chosen: Callable[..., Any] = UpstreamRedisCluster
    if contender.is_ours:
        from lb_strategies_redis import RedisCluster

        chosen = RedisCluster
    return chosen


def _asyncio_class(contender: Contender) -> Callable[..., Any]:
    chosen: Callable[..., Any] = UpstreamAsyncRedisCluster
    if contender.is_ours:
        from lb_strategies_redis import AsyncRedisCluster

        chosen = AsyncRedisCluster
    return chosen
