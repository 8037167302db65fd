"""A client that lives long sees many addresses: those that are gone take no memory."""

from __future__ import annotations

import gc
import tracemalloc
from dataclasses import dataclass
from time import perf_counter

from lb_strategies import LoadBalancingStrategy, Outcome
from lb_strategies_redis._library import REDIS
from lb_strategies_redis._router import Router

CHANGES = 10_000
STAYING = ("10.0.0.1:6379", "10.0.0.2:6379")
SLACK = 50_000
"""Bytes; ten of each change would already be twice as much."""


@dataclass(frozen=True)
class Node:
    """What the router needs of a node of redis-py."""

    name: str


def test_ten_thousand_addresses_come_and_go() -> None:
    """https://github.com/alisaifee/coredis/issues/149: stale addresses were kept."""
    router = Router(REDIS, LoadBalancingStrategy.LATENCY_BASED, None)

    def live_through(changes: range) -> None:
        for i in changes:
            names = (*STAYING, f"10.1.{i >> 8}.{i & 255}:6379")
            router.topology_changed(names)
            shard = router.shard(0, {0: [Node(name) for name in names]})
            for _ in range(2):
                pick = shard.acquire("GET", ())
                pick.done(Outcome.SUCCESS, now=perf_counter())
            # A redirect to an address that no refresh has confirmed, still in flight at the next.
            router.balancer.begin(f"10.2.{i >> 8}.{i & 255}:6379", now=perf_counter())

    tracemalloc.start()
    try:
        live_through(range(CHANGES // 10))
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        live_through(range(CHANGES // 10, CHANGES))
        router.topology_changed(STAYING)
        gc.collect()
        growth = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert growth < SLACK
    stats = router.balancer.snapshot(now=perf_counter())
    assert stats.keys() == set(STAYING)
    assert sum(s.picks for s in stats.values()) > CHANGES // 2
    assert all(s.successes == s.picks and s.in_flight == 0 for s in stats.values())
