"""What does one choice cost, beside the choice that redis-py makes itself?

``pytest bench/micro --benchmark-group-by=param:endpoints`` prints both per number of endpoints.
Expected: acquire + done is at most 3 times redis-py's own pick with the two clock reads that any
measured choice needs, and as fast with 256 endpoints as with 4.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable
from time import perf_counter
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture
from redis.cluster import ClusterNode, NodesManager
from redis.cluster import LoadBalancer as UpstreamLoadBalancer
from redis.cluster import LoadBalancingStrategy as UpstreamStrategy

from lb_strategies import LoadBalancer, LoadBalancingStrategy, Outcome

ENDPOINTS = [2, 4, 16, 256]
STRATEGIES = [
    LoadBalancingStrategy.LATENCY_BASED,
    LoadBalancingStrategy.HYBRID,
    LoadBalancingStrategy.BOLTZMANN,
]
# Picks before measuring: every endpoint has answered and nothing is a first time any more.
WARM_UP = 5000


@pytest.mark.parametrize("endpoints", ENDPOINTS)
def test_redis_py_round_robin_and_two_clock_reads(
    benchmark: BenchmarkFixture, endpoints: int
) -> None:
    """The yardstick: the client's own choice, and the clock reads that any measured one needs."""
    measure(benchmark, upstream_pick(endpoints))


@pytest.mark.parametrize("endpoints", ENDPOINTS)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.value)
def test_acquire_and_done(
    benchmark: BenchmarkFixture, strategy: LoadBalancingStrategy, endpoints: int
) -> None:
    """Ours: choose, count, learn, including both clock reads."""
    measure(benchmark, our_pick(strategy, endpoints))


def measure(benchmark: BenchmarkFixture, pick: Callable[[], None]) -> None:
    """Time ``pick`` in rounds long enough for the clock, many enough for a median."""
    untyped: Any = benchmark
    untyped.pedantic(pick, rounds=200, iterations=200, warmup_rounds=20)


def upstream_pick(endpoints: int) -> Callable[[], None]:
    """Return redis-py's own choice of a node, with a clock read before and after.

    The manager is made without its constructor, which would connect to a cluster.
    """
    node: Callable[..., ClusterNode] = ClusterNode  # its constructor has no annotations
    manager = NodesManager.__new__(NodesManager)
    manager._lock = threading.RLock()
    manager.read_load_balancer = UpstreamLoadBalancer()
    manager.slots_cache = {
        0: [node("127.0.0.1", i, "replica" if i else "primary") for i in range(endpoints)]
    }
    choose = manager.get_node_from_slot
    strategy = UpstreamStrategy.ROUND_ROBIN

    def pick() -> None:
        perf_counter()
        choose(0, False, strategy)
        perf_counter()

    return pick


def our_pick(strategy: LoadBalancingStrategy, endpoints: int) -> Callable[[], None]:
    """Return one acquire and one done, with the clock reads that they need."""
    balancer = LoadBalancer(strategy, rng=random.Random(1))
    candidates = tuple(f"127.0.0.1:{i}" for i in range(endpoints))
    acquire = balancer.acquire
    success = Outcome.SUCCESS

    def pick() -> None:
        chosen = acquire(candidates, now=perf_counter())
        chosen.done(success, now=perf_counter())

    for _ in range(WARM_UP):
        pick()
    return pick
