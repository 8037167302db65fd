"""What is in flight, what counts as a sample, and what counts as a failure."""

from __future__ import annotations

import asyncio
import time

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .drivers import AsyncDriver, Connector, Driver, assert_answered
from .nodes import KEYS, frozen, owner

pytestmark = pytest.mark.integration

STALL = 0.4
only_asyncio = pytest.mark.parametrize("mode", ["asyncio"], indirect=True)


async def warm(connect: Connector, servers: RedisClusterServers) -> Driver:
    """Return a client that has heard of every node."""
    client = await connect.ours(servers, "latency_based")
    while any(stats.successes < 5 for stats in client.stats().values()):
        await client.reads(count=30, keys=KEYS)
    return client


async def test_a_request_is_in_flight_while_it_waits(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await warm(connect, shard)
    before = client.stats()
    with frozen(*shard.nodes):
        running = [asyncio.ensure_future(client.get("key:0")) for _ in range(3)]
        await asyncio.sleep(STALL / 2)
        assert client.total("in_flight") == 3
    assert await asyncio.gather(*running) == ["key:0"] * 3
    assert client.total("in_flight") == 0
    assert_answered(client, 3, before=sum(s.successes for s in before.values()))
    assert max(stats.peak_rtt for stats in client.stats().values()) > STALL / 4


async def test_a_write_is_load_and_no_sample(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/pull/4323: writes must not pollute the estimate."""
    client = await warm(connect, shard)
    primary = shard.primaries[0]
    before = client.stats()
    with frozen(primary):
        running = asyncio.ensure_future(client.set("key:0", "v"))
        await asyncio.sleep(STALL)
        waiting = client.stats()
    assert await running
    after = client.stats()
    assert waiting[primary.endpoint].in_flight == 1
    assert after[primary.endpoint].mean_rtt == before[primary.endpoint].mean_rtt
    assert after[primary.endpoint].peak_rtt < STALL / 2
    assert after[primary.endpoint].picks == before[primary.endpoint].picks
    assert client.total("in_flight") == 0


@pytest.mark.parametrize("count", [None, 10])
async def test_a_blocking_read_is_neither_load_nor_sample(
    connect: Connector, shard: RedisClusterServers, count: int | None
) -> None:
    """Research P1: an idle reader would repel traffic for minutes, a sample be 400 ms."""
    client = await warm(connect, shard)
    await client.xadd("stream", {"f": "v"})
    before = client.stats()
    start = time.perf_counter()
    running = asyncio.ensure_future(
        client.xread({"stream": "$"}, block=round(STALL * 1000), count=count)
    )
    await asyncio.sleep(STALL / 2)
    assert client.total("in_flight") == 0
    assert not await running
    assert time.perf_counter() - start > 0.9 * STALL
    after = client.stats()
    for endpoint, stats in after.items():
        assert stats.mean_rtt == before[endpoint].mean_rtt
        assert stats.successes == before[endpoint].successes
        assert stats.peak_rtt < STALL / 2
    # Without BLOCK it is a read like any other.
    assert await client.xread({"stream": "0"})
    assert_answered(client, 1, before=sum(stats.successes for stats in after.values()))


async def test_an_error_reply_proves_that_the_server_works(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await warm(connect, shard)
    before = client.total("successes")
    for _ in range(10):
        with pytest.raises(library.errors.ResponseError, match="WRONGTYPE"):
            await client.hget("key:0", "field")
    assert_answered(client, 10, before=before)
    with pytest.raises(library.errors.NoScriptError):
        await client.evalsha("0" * 40, 1, "key:0")
    with pytest.raises(library.errors.NoScriptError):
        await client.evalsha_ro("0" * 40, 1, "key:0")
    assert client.total("failures") == client.total("timeouts") == client.total("in_flight") == 0
    assert client.total("ejections") == 0


async def test_an_exhausted_pool_is_not_the_nodes_fault(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """https://github.com/redis/redis-py/issues/3684: a leaked slot makes a node unusable."""
    if connect.mode == "sync" and not library.HAS_RETRY:
        pytest.skip(f"{library.TITLE} replaces an exhausted pool, as if its node had failed")
    client = await connect.ours(lonely, "latency_based", max_connections=1)
    sick = owner(lonely, "key:0")
    assert await client.get("key:0") == "key:0"
    with frozen(sick):
        running = asyncio.ensure_future(client.get("key:0"))
        await asyncio.sleep(STALL / 2)
        for _ in range(7):
            with pytest.raises(library.errors.MaxConnectionsError):
                await client.get("key:0")
        assert client.total("in_flight") == 1
    assert await running == "key:0"
    assert (await client.reads(count=20)).errors == []
    assert client.total("in_flight") == client.total("failures") == 0
    assert_answered(client, 22)


async def test_connecting_is_not_the_nodes_latency(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """Research P10: every refresh has all connections made anew."""
    client = await warm(connect, shard)
    before = client.stats()
    answers = await client.together([("get", "key:0")] * 16)  # sixteen more connections
    assert answers == ["key:0"] * 16
    for endpoint, stats in client.stats().items():
        assert stats.failures == before[endpoint].failures == 0
    assert client.total("in_flight") == 0


@only_asyncio
async def test_a_cancelled_read_is_given_back(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """Research P3: wait_for cancels exactly the slow reads, and no completion ever comes."""
    client = await warm(connect, shard)
    before = client.stats()
    with frozen(*shard.nodes):
        for _ in range(5):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(client.get("key:0"), STALL / 4)
        assert client.total("in_flight") == 0
        assert client.total("cancellations") == 5
        assert client.mean_rtts() == {e: s.mean_rtt for e, s in before.items()}
    assert (await client.reads(count=30)).errors == []
    assert client.total("failures") == client.total("timeouts") == 0


@only_asyncio
@pytest.mark.parametrize("transaction", library.EITHER_PIPELINE)
async def test_a_cancelled_pipeline_is_given_back(
    connect: Connector, shards: RedisClusterServers, transaction: bool
) -> None:
    client = await warm(connect, shards)
    keys = [f"{{t}}{i}" for i in range(4)] if transaction else KEYS
    with frozen(*shards.nodes):
        for _ in range(3):
            task = asyncio.ensure_future(
                client.pipeline([("get", key) for key in keys], transaction=transaction)
            )
            await asyncio.sleep(STALL / 4)
            assert client.total("in_flight") == (1 if transaction else 2)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            assert client.total("in_flight") == 0
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
    assert client.total("failures") == client.total("timeouts") == 0


@only_asyncio
async def test_a_coroutine_that_is_thrown_away_is_given_back(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await warm(connect, shard)
    coroutine = client.client.get("key:0")
    pipe = client.client.pipeline()
    pipe.get("key:0")
    other = pipe.execute()
    with frozen(*shard.nodes):
        for each in (coroutine, other):
            each.send(None)
        assert client.total("in_flight") == 2
        for each in (coroutine, other):
            each.close()
    assert client.total("in_flight") == 0
    assert (await client.reads(count=30)).errors == []


@only_asyncio
async def test_a_stall_of_the_event_loop_is_not_the_nodes_latency(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """Research P4: a stall of 200 ms put 202 ms on every node with a request in flight."""
    client = await warm(connect, shard)
    assert isinstance(client, AsyncDriver)
    loop = asyncio.get_running_loop()
    for _ in range(5):
        readers = [asyncio.ensure_future(client.reads(seconds=0.3)) for _ in range(6)]
        loop.call_later(0.1, time.sleep, STALL)
        logs = await asyncio.gather(*readers)
        assert max(max(log.latencies) for log in logs) > 0.9 * STALL  # the stall was seen
    for stats in client.stats().values():
        assert stats.peak_rtt < STALL / 2
        assert stats.mean_rtt < STALL / 4


@only_asyncio
async def test_a_slow_node_is_seen_although_the_loop_stalls_too(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """A short stall must not excuse a wait that is many times longer."""
    client = await connect.ours(lonely, "latency_based")
    await client.reads(count=30)
    sick = owner(lonely, "key:0")
    with frozen(sick):
        running = asyncio.ensure_future(client.get("key:0"))
        asyncio.get_running_loop().call_later(STALL / 4, time.sleep, STALL / 8)
        await asyncio.sleep(STALL)
    assert await running == "key:0"
    assert client.stats()[sick.endpoint].peak_rtt > 0.9 * STALL
