"""Servers that refuse, load, or have lost their primary: the read goes elsewhere at once."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from statistics import median
from typing import Any, TypeAlias

import pytest

from bench.scenarios.redis_loading import loading, master_down
from bench.servers.redis import RedisClusterServers, RedisNode

from . import library
from .drivers import Command, Connector, Driver
from .measuring import sleeping
from .nodes import KEYS, calls, fill, frozen, killed, since

pytestmark = pytest.mark.integration

Fault: TypeAlias = Callable[[RedisClusterServers, RedisNode], AbstractContextManager[None]]

STRATEGIES = ["latency_based", "latency_based_replicas", "hybrid"]
SLEEP = 0.25
"""Seconds that redis-py sleeps when a server answers MASTERDOWN or CLUSTERDOWN."""


@pytest.fixture(scope="module")
def _breakable() -> Iterator[RedisClusterServers]:
    with RedisClusterServers(primaries=1, replicas=2) as servers:
        yield servers


@pytest.fixture
def breakable(_breakable: RedisClusterServers) -> RedisClusterServers:
    """Servers of this module alone: to load slowly they get keys that no primary has."""
    fill(_breakable)
    return _breakable


@contextlib.contextmanager
def busy_loading(servers: RedisClusterServers, node: RedisNode) -> Iterator[None]:
    """Keep `node` answering LOADING: some 15 s of real work."""
    node.ask("DEBUG", "POPULATE", 30_000, "filler", 100)
    with loading(node):
        yield


@contextlib.contextmanager
def without_primary(servers: RedisClusterServers, node: RedisNode) -> Iterator[None]:
    """Keep `node` answering MASTERDOWN."""
    with master_down(node):
        yield


FAULTS = {"refused": killed, "LOADING": busy_loading, "MASTERDOWN": without_primary}


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("fault", FAULTS.values(), ids=FAULTS)
async def test_no_error_reaches_the_user(
    connect: Connector, breakable: RedisClusterServers, fault: Fault, strategy: str
) -> None:
    """https://github.com/Grokzen/redis-py-cluster/issues/244, redis/go-redis#1031 and #3164.

    The stock client raises in 50 to 75 % of the reads, and go-redis for pipelines.
    """
    client = await connect.ours(breakable, strategy)
    piped = await connect.ours(breakable, strategy)
    mixed = await connect.ours(breakable, strategy)
    sick = breakable.replicas[0]
    for each in (client, piped, mixed):
        await each.reads(count=10)
    with fault(breakable, sick):
        late = await connect.ours(breakable, strategy)
        with sleeping() as pauses:
            for reader in (client, late):
                log = await reader.reads(count=150, keys=KEYS)
                assert log.errors == []
                assert log.values == [KEYS[i % len(KEYS)] for i in range(150)]
                assert median(log.latencies) < 0.1 * SLEEP
            for _ in range(20):
                assert await piped.pipeline([("get", key) for key in KEYS[:10]]) == list(KEYS[:10])
                both = [("set", "{w}1", "v"), ("get", "key:0"), ("incr", "{w}2"), ("get", "key:1")]
                done, zero, _, one = await mixed.pipeline(both)
                assert (done, zero, one) == (True, "key:0", "key:1")
        assert pauses == []
        tried = [each.stats()[sick.endpoint] for each in (client, piped, mixed)]
        # It was not spared by chance: somebody asked it, and learned.
        assert sum(stats.failures for stats in tried) > 0
        assert all(stats.in_flight == 0 for stats in tried)


async def test_a_write_in_a_pipeline_is_done_once_when_a_read_beside_it_is_retried(
    connect: Connector, breakable: RedisClusterServers
) -> None:
    client = await connect.ours(breakable, "latency_based_replicas")
    with without_primary(breakable, breakable.replicas[0]):
        for i in range(1, 21):
            counter, value = await client.pipeline([("incr", "counter"), ("get", "key:0")])
            assert (counter, value) == (i, "key:0")


async def test_a_refused_read_does_not_sleep_where_the_stock_client_does(
    connect: Connector, breakable: RedisClusterServers
) -> None:
    """MASTERDOWN: 250 to 750 ms for each read of the stock client, and then an error."""
    strategy = library.REPLICAS_ONLY or "round_robin"
    stock = await connect.stock(breakable, **library.read_from_replicas(strategy))
    client = await connect.ours(breakable, "latency_based_replicas")
    with (
        without_primary(breakable, breakable.replicas[0]),
        without_primary(breakable, breakable.replicas[1]),
    ):
        with sleeping() as pauses:
            theirs = await stock.reads(count=4)
        assert SLEEP in pauses
        with sleeping() as pauses:
            ours = await client.reads(count=100)
        assert pauses == []
    assert theirs.errors
    assert ours.errors == []
    assert median(ours.latencies) < 0.05 * max(theirs.latencies)


async def test_a_replica_that_loads_is_left_alone_and_then_used_again(
    connect: Connector, breakable: RedisClusterServers
) -> None:
    """https://github.com/kubernetes/ingress-nginx/issues/5540: fast failures look fast."""
    client = await connect.ours(breakable, "latency_based")
    sick = breakable.replicas[0]
    with busy_loading(breakable, sick):
        await client.reads(count=50)
        failures = client.stats()[sick.endpoint].failures
        log = await client.reads(count=300)
        assert log.errors == []
        # Ten in a row would be a share of 3 %; its fair one is a third.
        assert client.stats()[sick.endpoint].failures - failures <= 10
    before = calls([sick])
    end = time.monotonic() + 15
    while not sum(since(before, [sick]).values()) and time.monotonic() < end:
        await client.reads(count=50, pause=0.002)
    assert sum(since(before, [sick]).values()) > 0


@contextlib.contextmanager
def all_killed(servers: RedisClusterServers) -> Iterator[None]:
    with killed(servers, *servers.nodes):
        yield


@contextlib.contextmanager
def all_frozen(servers: RedisClusterServers) -> Iterator[None]:
    with frozen(*servers.nodes):
        yield


@contextlib.contextmanager
def all_loading(servers: RedisClusterServers) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for node in servers.nodes:
            stack.enter_context(busy_loading(servers, node))
        yield


@contextlib.contextmanager
def all_replicas_without_primary(servers: RedisClusterServers) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for node in servers.replicas:
            stack.enter_context(without_primary(servers, node))
        stack.enter_context(frozen(*servers.primaries))
        yield


async def outcomes(client: Driver, commands: Sequence[Command]) -> list[Any]:
    """Return what a pipeline gives, or the error that it raises although told not to."""
    try:
        return await client.pipeline(commands, raise_on_error=False)
    except Exception as error:
        return [error]


DISASTERS = {
    "killed": all_killed,
    "frozen": all_frozen,
    "loading": all_loading,
    "without primary": all_replicas_without_primary,
}


@pytest.mark.parametrize("disaster", DISASTERS.values(), ids=DISASTERS)
async def test_when_nobody_can_serve_the_user_sees_redis_pys_own_error(
    connect: Connector,
    breakable: RedisClusterServers,
    disaster: Callable[[RedisClusterServers], AbstractContextManager[None]],
) -> None:
    options = {"socket_timeout": 0.3, "socket_connect_timeout": 0.3}
    client = await connect.ours(
        breakable, "latency_based_replicas", **connect.retries(1), **options
    )
    await client.reads(count=10)
    with disaster(breakable):
        start = time.perf_counter()
        log = await client.reads(count=3)
        piped = await outcomes(client, [("get", "key:0"), ("get", "key:1")])
        elapsed = time.perf_counter() - start
        assert client.total("in_flight") == 0
    assert len(log.errors) == 3
    for error in (*log.errors, *piped):
        # Not one of ours, such as Unfit, and not an answer.
        assert type(error).__module__ == library.errors.__name__
    assert elapsed < 30
    # And it was no lasting damage, except that servers keep nothing on disk.
    fill(breakable)
    log = await client.reads(count=20, keys=KEYS)
    assert log.values == list(KEYS[:20])


async def test_a_lone_primary_that_loads_gives_the_stock_clients_error(
    connect: Connector, lonely: RedisClusterServers
) -> None:
    clients = [
        await connect.stock(lonely, **connect.retries(1)),
        await connect.ours(lonely, "latency_based", **connect.retries(1)),
    ]
    seen = []
    with contextlib.ExitStack() as stack:
        for node in lonely.nodes:
            stack.enter_context(busy_loading(lonely, node))
        for client in clients:
            log = await client.reads(count=2)
            [piped] = await outcomes(client, [("get", "key:0")])
            seen.append([type(error) for error in (*log.errors, piped)])
    assert seen[0] == seen[1]
    assert len(seen[0]) == 3


async def test_masterdown_of_the_only_replica_asked_by_name_is_the_users(
    connect: Connector, breakable: RedisClusterServers
) -> None:
    """A read that names its node has no other: redis-py's error, not ours."""
    client = await connect.ours(breakable, "latency_based", **connect.retries(0))
    sick = breakable.replicas[0]
    node = client.client.get_node(host=sick.host, port=sick.port)
    with without_primary(breakable, sick), pytest.raises(library.errors.MasterDownError) as caught:
        await client.execute_command("GET", "key:0", target_nodes=node)
    assert type(caught.value) is library.errors.MasterDownError
