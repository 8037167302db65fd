"""Opting in a client that something else built, and opting out again."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest

from bench.servers.redis import RedisClusterServers
from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy
from lb_strategies_redis import use_strategy

from . import library
from .drivers import Connector, Driver, Mode
from .nodes import KEYS, calls, moved_replies, since
from .policies import Greatest

pytestmark = pytest.mark.integration


if TYPE_CHECKING:
    from redis.asyncio.cluster import RedisCluster as AsyncStock
    from redis.cluster import RedisCluster as Stock
else:
    Stock, AsyncStock = library.STOCK["sync"], library.STOCK["asyncio"]


class SyncSub(Stock):
    """A user's own client."""

    def greet(self) -> Any:
        return self.get("key:0")


class AsyncSub(AsyncStock):
    """The same, for asyncio."""

    async def greet(self) -> Any:
        return await self.get("key:0")


OF_THE_LIBRARY = sorted({"round_robin", library.OWN[-1], library.REPLICAS_ONLY or "round_robin"})
"""Some strategies that the library itself carries out."""

OF_OTHERS = [
    strategy
    for strategy in ("round_robin", "round_robin_replicas", "random", "random_replica")
    if strategy not in library.OWN
]
"""Those that it does not have."""


def adopt(driver: Driver, strategy: Any, **options: Any) -> LoadBalancer:
    balancer = use_strategy(driver.client, strategy, **options)
    assert balancer is not None
    driver.balancer = balancer
    return balancer


@pytest.mark.parametrize("before", [None, *OF_THE_LIBRARY])
@pytest.mark.parametrize("used", [False, True])
async def test_a_stock_client_is_opted_in(
    connect: Connector, shard: RedisClusterServers, before: str | None, used: bool
) -> None:
    """Its replicas are told that they may be read from: each connection, also those there are."""
    client = await connect.stock(shard, **library.read_from_replicas(before))
    if used:
        await client.reads(count=10)
        await client.set("w", "v")
    same = client.client
    adopt(client, "latency_based_replicas")
    assert client.client is same
    assert isinstance(client.client, connect.stock_class)
    counts = calls(shard.nodes), [moved_replies(node) for node in shard.nodes]
    log = await client.reads(count=200)
    assert log.values == ["key:0"] * 200
    spread = since(counts[0], shard.nodes)
    assert spread.pop(shard.primaries[0].endpoint) == 0
    assert min(spread.values()) > 0
    assert [moved_replies(node) for node in shard.nodes] == counts[1]
    assert await client.set("w", "v")
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)


async def test_readonly_is_sent_on_every_new_connection(
    connect: Connector, shard: RedisClusterServers
) -> None:
    """https://github.com/redis/ioredis/issues/1583: a reconnect without it loops on MOVED."""
    adopted = await connect.stock(shard)
    adopt(adopted, "latency_based_replicas")
    for client in (adopted, await connect.ours(shard, "latency_based_replicas")):
        await client.reads(count=50)
        before = [moved_replies(node) for node in shard.nodes], calls(shard.replicas)
        for _ in range(2):
            for replica in shard.replicas:
                replica.ask("CLIENT", "KILL", "TYPE", "NORMAL")
            log = await client.reads(count=100, pause=0.001)
            assert log.errors == []
            assert await client.together([("get", "key:0")] * 8) == ["key:0"] * 8
        assert [moved_replies(node) for node in shard.nodes] == before[0]
        assert min(since(before[1], shard.replicas).values()) > 0


@pytest.mark.parametrize("mode", ["asyncio"], indirect=True)  # the sync one connects when made
@pytest.mark.parametrize("strategy", ["latency_based", "latency_based_replicas"])
async def test_an_asyncio_client_is_opted_in_before_its_first_use(
    connect: Connector, shard: RedisClusterServers, strategy: str
) -> None:
    client = await connect.of(connect.stock_class, shard, initialize=False)
    adopt(client, strategy)
    before = [moved_replies(node) for node in shard.nodes]
    counts = calls(shard.nodes)
    log = await client.reads(count=100)
    assert log.errors == []
    spread = since(counts, shard.nodes)
    if strategy == "latency_based_replicas":
        # redis-py itself sends the first command of all, made before it knows a slot, anywhere.
        assert spread[shard.primaries[0].endpoint] <= 1
    assert min(spread[node.endpoint] for node in shard.replicas) > 0
    assert [moved_replies(node) for node in shard.nodes] == before
    assert client.stats().keys() == {node.endpoint for node in shard.nodes}


async def test_a_subclass_of_the_users_own_keeps_its_methods(
    connect: Connector, shard: RedisClusterServers
) -> None:
    cls = SyncSub if connect.mode == "sync" else AsyncSub
    client = await connect.of(cls, shard)
    neighbour = await connect.of(cls, shard)
    adopt(client, "latency_based")
    assert isinstance(client.client, cls)
    assert await client.greet() == "key:0"
    assert client.total("picks") == 1
    assert type(neighbour.client) is cls
    assert await neighbour.greet() == "key:0"
    assert type(client.client).__name__ == cls.__name__


@pytest.mark.parametrize("back", [None, *OF_THE_LIBRARY])
@pytest.mark.parametrize("ours", [False, True])
async def test_switching_back_restores_the_librarys_own_code(
    connect: Connector, shard: RedisClusterServers, back: Any, ours: bool
) -> None:
    if ours:
        client = await connect.ours(shard, "latency_based")
    else:
        client = await connect.stock(shard)
    types = type(client.client), type(client.client.nodes_manager)
    balancer = use_strategy(client.client, "latency_based")
    assert isinstance(balancer, LoadBalancer)
    await client.reads(count=60)
    await client.pipeline([("get", key) for key in KEYS])
    assert use_strategy(client.client, back) is None
    client.balancer = None

    module = library.cluster if connect.mode == "sync" else library.aio_cluster
    assert isinstance(type(client.client).execute_command, type(lambda: None))
    assert type(client.client.nodes_manager) is module.NodesManager
    assert type(client.client.nodes_manager.read_load_balancer) is library.cluster.LoadBalancer
    if not ours:
        assert (type(client.client), type(client.client.nodes_manager)) == types
    assert library.chosen_by(client.client) == back

    before = calls(shard.nodes), balancer.snapshot(now=0.0)
    log = await client.reads(count=60)
    assert log.values == ["key:0"] * 60
    assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
    assert await client.set("w", "v")
    spread = since(before[0], shard.nodes)
    on_primary = spread[shard.primaries[0].endpoint]
    assert sum(spread.values()) == 60 + len(KEYS)
    if back is None:
        assert on_primary == sum(spread.values())
    else:
        assert min(spread[node.endpoint] for node in shard.replicas) >= 20
    assert {e: s.picks for e, s in balancer.snapshot(now=0.0).items()} == {
        e: s.picks for e, s in before[1].items()
    }


@pytest.mark.skipif(not OF_OTHERS, reason=f"{library.TITLE} has every strategy there is")
@pytest.mark.parametrize("through", ["constructor", "use_strategy"])
async def test_a_strategy_that_the_library_does_not_have_is_refused(
    connect: Connector, shard: RedisClusterServers, through: str
) -> None:
    stock = (await connect.stock(shard)).client
    cls = library.OURS[connect.mode]
    attempts: dict[str, Callable[[Any], object]] = {
        "constructor": lambda form: cls(host="127.0.0.1", port=1, load_balancing_strategy=form),
        "use_strategy": lambda form: use_strategy(stock, form),
    }
    for strategy in OF_OTHERS:
        for form in (strategy, LoadBalancingStrategy(strategy)):
            with pytest.raises(ValueError, match=f"{strategy}.*{re.escape(library.VERSION)}"):
                attempts[through](form)
    assert type(stock) is connect.stock_class


async def test_switching_between_strategies_starts_anew(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.ours(shard, "latency_based")
    first = client.balancer
    await client.reads(count=30)
    second = use_strategy(client.client, "latency_based_replicas")
    third = use_strategy(client.client, Greatest())
    assert third is client.client.load_balancer is not second is not first
    before = calls(shard.nodes)
    await client.reads(count=30)
    chosen = max(node.endpoint for node in shard.nodes)
    assert since(before, shard.nodes)[chosen] == 30
    assert client.total("picks") == 30


async def test_opting_in_while_requests_are_in_flight(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.stock(shard)
    for strategy in ("latency_based", None, "hybrid", "round_robin", "boltzmann"):
        calls_ = [("get", key) for key in KEYS[:16]]
        running = client.together(calls_)
        client.balancer = use_strategy(client.client, strategy)
        assert await running == list(KEYS[:16])
        assert await client.together(calls_) == list(KEYS[:16])
    assert client.total("in_flight") == 0


async def test_options_are_used(connect: Connector, shard: RedisClusterServers) -> None:
    options = BalancerOptions(decay=2.0)
    client = await connect.stock(shard)
    balancer = adopt(client, LoadBalancingStrategy.LATENCY_BASED, balancer_options=options)
    assert balancer.options is options
    assert balancer.strategy is LoadBalancingStrategy.LATENCY_BASED


NAMES = "round_robin, .*latency_based, .*hybrid"


async def test_bad_input_is_refused_and_changes_nothing(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.stock(shard)
    types = type(client.client), type(client.client.nodes_manager)
    with pytest.raises(ValueError, match=NAMES):
        use_strategy(client.client, "fastest")
    with pytest.raises(ValueError, match=NAMES):
        use_strategy(client.client, 7)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="balancer_options"):
        use_strategy(client.client, "round_robin", balancer_options=BalancerOptions())
    with pytest.raises(ValueError, match="balancer_options"):
        use_strategy(client.client, None, balancer_options=BalancerOptions())
    with pytest.raises(TypeError, match="BalancerOptions"):
        use_strategy(client.client, "hybrid", balancer_options={"decay": 1})  # type: ignore[arg-type]
    assert (type(client.client), type(client.client.nodes_manager)) == types
    assert library.chosen_by(client.client) is None
    assert await client.get("key:0") == "key:0"


async def test_what_is_no_cluster_client_is_named(
    connect: Connector, shard: RedisClusterServers
) -> None:
    client = await connect.stock(shard)
    pipe = client.client.pipeline()
    single = library.NAME.capitalize()
    wrong: list[tuple[Any, str]] = [
        (getattr(library.package, single)(port=shard.port), single),
        (getattr(library.aio_package, single)(port=shard.port), single),
        (object(), "object"),
        (None, "NoneType"),
        (connect.stock_class, ""),  # the class in place of an object
        (pipe, "ClusterPipeline"),
    ]
    for target, name in wrong:
        with pytest.raises(TypeError, match=rf"got .*{name}"):
            use_strategy(target, "latency_based")


def constructor(mode: Mode) -> Any:
    return library.OURS[mode]


def test_the_constructor_refuses_bad_input_before_it_connects(mode: Mode) -> None:
    cls = constructor(mode)
    nowhere = {"host": "127.0.0.1", "port": 1}
    with pytest.raises(ValueError, match=NAMES):
        cls(**nowhere, load_balancing_strategy="fastest")
    with pytest.raises(ValueError, match="balancer_options"):
        cls(**nowhere, balancer_options=BalancerOptions())
    with pytest.raises(ValueError, match="balancer_options"):
        cls(**nowhere, load_balancing_strategy="round_robin", balancer_options=BalancerOptions())
    with pytest.raises(TypeError, match="BalancerOptions"):
        cls(**nowhere, load_balancing_strategy="hybrid", balancer_options=7)
