"""One client, synchronous or asyncio, behind the same asynchronous methods.

A test is written once: ``await client.get("key")`` runs a synchronous client in a thread.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import time
import warnings
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from importlib import import_module
from typing import Any, Literal, Protocol, TypeAlias

import pytest

from lb_strategies import EndpointStats, LoadBalancer

from . import library

Mode: TypeAlias = Literal["sync", "asyncio"]
Command: TypeAlias = tuple[Any, ...]

SOCKET_TIMEOUT = 5.0
"""Seconds; so generous that only a server that is down exceeds it."""


@dataclass(frozen=True)
class Address:
    """Where servers are that are not at hand, or that are asked at another port."""

    host: str
    port: int


class Place(Protocol):
    """Where a client starts: a cluster, or one server."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...


@dataclass
class Log:
    """What a closed loop of reads saw.

    Attributes:
        latencies: of each read, in seconds, failed ones too.
        values: the answers.
        errors: what the user would have had to handle.
    """

    latencies: list[float] = field(default_factory=list)
    values: list[Any] = field(default_factory=list)
    errors: list[Exception] = field(default_factory=list)

    def slow(self, seconds: float) -> list[float]:
        """Return the latencies that are longer than `seconds`."""
        return [latency for latency in self.latencies if latency > seconds]


class Driver(ABC):
    """A cluster client; methods that are not defined here are the client's own.

    Args:
        client: of redis-py, or ours.
        balancer: the client's; looked up on the client if None.
    """

    mode: Mode

    def __init__(self, client: Any, balancer: LoadBalancer | None = None) -> None:
        self.client = client
        self._balancer = balancer

    def __getattr__(self, name: str) -> Callable[..., Awaitable[Any]]:
        return partial(self.call, name)

    @property
    def balancer(self) -> LoadBalancer:
        """The client's balancer."""
        balancer = self._balancer or self.client.load_balancer
        assert isinstance(balancer, LoadBalancer)
        return balancer

    @balancer.setter
    def balancer(self, balancer: LoadBalancer | None) -> None:
        self._balancer = balancer

    @property
    def has_balancer(self) -> bool:
        """Whether one of our strategies is at work."""
        return (self._balancer or getattr(self.client, "load_balancer", None)) is not None

    def stats(self) -> dict[str, EndpointStats]:
        """Return what the balancer knows, by endpoint."""
        snapshot = self.balancer.snapshot(now=time.perf_counter())
        return {str(endpoint): stats for endpoint, stats in snapshot.items()}

    def total(self, counter: str) -> int:
        """Return the sum of one counter of `EndpointStats` over all endpoints."""
        return sum(getattr(stats, counter) for stats in self.stats().values())

    def mean_rtts(self) -> dict[str, float]:
        """Return the mean latency of each endpoint, in seconds."""
        return {endpoint: stats.mean_rtt for endpoint, stats in self.stats().items()}

    @abstractmethod
    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        """Call a method of the client and return its result."""

    @abstractmethod
    async def collect(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        """Call a method that returns an iterator and return what it yields."""

    @abstractmethod
    async def pipeline(
        self, commands: Sequence[Command], *, transaction: bool = False, raise_on_error: bool = True
    ) -> list[Any]:
        """Run `commands`, each a method's name and arguments, as one pipeline."""

    @abstractmethod
    async def reads(
        self,
        *,
        count: int | None = None,
        seconds: float | None = None,
        keys: Sequence[str] = ("key:0",),
        pause: float = 0.0,
    ) -> Log:
        """GET `keys` in turn in a closed loop, `count` times or for `seconds`."""

    @abstractmethod
    async def together(self, calls: Sequence[Command]) -> list[Any]:
        """Make all `calls` at once; return their results, or exceptions in their place."""

    @abstractmethod
    async def subscribe_and_publish(self, channel: str, message: str) -> Any:
        """Publish on a channel that is subscribed to; return the data that arrives."""

    @abstractmethod
    async def close(self) -> None:
        """Close the client and every connection."""


class SyncDriver(Driver):
    """A synchronous client, each call in a thread."""

    mode = "sync"

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return await asyncio.to_thread(getattr(self.client, method), *args, **kwargs)

    async def collect(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        return await asyncio.to_thread(lambda: list(getattr(self.client, method)(*args, **kwargs)))

    async def pipeline(
        self, commands: Sequence[Command], *, transaction: bool = False, raise_on_error: bool = True
    ) -> list[Any]:
        return await asyncio.to_thread(self._pipeline, commands, transaction, raise_on_error)

    def _pipeline(
        self, commands: Sequence[Command], transaction: bool, raise_on_error: bool
    ) -> list[Any]:
        with self.client.pipeline(transaction=transaction) as pipe:
            for method, *args in commands:
                getattr(pipe, method)(*args)
            results: list[Any] = pipe.execute(raise_on_error=raise_on_error)
            return results

    async def reads(
        self,
        *,
        count: int | None = None,
        seconds: float | None = None,
        keys: Sequence[str] = ("key:0",),
        pause: float = 0.0,
    ) -> Log:
        return await asyncio.to_thread(self._reads, _turns(keys, count, seconds), pause)

    def _reads(self, turns: Iterator[str], pause: float) -> Log:
        log = Log()
        for key in turns:
            start = time.perf_counter()
            try:
                log.values.append(self.client.get(key))
            except Exception as error:
                log.errors.append(error)
            log.latencies.append(time.perf_counter() - start)
            if pause:
                time.sleep(pause)
        return log

    async def together(self, calls: Sequence[Command]) -> list[Any]:
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(len(calls)) as threads:
            running = [
                loop.run_in_executor(threads, getattr(self.client, method), *args)
                for method, *args in calls
            ]
            return await asyncio.gather(*running, return_exceptions=True)

    async def subscribe_and_publish(self, channel: str, message: str) -> Any:
        return await asyncio.to_thread(self._subscribe_and_publish, channel, message)

    def _subscribe_and_publish(self, channel: str, message: str) -> Any:
        pubsub = self.client.pubsub()
        try:
            pubsub.subscribe(channel)
            assert pubsub.get_message(timeout=SOCKET_TIMEOUT)["type"] == "subscribe"
            self.client.publish(channel, message)
            return pubsub.get_message(timeout=SOCKET_TIMEOUT)["data"]
        finally:
            pubsub.close()

    async def close(self) -> None:
        await asyncio.to_thread(self.client.close)
        self.client.disconnect_connection_pools()


class AsyncDriver(Driver):
    """An asyncio client."""

    mode = "asyncio"

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return await getattr(self.client, method)(*args, **kwargs)

    async def collect(self, method: str, *args: Any, **kwargs: Any) -> list[Any]:
        return [item async for item in getattr(self.client, method)(*args, **kwargs)]

    async def pipeline(
        self, commands: Sequence[Command], *, transaction: bool = False, raise_on_error: bool = True
    ) -> list[Any]:
        async with self.client.pipeline(transaction=transaction) as pipe:
            for method, *args in commands:
                getattr(pipe, method)(*args)
            results: list[Any] = await pipe.execute(raise_on_error=raise_on_error)
            return results

    async def reads(
        self,
        *,
        count: int | None = None,
        seconds: float | None = None,
        keys: Sequence[str] = ("key:0",),
        pause: float = 0.0,
    ) -> Log:
        log = Log()
        for key in _turns(keys, count, seconds):
            start = time.perf_counter()
            try:
                log.values.append(await self.client.get(key))
            except Exception as error:
                log.errors.append(error)
            log.latencies.append(time.perf_counter() - start)
            if pause:
                await asyncio.sleep(pause)
        return log

    async def together(self, calls: Sequence[Command]) -> list[Any]:
        running = (getattr(self.client, method)(*args) for method, *args in calls)
        return await asyncio.gather(*running, return_exceptions=True)

    async def subscribe_and_publish(self, channel: str, message: str) -> Any:
        if not hasattr(self.client, "pubsub"):
            pytest.skip(f"{library.TITLE} has no subscriptions in asyncio clusters")
        pubsub = self.client.pubsub()
        try:
            await pubsub.subscribe(channel)
            assert (await pubsub.get_message(timeout=SOCKET_TIMEOUT))["type"] == "subscribe"
            await self.client.publish(channel, message)
            return (await pubsub.get_message(timeout=SOCKET_TIMEOUT))["data"]
        finally:
            await pubsub.aclose()

    async def close(self) -> None:
        await self.client.aclose()


def assert_answered(driver: Driver, count: int, *, before: int = 0, endpoint: str = "") -> None:
    """Assert that `count` more requests than `before` were answered and counted.

    In asyncio a few may be missing: while the loop was kept busy no duration is known.
    """
    stats = driver.stats()
    found = stats[endpoint].successes if endpoint else driver.total("successes")
    least = count if driver.mode == "sync" else count // 2
    assert least <= found - before <= count


def _turns(keys: Sequence[str], count: int | None, seconds: float | None) -> Iterator[str]:
    end = float("inf") if seconds is None else time.perf_counter() + seconds
    for key in itertools.islice(itertools.cycle(keys), count):
        if time.perf_counter() >= end:
            return
        yield key


class Connector:
    """Makes clients of one mode, and closes them.

    Args:
        mode: of the clients.
    """

    def __init__(self, mode: Mode) -> None:
        self.mode: Mode = mode
        self._drivers: list[Driver] = []

    async def ours(self, servers: Place, strategy: Any, **options: Any) -> Driver:
        """Return a client of our class."""
        cls = library.OURS[self.mode]
        return await self.of(cls, servers, load_balancing_strategy=strategy, **options)

    async def stock(self, servers: Place, **options: Any) -> Driver:
        """Return a client of the library's own class."""
        if self._is_leaking:
            warnings.simplefilter("ignore", ResourceWarning)
        return await self.of(self.stock_class, servers, **options)

    @property
    def _is_leaking(self) -> bool:
        """Whether what the library's own client leaves behind is not to be held against us."""
        return self.mode == "asyncio" and library.DROPS_OPEN_NODES

    @property
    def stock_class(self) -> Any:
        """The library's own class."""
        return library.STOCK[self.mode]

    def retries(self, count: int) -> dict[str, Any]:
        """Return the client options for `count` retries without pauses."""
        if not library.HAS_RETRY:
            return {"cluster_error_retry_attempts": self.attempts(count) - 1}
        where = f"{library.NAME}.retry" if self.mode == "sync" else f"{library.NAME}.asyncio.retry"
        no_backoff = import_module(f"{library.NAME}.backoff").NoBackoff()
        return {"retry": import_module(where).Retry(no_backoff, count)}

    def attempts(self, count: int) -> int:
        """Return how often a client made with `retries(count)` tries a command at most."""
        # An asyncio pipeline that may not be retried never begins in the older libraries.
        least = 0 if library.HAS_RETRY or self.mode == "sync" else 1
        return 1 + max(count, least)

    async def of(
        self,
        cls: Any,
        servers: Place,
        *,
        initialize: bool = True,
        **options: Any,
    ) -> Driver:
        """Return a client of class `cls`; an asyncio one is connected if `initialize`."""
        options.setdefault("socket_timeout", SOCKET_TIMEOUT)
        options.setdefault("decode_responses", True)
        where = {"host": servers.host, "port": servers.port}
        driver: Driver
        if self.mode == "sync":
            driver = SyncDriver(await asyncio.to_thread(lambda: cls(**where, **options)))
        else:
            driver = AsyncDriver(cls(**where, **options))
        self._drivers.append(driver)
        if self.mode == "asyncio" and initialize:
            await driver.client.initialize()
        return driver

    async def close(self) -> None:
        """Close every client; whatever a test did, nothing may be left in flight."""
        left = [d.stats() for d in self._drivers if d.has_balancer and d.total("in_flight")]
        has_leaked = self._is_leaking and any(
            type(driver.client) is self.stock_class for driver in self._drivers
        )
        while self._drivers:
            await self._drivers.pop(0).close()
        if has_leaked:  # now, or the garbage collector tells of it in another test
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", ResourceWarning)
                gc.collect()
        assert not left
