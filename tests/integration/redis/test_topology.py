"""Nodes that come, go, move and swap roles under load: who stays keeps its history."""

from __future__ import annotations

import asyncio
import gc
import time
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Any

import pytest

from bench.servers.redis import RedisClusterServers

from . import library
from .drivers import Connector, Driver, Log
from .nodes import calls, fill, frozen, key_on, move, owner, settle, since, swap

pytestmark = [pytest.mark.integration, pytest.mark.long]

PAUSE = 0.002
"""Seconds between two reads of one worker."""


@pytest.fixture(scope="module")
def hands() -> Iterator[Executor]:
    """A thread that changes servers; one that it starts lives only as long as the thread."""
    with ThreadPoolExecutor(1) as executor:
        yield executor


@pytest.fixture(scope="module")
def _elastic(hands: Executor) -> Iterator[RedisClusterServers]:
    # A short node time-out, because news of the membership travels with it.
    with RedisClusterServers(primaries=1, replicas=2, node_timeout=2) as servers:
        yield servers


@pytest.fixture
def elastic(_elastic: RedisClusterServers, hands: Executor) -> Iterator[RedisClusterServers]:
    """A shard that grows and shrinks; afterwards it has two replicas again."""
    fill(_elastic)
    yield _elastic
    for replica in _elastic.replicas[2:]:
        _elastic.remove_replica(replica)
    while len(_elastic.replicas) < 2:
        hands.submit(_elastic.add_replica, _elastic.primaries[0]).result()


async def refresh(client: Driver) -> None:
    """Have the client ask for the topology, as it does after a redirect."""
    initialize = client.client.nodes_manager.initialize
    if client.mode == "asyncio":
        await initialize()
    else:
        await asyncio.to_thread(initialize)


async def under_load(client: Driver, hands: Executor, change: Callable[[], Any]) -> Log:
    """Read without a break while `change` is made, and a little longer."""
    whole = Log()
    changing = asyncio.get_running_loop().run_in_executor(hands, change)
    while not changing.done():
        log = await client.reads(seconds=0.25, pause=PAUSE)
        whole.errors += log.errors
        whole.values += log.values
    await changing
    await refresh(client)
    log = await client.reads(count=100, pause=PAUSE)
    whole.errors += log.errors
    whole.values += log.values
    return whole


async def test_a_new_replica_is_used_and_the_others_keep_their_history(
    connect: Connector, elastic: RedisClusterServers, hands: Executor
) -> None:
    client = await connect.ours(elastic, "latency_based")
    await client.reads(count=100)
    before = client.stats()
    log = await under_load(client, hands, lambda: elastic.add_replica(elastic.primaries[0]))
    assert log.errors == []
    assert set(log.values) == {"key:0"}
    new = elastic.replicas[-1]
    after = client.stats()
    assert after.keys() == {node.endpoint for node in elastic.nodes}
    assert all(after[e].successes > before[e].successes > 0 for e in before)
    assert new.command_calls("get") > 0
    assert after[new.endpoint].successes > 0


async def test_a_replica_that_leaves_is_forgotten(
    connect: Connector, elastic: RedisClusterServers, hands: Executor
) -> None:
    """https://github.com/alisaifee/coredis/issues/149, Grokzen/redis-py-cluster#484."""
    client = await connect.ours(elastic, "latency_based")
    await client.reads(count=100)
    before = client.stats()
    gone = elastic.replicas[0]
    log = await under_load(client, hands, lambda: elastic.remove_replica(gone))
    assert log.errors == []
    after = client.stats()
    assert after.keys() == before.keys() - {gone.endpoint}
    assert all(after[e].successes > before[e].successes for e in after)
    assert all(stats.in_flight == 0 for stats in after.values())


async def test_a_replica_with_a_new_address_starts_cold_and_the_old_one_is_forgotten(
    connect: Connector, elastic: RedisClusterServers, hands: Executor
) -> None:
    """https://github.com/alisaifee/coredis/issues/149: the stale address was kept."""
    client = await connect.ours(elastic, "latency_based")
    await client.reads(count=100)
    before = client.stats()
    gone = elastic.replicas[0]

    def move() -> None:
        elastic.remove_replica(gone)
        elastic.add_replica(elastic.primaries[0])

    log = await under_load(client, hands, move)
    assert log.errors == []
    after = client.stats()
    new = elastic.replicas[-1].endpoint
    assert after.keys() == before.keys() - {gone.endpoint} | {new}
    assert 0 < after[new].picks < before[gone.endpoint].picks + len(log.values)
    assert all(after[e].successes > before[e].successes for e in after.keys() - {new})


async def test_a_new_replica_that_does_not_answer_gets_one_read_at_a_time(
    connect: Connector, elastic: RedisClusterServers, hands: Executor
) -> None:
    client = await connect.ours(elastic, "latency_based", socket_timeout=1.0)
    await client.reads(count=100)
    loop = asyncio.get_running_loop()
    new = await loop.run_in_executor(hands, elastic.add_replica, elastic.primaries[0])
    await refresh(client)
    with frozen(new):
        answers = await client.together([("get", "key:0")] * 40)
        stats = client.stats()[new.endpoint]
    assert answers == ["key:0"] * 40
    assert 1 <= stats.picks == stats.timeouts <= 2


@pytest.mark.alone
async def test_a_write_storm_on_a_frozen_primary_ejects_nobody_else(
    connect: Connector, shards: RedisClusterServers
) -> None:
    """https://github.com/redisson/redisson/issues/7231, #7269: the state was shared by all."""
    client = await connect.ours(shards, "latency_based", socket_timeout=0.2, **connect.retries(0))
    await client.reads(count=50, keys=[f"key:{i}" for i in range(32)])
    sick = owner(shards, "key:0")
    with frozen(sick):
        answers = await client.together([("set", "key:0", "key:0")] * 8)
        assert all(isinstance(answer, library.errors.TimeoutError) for answer in answers)
        log = await client.reads(count=200, keys=[f"key:{i}" for i in range(32)])
        stats = client.stats()
    assert log.errors == []
    others = {endpoint: s for endpoint, s in stats.items() if endpoint != sick.endpoint}
    assert {endpoint: s.ejected_for for endpoint, s in others.items() if s.ejections} == {}
    assert {endpoint for endpoint, s in others.items() if s.failures or s.timeouts} == set()


@pytest.mark.parametrize("mode", ["asyncio"], indirect=True)
async def test_a_refresh_drops_no_open_connection(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """redis-py 7's own asyncio client makes every node anew: 12 were dropped in 5 refreshes."""
    client = await connect.ours(shard, "latency_based")
    with warnings.catch_warnings(record=True) as seen:
        warnings.simplefilter("always")
        for _ in range(5):
            await client.together([("get", "key:0")] * 9)
            await client.client.nodes_manager.initialize()
        gc.collect()
    assert [str(warning.message) for warning in seen] == []


async def test_a_frozen_replica_causes_no_storm_of_refreshes(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """50 workers; the stock client refreshes for every read that times out."""
    seconds = 4.0
    sick, *_ = shard.replicas
    well = [node for node in shard.nodes if node is not sick]

    async def refreshes(client: Driver) -> tuple[int, int]:
        """Return how many were answered in time, and how many there were in all."""
        await client.reads(count=50)
        before = calls(shard.nodes, "cluster|slots")
        with frozen(sick):
            started = time.monotonic()
            await client.together([("get", "key:0")] * 50)
            while time.monotonic() - started < seconds:
                await client.together([("get", "key:0")] * 50)
            answered = sum(since(before, well, "cluster|slots").values())
        # What was sent to the frozen one it answers now.
        return answered, sum(since(before, shard.nodes, "cluster|slots").values())

    ours = await refreshes(await connect.ours(shard, "latency_based", socket_timeout=0.3))
    stock = await refreshes(
        await connect.stock(
            shard,
            socket_timeout=0.3,
            **library.read_from_replicas("round_robin"),
        )
    )
    assert ours[0] <= seconds + 2  # one a second at most
    assert ours[1] < stock[1]


async def test_a_failover_under_load_keeps_what_is_known(
    connect: Connector, elastic: RedisClusterServers, hands: Executor
) -> None:
    client = await connect.ours(elastic, "latency_based")
    await client.reads(count=100)
    settle(elastic)
    before = client.stats()
    old, new = elastic.primaries[0], elastic.replicas[0]
    log = await under_load(client, hands, lambda: swap(elastic.nodes, old, new))
    back = await under_load(client, hands, lambda: swap(elastic.nodes, new, old))
    assert log.errors == back.errors == []
    after = client.stats()
    assert after.keys() == before.keys()
    assert all(after[e].successes > before[e].successes for e in before)


async def test_a_read_that_is_redirected_to_a_dead_node_ends(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    """It was sent round between the node that redirects and the one that is dead, for ever."""
    source, target = lonely.primaries
    key = key_on(lonely, 0)
    client = await connect.ours(lonely, "latency_based", **connect.retries(0), socket_timeout=0.2)
    assert await client.get(key) == key
    move(lonely, key, source, target)
    try:
        with frozen(target):
            async with asyncio.timeout(10):
                [answer] = await client.together([("get", key)])
        assert isinstance(answer, library.errors.TimeoutError)
        assert client.stats()[target.endpoint].timeouts == connect.attempts(0)
        assert await client.get(key) == key
    finally:
        move(lonely, key, target, source)
