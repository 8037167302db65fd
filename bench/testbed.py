"""A cluster with degraded replicas, a data set, and each side on CPUs of its own."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Collection, Iterator
from contextlib import ExitStack
from typing import Self

from redis.cluster import RedisCluster

from bench.contenders import Address, Contender, Mode, Target
from bench.counters import CallCounter
from bench.load import Driver
from bench.proxy import FaultProxy
from bench.record import summarise
from bench.servers.process import running_on, split_cpus, taking_precedence, wait_until
from bench.servers.redis import RedisClusterServers, RedisNode, ports_in_slots
from bench.workload import Arrival, Mix, Operation, poisson_arrivals

KEYS = 1000
LISTS = 20
LIST_LENGTH = 500
VALUE = "x" * 100


class Testbed:
    """Servers, one fault proxy per degraded replica, and the counters of all servers.

    With two CPUs or more the client has the first for itself and everything else the rest, so that
    the servers' work does not end up in the tail that is measured; as root they also run before
    the machine's other work. A context manager.

    Args:
        primaries: Shards.
        replicas: Replicas of each shard.
        degraded: How many replicas, the first ones, are behind a proxy.
        seed: Decides the jitter and the arrivals.
        mode: Kind of the clients.
        socket_timeout: Of the clients, seconds; None leaves redis-py's default.
        commands: Read commands that the servers' counters add up.
    """

    __test__ = False

    def __init__(
        self,
        *,
        primaries: int = 1,
        replicas: int = 3,
        degraded: int = 0,
        seed: int = 1,
        mode: Mode = "sync",
        socket_timeout: float | None = None,
        commands: Collection[str] = ("get",),
    ) -> None:
        if degraded > primaries * replicas:
            raise ValueError(
                f"degraded={degraded} is more than all {primaries * replicas} replicas"
            )
        self.seed = seed
        self.mode: Mode = mode
        self.proxies: list[FaultProxy] = []
        self._client_cpus, self._server_cpus = split_cpus()
        self.servers = RedisClusterServers(
            primaries=primaries, replicas=replicas, cpus=self._server_cpus
        )
        self._degraded = degraded
        self._socket_timeout = socket_timeout
        self._commands = tuple(commands)
        self._stack = ExitStack()

    @property
    def degraded(self) -> list[RedisNode]:
        """The servers behind a proxy."""
        return self.servers.replicas[: self._degraded]

    @property
    def degraded_endpoints(self) -> list[str]:
        """Their own names, which the servers' counters use."""
        return [node.endpoint for node in self.degraded]

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(taking_precedence())
            stack.enter_context(self.servers)
            for i, node in enumerate(self.degraded):
                proxy = FaultProxy(node.host, node.port, seed=self.seed + i, cpus=self._server_cpus)
                self.proxies.append(stack.enter_context(proxy))
            stack.enter_context(running_on(self._client_cpus))
            self.counter = stack.enter_context(CallCounter(self.servers.nodes, self._commands))
            self._fill()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def target(self, *, degraded: Collection[str] | None = None) -> Target:
        """Return where clients connect; ``degraded`` overrides which endpoints ``ideal`` avoids."""
        remap: dict[Address, Address] = {
            (node.host, node.port): (proxy.host, proxy.port)
            for node, proxy in zip(self.degraded, self.proxies, strict=True)
        }
        names = [proxy.endpoint for proxy in self.proxies] if degraded is None else degraded
        return Target(
            self.servers.host,
            self.servers.port,
            remap=remap,
            degraded=frozenset(names),
            socket_timeout=self._socket_timeout,
        )

    @contextlib.contextmanager
    def driving(
        self, contender: Contender, *, degraded: Collection[str] | None = None
    ) -> Iterator[Driver]:
        """Open a fresh client of ``contender`` and close it at the end."""
        driver = self.target(degraded=degraded).open(contender, self.mode)
        try:
            yield driver
        finally:
            driver.close()

    def arrivals(self, mix: Mix, *, rate: float, seconds: float, name: str) -> list[Arrival]:
        """Return the arrivals called ``name``: the same for every contender of a run."""
        rng = random.Random(f"{self.seed} {name}")
        return poisson_arrivals(mix, rate=rate, seconds=seconds, rng=rng)

    def slow_down(self, delay: float, jitter: float) -> None:
        """Add ``delay`` +- ``jitter`` seconds to each round trip with the degraded endpoints."""
        for proxy in self.proxies:
            proxy.delay(delay, jitter=jitter)

    def heal(self) -> None:
        """Undo ``slow_down``."""
        for proxy in self.proxies:
            proxy.undo()

    def announce_proxies(self) -> None:
        """Let the cluster itself name the proxies, for clients that cannot remap an address.

        Takes seconds: the servers tell one another in their own time.
        """
        for node, proxy in zip(self.degraded, self.proxies, strict=True):
            node.ask("CONFIG", "SET", "cluster-announce-port", proxy.port)
        ports = {proxy.port for proxy in self.proxies}
        wait_until(
            lambda: all(ports <= ports_in_slots(node) for node in self.servers.nodes),
            "every server names the proxies",
            timeout=60,
        )

    def delays_given(self) -> dict[str, object]:
        """Return what the proxies really added, in milliseconds, for the report."""
        given = [delay for proxy in self.proxies for delay in proxy.stats()["delays"]]
        mean = round(sum(given) / len(given) * 1000, 3) if given else 0.0
        least = round(min(given, default=0.0) * 1000, 3)
        return {**summarise(given), "mean_ms": mean, "min_ms": least}

    def _fill(self) -> None:
        with RedisCluster(host=self.servers.host, port=self.servers.port) as client:
            for i in range(KEYS):
                client.set(f"key:{i}", VALUE)
            for i in range(LISTS):
                client.rpush(f"list:{i}", *[VALUE] * LIST_LENGTH)
        for primary in self.servers.primaries:
            replicas = len(self.servers.replicas) // len(self.servers.primaries)
            primary.ask("WAIT", replicas, 5000)


def reads() -> Mix:
    """Return GETs of all keys, equally often."""
    operations = [Operation("read", "get", (f"key:{i}",)) for i in range(KEYS)]
    return Mix(operations, [1.0] * KEYS)


def reads_and_ranges(part: float) -> Mix:
    """Return GETs of all keys with a ``part`` (0 .. 1) of LRANGEs of whole lists."""
    gets = reads()
    ranges = [Operation("read", "lrange", (f"list:{i}", 0, -1)) for i in range(LISTS)]
    shares = [(1 - part) / KEYS] * KEYS + [part / LISTS] * LISTS
    return Mix([*gets.operations, *ranges], shares)
