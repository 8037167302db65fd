"""The client-side cache, which redis-py has in its synchronous client only, valkey-py in both."""

from __future__ import annotations

import time

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import BalancerOptions

from . import library
from .drivers import Connector, Driver
from .nodes import KEYS, calls, require_caching, since

pytestmark = [
    pytest.mark.integration,
    pytest.mark.parametrize("mode", library.CACHING_MODES, indirect=True),
]


@pytest.fixture
def caching(shards: RedisClusterServers) -> RedisClusterServers:
    require_caching(shards)
    return shards


async def cached(connect: Connector, servers: RedisClusterServers, strategy: str) -> Driver:
    """Return a client that holds the values of all keys, as each node gave them."""
    # Who is out for noise would be asked when it is back; valkey-py caches by connection.
    evenly = {"balancer_options": BalancerOptions(outlier_floor=60.0)}
    client = await connect.ours(servers, strategy, protocol=3, **evenly, **library.CACHE)
    quiet = 0
    for _ in range(60):
        before = calls(servers.nodes)
        assert (await client.reads(count=len(KEYS), keys=KEYS)).values == list(KEYS)
        quiet = 0 if any(since(before, servers.nodes).values()) else quiet + 1
        if quiet == 4:
            return client
    raise AssertionError("the servers are asked again and again")


@pytest.mark.parametrize("strategy", ["latency_based", "hybrid"])
async def test_what_the_cache_answers_is_no_sample(
    connect: Connector, caching: RedisClusterServers, strategy: str
) -> None:
    """No node was asked, so none was fast; a node that hangs is not shown to be well."""
    client = await cached(connect, caching, strategy)
    before = calls(caching.nodes), client.stats()
    assert (await client.reads(count=300, keys=KEYS)).errors == []
    assert sum(since(before[0], caching.nodes).values()) == 0
    for endpoint, stats in client.stats().items():
        assert stats.successes == before[1][endpoint].successes
        assert stats.mean_rtt == before[1][endpoint].mean_rtt
        assert stats.in_flight == stats.failures == 0


async def test_what_the_cache_does_not_know_is_a_sample(
    connect: Connector, caching: RedisClusterServers
) -> None:
    client = await cached(connect, caching, "latency_based")
    before = client.total("successes")
    for i in range(20):
        assert await client.get(f"missing:{i}") is None
        assert await client.set(f"new:{i}", "v")
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
    assert client.total("in_flight") == client.total("failures") == 0
    assert client.total("successes") >= before + 40


async def test_a_changed_value_is_read_anew(
    connect: Connector, caching: RedisClusterServers
) -> None:
    client = await cached(connect, caching, "latency_based")
    other = await connect.stock(caching)
    for key in KEYS[:16]:
        await other.set(key, f"{key} anew")
    end = time.monotonic() + 10
    pending = set(KEYS[:16])
    while pending and time.monotonic() < end:
        pending -= {key for key in pending if await client.get(key) == f"{key} anew"}
    assert not pending
    assert client.total("in_flight") == client.total("failures") == 0
