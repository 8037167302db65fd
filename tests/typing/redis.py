"""What a user of the Redis adapter writes; only type-checked, with mypy --strict."""

from __future__ import annotations

import random
import time
from collections.abc import Sequence
from typing import assert_type

import redis.asyncio.cluster
import redis.cluster

import lb_strategies_redis
from lb_strategies import (
    BalancerOptions,
    Candidate,
    EndpointStats,
    LoadBalancer,
    LoadBalancingStrategy,
)
from lb_strategies.telemetry import instrument
from lb_strategies_redis import AsyncRedisCluster, RedisCluster, use_strategy


class Mine:
    """A policy of the user's own."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return candidates[0]


def clients() -> None:
    for strategy in (None, LoadBalancingStrategy.LATENCY_BASED, "hybrid", Mine()):
        RedisCluster(host="10.0.0.1", port=6379, load_balancing_strategy=strategy)
        AsyncRedisCluster(host="10.0.0.1", port=6379, load_balancing_strategy=strategy)
    RedisCluster(
        host="10.0.0.1",
        load_balancing_strategy="latency_based",
        balancer_options=BalancerOptions(decay=5),
        decode_responses=True,
    )
    RedisCluster(load_balancing_strategy=7)  # type: ignore[arg-type]
    AsyncRedisCluster(balancer_options={})  # type: ignore[arg-type]


def is_a(sync: RedisCluster, aio: AsyncRedisCluster) -> None:
    first: redis.cluster.RedisCluster = sync
    second: redis.asyncio.cluster.RedisCluster = aio
    for client in (first, second):
        assert_type(use_strategy(client, "latency_based"), LoadBalancer | None)


def look(sync: RedisCluster, aio: AsyncRedisCluster) -> None:
    assert_type(sync.load_balancer, LoadBalancer | None)
    assert_type(aio.load_balancer, LoadBalancer | None)
    assert_type(sync.endpoint_stats(), dict[str, EndpointStats])
    assert_type(aio.endpoint_stats(), dict[str, EndpointStats])
    instrument(sync, name="orders")
    instrument(aio).close()
    instrument(sync, clock=time.perf_counter)  # type: ignore[call-overload]  # it has one


def managed(sync: RedisCluster) -> None:
    with sync as client:
        assert_type(client, RedisCluster)
    assert_type(RedisCluster.from_url("redis://10.0.0.1"), RedisCluster)
    assert_type(AsyncRedisCluster.from_url("redis://10.0.0.1"), AsyncRedisCluster)


async def managed_async(aio: AsyncRedisCluster) -> None:
    async with aio as client:
        assert_type(client, AsyncRedisCluster)
        assert_type(client.endpoint_stats(), dict[str, EndpointStats])
    assert_type(await aio, AsyncRedisCluster)


def opt_in(client: redis.cluster.RedisCluster, other: redis.Redis) -> None:
    use_strategy(client, LoadBalancingStrategy.HYBRID, balancer_options=BalancerOptions())
    use_strategy(client, Mine())
    use_strategy(client, None)
    use_strategy(other, None)  # type: ignore[arg-type]
    use_strategy(client, "hybrid", BalancerOptions())  # type: ignore[call-arg]


def names() -> list[str]:
    return lb_strategies_redis.__all__
