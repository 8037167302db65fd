"""What does routing cost a request to a leader-based store, beside the request itself?

``pytest bench/micro/test_plan.py`` measures a plan that is answered at its first attempt: choosing,
counting, learning, and the clock reads they need. Expected: below 8 us for a read with HYBRID, and
below 6 us for a write, on an idle core.
"""

from __future__ import annotations

import random
from time import perf_counter
from typing import Any

import pytest
from pytest_benchmark.fixture import BenchmarkFixture

from lb_strategies import LoadBalancingStrategy, MemberStatus, Operation, OperationClass
from lb_strategies.consensus import Authenticate, ConsensusRouter, Plan, Reply, Send, drive

OPERATIONS = [
    Operation(OperationClass.LINEARIZABLE_READ, "get"),
    Operation(OperationClass.WRITE, "put"),
]
STRATEGIES = [
    LoadBalancingStrategy.ROUND_ROBIN,
    LoadBalancingStrategy.HYBRID,
    LoadBalancingStrategy.LATENCY_BASED,
    LoadBalancingStrategy.BOLTZMANN,
]
WARM_UP = 5000


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.label)
@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.value)
def test_a_plan_with_one_attempt(
    benchmark: BenchmarkFixture, strategy: LoadBalancingStrategy, operation: Operation
) -> None:
    """Three members, a time limit of one second, an answer that tells the term."""
    router = ConsensusRouter(("a:1", "b:1", "c:1"), strategy, rng=random.Random(1))
    for member in router.tracker.members:
        router.tracker.status(member, MemberStatus(term=1, leader="a:1"))

    def send(step: Send) -> Reply[None]:
        return Reply(None, perf_counter(), 1)

    def authenticate(step: Authenticate) -> None:
        raise AssertionError

    def request() -> None:
        plan: Plan[None] = router.plan(operation, now=perf_counter(), timeout=1.0)
        drive(plan, send, authenticate, clock=perf_counter)

    for _ in range(WARM_UP):
        request()
    untyped: Any = benchmark
    untyped.pedantic(request, rounds=200, iterations=100, warmup_rounds=20)
