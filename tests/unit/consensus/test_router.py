"""Where each operation goes under each strategy, and what its end teaches."""

from __future__ import annotations

import logging
import random
from collections.abc import Hashable
from typing import Any

import pytest

from lb_strategies import (
    ConsensusOptions,
    FailureKind,
    MemberStatus,
    Operation,
    OperationClass,
    Outcome,
    Pick,
    StatusRefusedError,
)
from lb_strategies import LoadBalancingStrategy as Strategy
from lb_strategies.consensus import ConsensusRouter
from tests.unit.scripted import MS, ejected, fail, in_flight
from tests.unit.test_balancer import First

from .scripted import (
    ABC,
    LEADER_STREAM,
    READ,
    STALE,
    STICKY_STREAM,
    WRITE,
    Play,
    led,
    make_router,
    missed,
)

ANYWHERE = set(ABC)
FOLLOWERS = {"b", "c"}
LEADER = {"a"}


def targets(
    router: ConsensusRouter, operation: Operation, *, times: int = 60, now: float = 0.0
) -> set[Hashable]:
    """Return where the operation goes, done so often."""
    members = set()
    for index in range(times):
        pick = router.acquire(operation, now=now + index * MS)
        members.add(pick.endpoint)
        router.succeeded(pick, operation, now=now + index * MS + MS)
    return members


def counts(router: ConsensusRouter, member: Hashable) -> tuple[int, int, int, int]:
    """Return successes, failures, timeouts and cancellations."""
    stats = router.balancer.snapshot(now=1e6)[member]
    return stats.successes, stats.failures, stats.timeouts, stats.cancellations


# -- the table of strategies ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "reads", "writes"),
    [
        (Strategy.ROUND_ROBIN, ANYWHERE, ANYWHERE),
        (Strategy.ROUND_ROBIN_REPLICAS, FOLLOWERS, FOLLOWERS),
        (Strategy.RANDOM, ANYWHERE, ANYWHERE),
        (Strategy.RANDOM_REPLICA, FOLLOWERS, FOLLOWERS),
        (Strategy.LATENCY_BASED, ANYWHERE, LEADER),
        (Strategy.LATENCY_BASED_REPLICAS, FOLLOWERS, LEADER),
        (Strategy.HYBRID, ANYWHERE, LEADER),
        (Strategy.BOLTZMANN, ANYWHERE, ANYWHERE),
    ],
)
def test_where_a_strategy_sends_reads_and_writes(
    strategy: Strategy, reads: set[Hashable], writes: set[Hashable]
) -> None:
    router = make_router(strategy, rng=random.Random(1))
    assert targets(router, READ) == reads
    assert targets(router, STALE, now=10.0) == reads
    assert targets(router, WRITE, now=20.0) == writes


def test_a_policy_of_the_users_own_chooses_for_reads() -> None:
    router = ConsensusRouter(("b", "a", "c"), First())
    led(router, "a")
    assert targets(router, WRITE) == {"a"}
    assert "b" in targets(router, READ)


@pytest.mark.parametrize("strategy", [Strategy.ROUND_ROBIN, Strategy.RANDOM])
def test_the_baselines_ask_whoever_votes_in_whatever_state(strategy: Strategy) -> None:
    router = make_router(strategy, rng=random.Random(1))
    missed(router.tracker, "b")
    router.tracker.found_learner("c")
    assert targets(router, READ) == targets(router, WRITE, now=10.0) == {"a", "b"}


@pytest.mark.parametrize(
    "strategy",
    [
        Strategy.ROUND_ROBIN_REPLICAS,
        Strategy.RANDOM_REPLICA,
        Strategy.LATENCY_BASED_REPLICAS,
    ],
)
def test_without_a_follower_the_leader_serves(strategy: Strategy) -> None:
    router = make_router(strategy, members=["a"])
    assert targets(router, READ) == targets(router, STALE) == targets(router, WRITE) == {"a"}


def test_the_leader_serves_while_no_follower_is_healthy() -> None:
    router = make_router(Strategy.LATENCY_BASED_REPLICAS, rng=random.Random(1))
    targets(router, READ)
    for follower in FOLLOWERS:
        fail(router.balancer, follower, now=1.0)
    assert ejected(router.balancer, now=1.0) == FOLLOWERS
    assert targets(router, READ, times=5, now=1.0) == {"a"}


def test_stale_reads_go_to_learners_too() -> None:
    router = make_router(leader=None, rng=random.Random(1))
    for member in ABC:
        router.tracker.status(member, MemberStatus(term=1, leader="a", learner=member == "b"))
    assert targets(router, STALE) == ANYWHERE
    assert targets(router, READ, now=10.0) == {"a", "c"}
    only = make_router(Strategy.LATENCY_BASED_REPLICAS, rng=random.Random(1))
    only.tracker.found_learner("b")
    assert targets(only, STALE) == {"b", "c"}
    assert targets(only, READ, now=10.0) == {"c"}


def test_a_member_that_is_out_gets_nothing() -> None:
    router = make_router(rng=random.Random(1))
    missed(router.tracker, "b")
    assert targets(router, READ) == targets(router, STALE, now=10.0) == {"a", "c"}


def test_writes_rotate_while_nobody_is_known_to_lead() -> None:
    router = make_router(leader=None, rng=random.Random(1))
    assert targets(router, WRITE) == ANYWHERE


def test_what_names_its_member_goes_there() -> None:
    router = make_router()
    operation = Operation(OperationClass.MEMBER, "status", member="b")
    missed(router.tracker, "b")
    assert targets(router, operation) == {"b"}
    assert router.assign(operation, now=1.0) == "b"
    unnamed = Operation(OperationClass.MEMBER, "status")
    assert targets(router, unnamed, now=2.0) == {"a", "c"}


# -- exclusions -----------------------------------------------------------------------------


def test_a_write_avoids_a_leader_that_was_tried() -> None:
    router = make_router()
    assert router.acquire(WRITE, now=0.0, exclude=("a",)).endpoint in FOLLOWERS


def test_one_that_is_out_is_asked_before_one_that_was_tried() -> None:
    router = make_router()
    missed(router.tracker, "c")
    assert router.acquire(READ, now=0.0, exclude=("a", "b")).endpoint == "c"
    assert router.acquire(WRITE, now=0.0, exclude=("a", "b")).endpoint == "c"


def test_if_all_were_tried_somebody_is_asked_again() -> None:
    router = make_router()
    assert router.acquire(READ, now=0.0, exclude=ABC).endpoint in ABC


# -- streams --------------------------------------------------------------------------------


def test_streams_are_assigned_and_are_no_requests_in_flight() -> None:
    router = make_router(rng=random.Random(1))
    assert {router.assign(LEADER_STREAM, now=0.0) for _ in range(5)} == {"a"}
    assert {router.assign(STICKY_STREAM, now=0.0) for _ in range(9)} == ANYWHERE
    assert set(in_flight(router.balancer, now=0.0).values()) == {0}


@pytest.mark.parametrize("operation", [WRITE, STICKY_STREAM, Operation(READ.kind, "lock", False)])
def test_only_reads_try_out_a_member_that_is_out(operation: Operation) -> None:
    """A write must not fail for it, and neither a write nor a stream tells how fast it is."""
    router = make_router(rng=random.Random(1), leader=None)
    targets(router, READ)
    fail(router.balancer, "b", now=1.0)
    now = 60.0
    assert "b" not in targets(router, operation, now=now, times=20)
    assert "b" not in {router.assign(operation, now=now) for _ in range(20)}
    assert router.acquire(READ, now=now + 1.0).is_probe


def test_with_boltzmann_writes_are_like_reads() -> None:
    router = make_router(Strategy.BOLTZMANN, rng=random.Random(1), cold_samples=0)
    targets(router, WRITE)
    fail(router.balancer, "b", now=1.0)
    assert router.acquire(WRITE, now=60.0).is_probe
    assert all(
        s.mean_rtt == pytest.approx(MS)
        for s in router.balancer.snapshot(now=1.0).values()
        if s.failures == 0
    )


# -- what an end teaches --------------------------------------------------------------------


def done(router: ConsensusRouter, operation: Operation, kind: FailureKind | None) -> Pick:
    pick = router.acquire(operation, now=10.0)
    if kind is None:
        router.succeeded(pick, operation, now=10.0 + 5 * MS)
    else:
        router.failed(pick, operation, kind, now=10.0 + 5 * MS)
    assert set(in_flight(router.balancer, now=11.0).values()) == {0}
    return pick


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        (FailureKind.UNREACHABLE, (0, 1, 0, 0)),
        (FailureKind.INTERRUPTED, (0, 1, 0, 0)),
        (FailureKind.OVERLOADED, (0, 1, 0, 0)),
        (FailureKind.TIMED_OUT, (0, 0, 1, 0)),
        (FailureKind.CANCELLED, (0, 0, 0, 1)),
        (FailureKind.LEADER_LOST, (1, 0, 0, 0)),
        (FailureKind.BEHIND, (1, 0, 0, 0)),
        (FailureKind.ANSWER, (1, 0, 0, 0)),
        (FailureKind.NO_LEADER, (0, 0, 0, 0)),
        (FailureKind.DROPPED, (0, 0, 0, 0)),
        (FailureKind.LEARNER, (0, 0, 0, 0)),
        (FailureKind.UNAUTHENTICATED, (0, 0, 0, 0)),
    ],
)
@pytest.mark.parametrize("operation", [READ, WRITE], ids=["read", "write"])
def test_what_a_failure_says_of_the_member(
    operation: Operation, kind: FailureKind, expected: tuple[int, int, int, int]
) -> None:
    router = make_router(members=["a"])
    done(router, operation, kind)
    assert counts(router, "a") == expected


def test_every_failure_is_in_the_table_above() -> None:
    [mark] = [
        m
        for m in test_what_a_failure_says_of_the_member.pytestmark  # type: ignore[attr-defined]
        if m.args[0] == ("kind", "expected")
    ]
    assert {kind for kind, _ in mark.args[1]} == set(FailureKind)


REFRESHING = {
    FailureKind.UNREACHABLE,
    FailureKind.INTERRUPTED,
    FailureKind.TIMED_OUT,
    FailureKind.NO_LEADER,
    FailureKind.DROPPED,
    FailureKind.LEADER_LOST,
}


@pytest.mark.parametrize("kind", FailureKind)
def test_some_failures_ask_for_a_poll(kind: FailureKind) -> None:
    asked: list[bool] = []
    router = make_router(refresh=lambda: asked.append(True))
    done(router, WRITE, kind)
    assert asked == [True] * (kind in REFRESHING)


@pytest.mark.parametrize("kind", FailureKind)
def test_some_failures_of_a_write_cost_the_leader_its_trust(kind: FailureKind) -> None:
    router = make_router()
    done(router, WRITE, kind)
    assert (router.tracker.leader is None) == (
        kind
        in (
            FailureKind.UNREACHABLE,
            FailureKind.INTERRUPTED,
            FailureKind.TIMED_OUT,
            FailureKind.NO_LEADER,
        )
    )


@pytest.mark.parametrize(
    ("kind", "leader"),
    [(FailureKind.UNREACHABLE, None), (FailureKind.INTERRUPTED, "a"), (FailureKind.TIMED_OUT, "a")],
)
def test_a_read_that_fails_on_the_leader_says_less(kind: FailureKind, leader: str | None) -> None:
    router = make_router()
    pick = router.balancer.begin("a", now=0.0)
    router.failed(pick, READ, kind, now=MS)
    assert router.tracker.leader == leader


def test_a_learner_and_a_leaderless_member_leave_the_voters() -> None:
    router = make_router()
    router.failed(router.balancer.begin("b", now=0.0), READ, FailureKind.LEARNER, now=MS)
    router.failed(router.balancer.begin("c", now=0.0), READ, FailureKind.NO_LEADER, now=MS)
    assert router.tracker.voters == ("a",)
    assert router.tracker.reachable == ABC


def test_a_higher_term_in_an_answer_asks_for_a_poll() -> None:
    asked: list[bool] = []
    router = make_router(refresh=lambda: asked.append(True))
    for term, leader in ((None, None), (1, None), (1, "b"), (2, "c"), (2, "c")):
        router.succeeded(router.acquire(READ, now=0.0), READ, now=MS, term=term, leader=leader)
    assert asked == [True]
    assert router.tracker.leader == "c"


# -- samples --------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", [Strategy.HYBRID, Strategy.LATENCY_BASED])
def test_the_first_three_answers_of_a_member_teach_nothing(strategy: Strategy) -> None:
    router = make_router(strategy, members=["a", "b"], rng=random.Random(1))
    now = 0.0
    for _ in range(3):
        for _ in range(2):
            pick = router.acquire(READ, now=now)
            now += 1.0  # a thousand times as long as later
            router.succeeded(pick, READ, now=now)
    targets(router, READ, now=now)
    means = [s.mean_rtt for s in router.balancer.snapshot(now=now).values()]
    assert means == pytest.approx([MS, MS])


def test_an_answer_of_the_stores_own_counts_among_the_first() -> None:
    router = make_router(members=["a"], cold_samples=1)
    pick = router.acquire(READ, now=0.0)
    router.failed(pick, READ, FailureKind.ANSWER, now=1.0)
    targets(router, READ, now=1.0)
    assert router.balancer.snapshot(now=2.0)["a"].mean_rtt == pytest.approx(MS)


def test_a_probe_that_decides_about_a_return_is_judged_at_once() -> None:
    router = make_router(rng=random.Random(1), members=["a", "b"])
    for _ in range(50):
        router.succeeded(router.balancer.begin("a", now=0.0, operation="range"), READ, now=MS)
    targets(router, READ, times=2)
    fail(router.balancer, "b", now=1.0)
    pick = router.acquire(READ, now=60.0)
    assert (pick.endpoint, pick.is_probe) == ("b", True)
    router.succeeded(pick, READ, now=60.0 + MS)
    assert ejected(router.balancer, now=60.1) == set()


def test_writes_and_what_blocks_are_no_samples() -> None:
    router = make_router(members=["a"], cold_samples=0)
    blocking = Operation(OperationClass.LINEARIZABLE_READ, "lock", timed=False)
    before = router.balancer.snapshot(now=0.0)["a"].mean_rtt
    for operation in (WRITE, blocking):
        router.succeeded(router.acquire(operation, now=0.0), operation, now=9.0)
        router.failed(router.acquire(operation, now=0.0), operation, FailureKind.ANSWER, now=9.0)
    assert router.balancer.snapshot(now=9.0)["a"].mean_rtt == before
    assert counts(router, "a")[0] == 2, "what blocks was given back when it began"


def test_a_slow_member_leaves_the_read_pool_but_not_the_writes() -> None:
    """8 ms instead of 1 ms on the leader, seen in five reads."""
    router = make_router(rng=random.Random(1), cold_samples=0)
    now, asked = 0.0, []
    for _ in range(300):
        pick = router.acquire(READ, now=now)
        now += 8 * MS if pick.endpoint == "a" else MS
        router.succeeded(pick, READ, now=now)
        asked.append(pick.endpoint)
    assert ejected(router.balancer, now=now) == {"a"}
    assert asked.count("a") <= 8
    assert targets(router, WRITE, now=now) == {"a"}


# -- attempt time-outs ----------------------------------------------------------------------


def test_a_read_is_given_ten_times_its_usual_time_but_at_least_the_option() -> None:
    router = make_router(attempt_timeout=0.1)

    def next_limit() -> float | None:
        pick = router.acquire(READ, now=0.0)
        pick.done(Outcome.CANCELLED, now=0.0)
        return router.attempt_timeout(READ, pick)

    assert next_limit() == pytest.approx(1.0), "never seen"
    router.succeeded(router.acquire(READ, now=0.0), READ, now=MS)
    assert next_limit() == 0.1
    router.succeeded(router.acquire(READ, now=0.0), READ, now=0.5)
    assert next_limit() == pytest.approx(5.0)
    for _ in range(400):
        router.succeeded(router.acquire(READ, now=0.0), READ, now=MS)
    assert next_limit() == 0.1, "it forgets what was unusual"


@pytest.mark.parametrize(
    "operation", [WRITE, LEADER_STREAM, STICKY_STREAM, Operation(READ.kind, "lock", timed=False)]
)
def test_nothing_but_a_timed_read_is_given_up(operation: Operation) -> None:
    router = make_router()
    pick = router.acquire(operation, now=0.0)
    router.succeeded(pick, operation, now=MS)
    assert router.attempt_timeout(operation, pick) is None


def test_a_read_that_nobody_else_could_serve_is_given_the_callers_time() -> None:
    router = make_router(members=["a", "b"], attempt_timeout=0.1)
    learning = [router.acquire(operation, now=0.0) for operation in (READ, STALE)]
    for pick, operation in zip(learning, (READ, STALE), strict=True):
        router.succeeded(pick, operation, now=MS)

    def limits() -> list[float | None]:
        found = []
        for operation in (READ, STALE):
            pick = router.acquire(operation, now=1.0)
            found += [router.limit(operation, pick, timeout) for timeout in (None, 0.05, 9.0)]
            pick.done(Outcome.CANCELLED, now=1.0)
        return found

    assert limits() == [0.1, 0.05, 0.1] * 2
    router.tracker.found_learner("b")
    assert limits() == [None, 0.05, 9.0, 0.1, 0.05, 0.1], "a stale read may ask the learner"
    router.update(["a"])
    assert limits() == [None, 0.05, 9.0] * 2


def test_a_read_of_one_named_member_is_given_the_callers_time() -> None:
    router = make_router(attempt_timeout=0.1)
    named = Operation(OperationClass.LINEARIZABLE_READ, "named", member="b")
    router.succeeded(router.acquire(named, now=0.0), named, now=MS)
    pick = router.acquire(named, now=1.0)
    assert pick.endpoint == "b"
    assert [router.limit(named, pick, timeout) for timeout in (None, 9.0)] == [None, 9.0]


def test_labels_without_end_take_no_memory_without_end() -> None:
    router = make_router(members=["a"])
    for label in range(1000):
        operation = Operation(OperationClass.LINEARIZABLE_READ, label)
        router.succeeded(router.acquire(operation, now=0.0), operation, now=MS)
    assert len(router.balancer._classes) <= router.options.balancer.max_classes


# -- membership -----------------------------------------------------------------------------


def test_members_that_stay_keep_their_history_and_new_ones_are_cold() -> None:
    router = make_router(cold_samples=2)
    targets(router, READ)
    router.update(["a", "d"])
    assert set(router.balancer.snapshot(now=1.0)) == {"a", "d"}
    assert router.tracker.leader == "a"
    assert router.balancer.snapshot(now=1.0)["a"].picks > 0
    assert router._cold == {"d": 2}
    router.update(["a"])
    assert router._cold == {}


def test_a_request_in_flight_may_outlive_its_member() -> None:
    router = make_router()
    pick = router.acquire(WRITE, now=0.0)
    router.update(["b", "c"])
    router.failed(pick, WRITE, FailureKind.UNREACHABLE, now=MS)
    router.succeeded(pick, WRITE, now=MS)
    assert set(router.balancer.snapshot(now=1.0)) == {"b", "c"}


# -- polls that fail ------------------------------------------------------------------------


def test_missed_polls_are_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    router = make_router()
    with caplog.at_level(logging.WARNING, logger="lb_strategies"):
        for _ in range(5):
            router.poll_failed("b", TimeoutError("secret"))
    assert [r.getMessage() for r in caplog.records] == ["b is out: it missed polls (TimeoutError)"]
    assert router.tracker.reachable == ("a", "c")


def test_a_refused_status_is_told_of_once_and_writes_rotate(
    caplog: pytest.LogCaptureFixture,
) -> None:
    router = make_router(leader=None, rng=random.Random(1))
    with caplog.at_level(logging.WARNING, logger="lb_strategies"):
        for member in ABC * 3:
            router.poll_failed(member, StatusRefusedError("permission denied"))
    [record] = caplog.records
    assert record.getMessage() == ("a does not tell who leads, so writes rotate: permission denied")
    assert targets(router, WRITE) == ANYWHERE


# -- bad input ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("members", "error", "message"),
    [
        ([], ValueError, "at least one endpoint, got none"),
        (["a", "b", "a"], ValueError, "must not hold an endpoint twice, got 'a' again"),
        ("abc", TypeError, "several endpoints, got the string 'abc'"),
        ([["a"]], TypeError, "hashable"),
    ],
)
def test_members_are_checked(members: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        ConsensusRouter(members, "hybrid")
    router = make_router()
    with pytest.raises(error, match=message):
        router.update(members)
    assert router.tracker.members == ABC


def test_options_and_strategy_are_checked() -> None:
    wrong: Any = {"backoff": 1.0}
    with pytest.raises(TypeError, match="options must be a ConsensusOptions, got"):
        ConsensusRouter(ABC, "hybrid", options=wrong)
    with pytest.raises(ValueError, match="unknown load balancing strategy"):
        ConsensusRouter(ABC, "fastest")
    assert ConsensusRouter(ABC, "hybrid").options == ConsensusOptions()


def test_a_single_member_works() -> None:
    router = make_router(members=["a"])
    play = Play.of(router)
    assert [play(READ), play(WRITE), play(STALE)] == ["a", "a", "a"]
    assert {step.timeout for step in play.sent} == {None}


def test_outcomes_that_no_failure_has_are_not_forgotten() -> None:
    """Cancelled while waiting for the same pick twice: the second time does nothing."""
    router = make_router()
    pick = router.acquire(READ, now=0.0)
    router.failed(pick, READ, FailureKind.CANCELLED, now=MS)
    pick.done(Outcome.SUCCESS, now=MS)
    assert counts(router, pick.endpoint) == (0, 0, 0, 1)
