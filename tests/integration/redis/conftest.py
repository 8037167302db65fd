"""Clusters, which last for the whole session, and clients, which last for one test."""

from __future__ import annotations

import signal
from collections.abc import AsyncIterator, Iterator
from types import FrameType

import pytest

from bench.servers.binaries import find_redis_server
from bench.servers.redis import RedisClusterServers

from .drivers import Connector, Mode
from .nodes import fill

LIMIT = 90
"""Seconds that a test may take; none takes a third of it."""


@pytest.fixture(autouse=True)
def _bounded_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that hangs: every socket has a time-out of its own, so its threads end too."""

    def fail(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"took longer than {seconds} s")

    marker = request.node.get_closest_marker("integration")
    seconds = (marker.kwargs.get("limit") if marker else None) or LIMIT
    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


@pytest.fixture(params=["sync", "asyncio"])
def mode(request: pytest.FixtureRequest) -> Mode:
    """Which client a test is about; nearly all are about both."""
    chosen: Mode = request.param
    return chosen


@pytest.fixture
async def connect(mode: Mode) -> AsyncIterator[Connector]:
    """Make clients; at the end nothing is in flight on any of them, and they are closed."""
    connector = Connector(mode)
    try:
        yield connector
    finally:
        await connector.close()


@pytest.fixture(scope="session")
def _shard() -> Iterator[RedisClusterServers]:
    with RedisClusterServers(primaries=1, replicas=2) as servers:
        yield servers


@pytest.fixture
def shard(_shard: RedisClusterServers) -> RedisClusterServers:
    """One primary with two replicas: every read has three candidates."""
    fill(_shard)
    return _shard


@pytest.fixture(scope="session")
def _shards() -> Iterator[RedisClusterServers]:
    newest = find_redis_server(prefer_wheel=True)
    with RedisClusterServers(primaries=2, replicas=1, binary=newest) as servers:
        yield servers


@pytest.fixture
def shards(_shards: RedisClusterServers) -> RedisClusterServers:
    """Two primaries with a replica each, of the newest server at hand."""
    fill(_shards)
    return _shards


@pytest.fixture(scope="session")
def _lonely() -> Iterator[RedisClusterServers]:
    with RedisClusterServers(primaries=2, replicas=0) as servers:
        yield servers


@pytest.fixture
def lonely(_lonely: RedisClusterServers) -> RedisClusterServers:
    """Two primaries without replicas."""
    fill(_lonely)
    return _lonely
