"""What happens after each failure: who is asked next, after which pause, or what is raised."""

from __future__ import annotations

import gc
import itertools
import random
import sys
import weakref
from collections.abc import Hashable, Sequence

import pytest

from lb_strategies import Candidate, FailureKind, Operation, OperationClass
from lb_strategies import LoadBalancingStrategy as Strategy
from lb_strategies.consensus import (
    Authenticate,
    ConsensusRouter,
    Done,
    Failure,
    Plan,
    Reply,
    Send,
    Sleep,
    drive,
)
from tests.unit.scripted import MS, in_flight

from .scripted import (
    ABC,
    READ,
    STALE,
    WRITE,
    Play,
    Says,
    Step,
    StoreError,
    led,
    make_router,
    missed,
)

READS = [READ, STALE]
OTHERS = [
    WRITE,
    Operation(OperationClass.LEADER_STREAM, "keep-alive"),
    Operation(OperationClass.STICKY_STREAM, "watch"),
    Operation(OperationClass.MEMBER, "status", member="b"),
]
NEVER_EXECUTED = {
    FailureKind.UNREACHABLE,
    FailureKind.NO_LEADER,
    FailureKind.LEARNER,
    FailureKind.BEHIND,
    FailureKind.OVERLOADED,
}
MAYBE_EXECUTED = {FailureKind.INTERRUPTED, FailureKind.LEADER_LOST}
RAISED = {FailureKind.TIMED_OUT, FailureKind.CANCELLED, FailureKind.ANSWER}


def expected_course(operation: Operation, kind: FailureKind) -> str:
    """Return what has to follow the first failure."""
    if kind is FailureKind.UNAUTHENTICATED:
        return "renew"
    if operation.member is not None or kind in RAISED:
        # A read's time-out was ours, as there is another member to ask.
        return "other" if kind is FailureKind.TIMED_OUT and operation.kind.is_read else "raise"
    if kind is FailureKind.DROPPED:
        return "same"
    if kind in MAYBE_EXECUTED and not operation.kind.is_read:
        return "raise"
    return "later" if kind is FailureKind.OVERLOADED else "other"


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("operation", [*READS, *OTHERS], ids=lambda o: o.kind.value)
def test_what_follows_a_failure(operation: Operation, kind: FailureKind) -> None:
    router = make_router()
    play = Play.of(router, kind)
    course = expected_course(operation, kind)
    if course == "raise":
        with pytest.raises(StoreError) as caught:
            play(operation)
        assert caught.value.kind is kind
        assert not hasattr(caught.value, "__notes__"), "there is nothing to add"
        assert len(play.steps) == 1
    else:
        play(operation)
        first, second = play.sent
        between = play.steps[1:-1]
        expected: dict[str, list[Step]] = {
            "renew": [Authenticate(first.endpoint, None)],
            "same": [Sleep(0.02)],
            "other": [],
            "later": [Sleep(0.025)],
        }
        assert between == expected[course]
        assert (first.endpoint == second.endpoint) == (course in ("renew", "same"))
    play.assert_nothing_in_flight()


def test_the_sets_above_are_all_there_is() -> None:
    assert (
        set(FailureKind)
        - {
            FailureKind.DROPPED,
            FailureKind.UNAUTHENTICATED,
        }
        == NEVER_EXECUTED | MAYBE_EXECUTED | RAISED
    )


# -- who is asked, and when -----------------------------------------------------------------


@pytest.mark.parametrize("operation", [READ, WRITE], ids=["read", "write"])
@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.NO_LEADER])
def test_everybody_is_asked_before_the_first_pause(operation: Operation, kind: FailureKind) -> None:
    router = make_router()
    play = Play.of(router, kind, kind, kind, kind)
    play(operation)
    assert set(play.asked[:3]) == set(ABC)
    assert [type(step) for step in play.steps] == [Send, Send, Send, Sleep, Send, Send]


def test_a_write_begins_with_the_leader() -> None:
    play = Play.of(make_router(), FailureKind.UNREACHABLE)
    play(WRITE)
    assert play.asked[0] == "a"


def test_a_member_that_is_out_is_asked_last() -> None:
    """Without a pause between them, and without asking the others twice at once."""
    router = make_router()
    missed(router.tracker, "b")
    play = Play.of(router, *[FailureKind.UNREACHABLE] * 3)
    play(READ)
    assert set(play.asked[:2]) == {"a", "c"}
    assert play.asked[2] == "b"
    assert [type(step) for step in play.steps] == [Send, Send, Send, Sleep, Send]


def test_pauses_double_up_to_the_longest() -> None:
    router = make_router(members=["a"], max_backoff=0.1)
    play = Play.of(router, *[FailureKind.UNREACHABLE] * 5)
    play(READ)
    assert play.pauses == pytest.approx([0.025, 0.05, 0.1, 0.1, 0.1])


def test_pauses_are_not_in_step_with_others() -> None:
    router = make_router(members=["a"], rng=random.Random(1), backoff=0.1, max_backoff=0.1)
    play = Play.of(router, *[FailureKind.UNREACHABLE] * 20)
    play(READ)
    assert len(set(play.pauses)) == 20
    assert all(0.075 <= pause <= 0.125 for pause in play.pauses)


def test_a_dropped_proposal_goes_to_the_same_member_and_the_leader_stays() -> None:
    router = make_router()
    play = Play.of(router, *[FailureKind.DROPPED] * 3)
    assert play(WRITE) == "a"
    assert play.asked == ["a"] * 4
    assert play.pauses == [0.02] * 3
    assert router.tracker.leader == "a"


def test_a_dropped_proposal_does_not_follow_a_member_that_left() -> None:
    router = make_router()

    def says(step: Send, sent: int) -> tuple[Says, float]:
        if sent:
            return None, MS
        router.update(["b", "c"])
        return FailureKind.DROPPED, MS

    play = Play(router, says)
    assert play(WRITE) in {"b", "c"}
    assert set(router.balancer.snapshot(now=play.now)) == {"b", "c"}


def test_members_may_join_and_leave_on_the_way() -> None:
    router = make_router()

    def says(step: Send, sent: int) -> tuple[Says, float]:
        if step.endpoint == "d":
            return None, MS
        router.update(["d"])
        return FailureKind.UNREACHABLE, MS

    play = Play(router, says)
    assert play(WRITE) == "d"
    assert play.pauses == []
    play.assert_nothing_in_flight()


def test_learners_are_skipped_and_remembered() -> None:
    router = make_router()
    play = Play(router, lambda step, _: (FailureKind.LEARNER if step.endpoint == "b" else None, MS))
    for _ in range(9):
        play(READ)
    assert play.asked.count("b") == 1
    assert play(STALE) in ABC


def test_a_member_without_a_leader_costs_one_attempt_and_no_pause() -> None:
    """It is cut off from the leader; the others are not."""
    router = make_router()
    play = Play(
        router, lambda step, _: (FailureKind.NO_LEADER if step.endpoint == "b" else None, MS)
    )
    for _ in range(9):
        play(READ)
    assert play.asked.count("b") == 1
    assert play.pauses == []


def test_whoever_is_behind_is_not_waited_for() -> None:
    router = make_router()
    play = Play.of(router, *[FailureKind.BEHIND] * 9)
    with pytest.raises(StoreError) as caught:
        play(READ)
    assert sorted(map(str, play.asked)) == ["a", "b", "c"]
    assert play.pauses == []
    asked = ", ".join(map(str, play.asked))
    assert caught.value.__notes__ == [f"lb-strategies asked {asked}"]


# -- time -----------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", FailureKind)
@pytest.mark.parametrize("operation", [*READS, *OTHERS], ids=lambda o: o.kind.value)
def test_nothing_is_sent_after_the_callers_time(operation: Operation, kind: FailureKind) -> None:
    """Even if an attempt or a pause takes longer than it was told."""
    router = make_router()
    play = Play(router, lambda step, sent: (kind, 0.4))
    with pytest.raises(StoreError):
        play(operation, timeout=1.0)
    times = [step.timeout for step in play.sent]
    assert all(time is not None and 0.0 < time <= 1.0 for time in times)
    assert len(play.sent) <= 3
    play.assert_nothing_in_flight()


@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.DROPPED])
def test_without_a_time_limit_it_is_given_up_too(kind: FailureKind) -> None:
    router = make_router(retry_for=2.0)
    play = Play(router, lambda step, sent: (kind, MS))
    with pytest.raises(StoreError):
        play(WRITE)
    assert 1.7 <= play.now - 100.0 <= 2.0
    assert {step.timeout for step in play.sent} == {None}
    play.assert_nothing_in_flight()


def test_retries_can_be_turned_off() -> None:
    router = make_router(retry_for=0.0)
    play = Play(router, lambda step, sent: (FailureKind.UNREACHABLE, MS))
    with pytest.raises(StoreError):
        play(READ)
    assert len(play.steps) == 1


def test_a_pause_that_the_caller_has_no_time_for_is_not_made() -> None:
    router = make_router(members=["a"])
    play = Play.of(router, FailureKind.UNREACHABLE)
    with pytest.raises(StoreError):
        play(READ, timeout=0.02)
    assert play.pauses == []


def test_a_pause_that_took_too_long_is_the_last_step() -> None:
    router = make_router(members=["a"])
    plan: Plan[None] = router.plan(WRITE, now=0.0, timeout=1.0)
    next(plan)
    error = StoreError(FailureKind.DROPPED, "a")
    assert plan.send(Failure(error, FailureKind.DROPPED, 0.1)) == Sleep(0.02)
    with pytest.raises(StoreError) as caught:
        plan.send(Reply(None, 1.0))  # any event that tells the time
    assert caught.value is error


def test_an_attempt_of_ours_that_took_all_the_time_is_the_last() -> None:
    router = make_router(attempt_timeout=0.05)
    plan: Plan[None] = router.plan(READ, now=0.0, timeout=1.0)
    step = next(plan)
    assert isinstance(step, Send)
    assert step.timeout == 0.5
    error = StoreError(FailureKind.TIMED_OUT, "a")
    with pytest.raises(StoreError):
        plan.send(Failure(error, FailureKind.TIMED_OUT, 1.0))


def test_a_read_leaves_a_member_that_does_not_answer() -> None:
    router = make_router()
    Play.of(router)(READ)
    frozen: set[Hashable] = {"a", "b"}
    play = Play(router, lambda step, sent: (None, 1e9 if step.endpoint in frozen else MS))
    for _ in range(3):
        assert play(READ, timeout=2.0) == "c"
    assert {step.timeout for step in play.sent if step.endpoint in frozen} == {0.5}
    play.assert_nothing_in_flight()


def test_the_last_member_has_all_the_time_that_is_left() -> None:
    router = make_router()
    Play.of(router)(READ)
    play = Play(router, lambda step, sent: (None, 1e9))
    with pytest.raises(StoreError) as caught:
        play(READ, timeout=2.0)
    assert [step.timeout for step in play.sent] == pytest.approx([0.5, 0.5, 1.0])
    assert caught.value.kind is FailureKind.TIMED_OUT
    assert play.now == pytest.approx(102.0)


def test_a_read_whose_caller_waits_no_longer_is_not_cut() -> None:
    router = make_router()
    Play.of(router)(READ)
    play = Play(router, lambda step, sent: (None, 1e9))
    with pytest.raises(StoreError):
        play(READ, timeout=0.3)
    assert [step.timeout for step in play.sent] == pytest.approx([0.3])


@pytest.mark.parametrize("timeout", [None, 2.0])
def test_a_write_is_given_no_time_limit_of_ours(timeout: float | None) -> None:
    router = make_router()
    for operation in OTHERS:
        play = Play.of(router)
        play(operation, timeout=timeout)
        assert [step.timeout for step in play.sent] == [timeout]


@pytest.mark.parametrize("kind", [None, FailureKind.UNREACHABLE])
def test_what_waits_for_somebody_else_is_no_load(kind: FailureKind | None) -> None:
    lock = Operation(OperationClass.WRITE, "lock", timed=False)
    router = make_router()
    loads = []

    def says(step: Send, sent: int) -> tuple[Says, float]:
        loads.append(sum(in_flight(router.balancer, now=0.0).values()))
        return (None if sent else kind), MS

    Play(router, says)(lock)
    assert loads == [0] * (1 if kind is None else 2)
    assert sum(s.failures for s in router.balancer.snapshot(now=0.0).values()) == 0


# -- authentication -------------------------------------------------------------------------


@pytest.mark.parametrize("operation", [READ, *OTHERS], ids=lambda o: o.kind.value)
def test_a_token_is_renewed_once(operation: Operation) -> None:
    play = Play.of(make_router(), FailureKind.UNAUTHENTICATED, FailureKind.UNAUTHENTICATED)
    with pytest.raises(StoreError) as caught:
        play(operation, timeout=1.0)
    first, renewal, second = play.steps
    assert isinstance(first, Send)
    assert isinstance(second, Send)
    assert first.endpoint == second.endpoint
    assert isinstance(renewal, Authenticate)
    assert renewal.endpoint == first.endpoint
    assert renewal.timeout == pytest.approx(1.0 - MS)
    assert caught.value.kind is FailureKind.UNAUTHENTICATED
    play.assert_nothing_in_flight()


def test_a_renewal_that_fails_is_what_the_caller_gets() -> None:
    play = Play.of(make_router(), FailureKind.UNAUTHENTICATED)
    wrong = PermissionError("wrong password")
    play.on_authenticate = lambda: wrong
    with pytest.raises(PermissionError) as caught:
        play(READ)
    assert caught.value is wrong
    play.assert_nothing_in_flight()


def test_a_renewal_that_takes_all_the_time_is_the_last_step() -> None:
    play = Play.of(make_router(), FailureKind.UNAUTHENTICATED)

    def dawdle() -> None:
        play.now += 5.0

    play.on_authenticate = dawdle
    with pytest.raises(StoreError) as caught:
        play(READ, timeout=1.0)
    assert caught.value.kind is FailureKind.UNAUTHENTICATED
    assert len(play.sent) == 1


def test_other_failures_after_a_renewal_are_handled_as_ever() -> None:
    play = Play.of(make_router(), FailureKind.UNAUTHENTICATED, FailureKind.UNREACHABLE)
    play(WRITE)
    assert play.asked[:2] == ["a", "a"]
    assert play.asked[2] != "a"


# -- errors ---------------------------------------------------------------------------------


def test_the_error_of_the_last_attempt_tells_who_was_asked() -> None:
    play = Play.of(make_router(), FailureKind.UNREACHABLE, FailureKind.ANSWER)
    with pytest.raises(StoreError) as caught:
        play(WRITE)
    assert caught.value.kind is FailureKind.ANSWER
    assert caught.value.__notes__ == [f"lb-strategies asked {play.asked[0]}, {play.asked[1]}"]


def test_an_error_does_not_lead_to_itself() -> None:
    """Otherwise what the request held would live until the collector comes."""
    plan: Plan[None] = make_router().plan(WRITE, now=0.0)
    errors: list[weakref.ref[StoreError]] = []

    def send(step: Send) -> Failure:
        error = StoreError(FailureKind.ANSWER, step.endpoint)
        errors.append(weakref.ref(error))
        return Failure(error, FailureKind.ANSWER, 0.0)

    gc.disable()
    try:
        with pytest.raises(StoreError):
            drive(plan, send, lambda step: None)
        assert [error() for error in errors] == [None]
    finally:
        gc.enable()


# -- interruptions --------------------------------------------------------------------------


def plan_at(router: ConsensusRouter, *events: FailureKind) -> Plan[None]:
    """Return a plan of a write after these failures."""
    plan: Plan[None] = router.plan(WRITE, now=0.0)
    next(plan)
    for kind in events:
        plan.send(Failure(StoreError(kind, "?"), kind, 0.0))
    return plan


@pytest.mark.parametrize("events", [(), (FailureKind.DROPPED,), (FailureKind.UNAUTHENTICATED,)])
def test_a_plan_that_is_thrown_away_gives_its_pick_back(events: tuple[FailureKind, ...]) -> None:
    router = make_router()
    plan = plan_at(router, *events)
    assert sum(in_flight(router.balancer, now=0.0).values()) == (not events)
    plan.close()
    assert sum(in_flight(router.balancer, now=0.0).values()) == 0
    stats = router.balancer.snapshot(now=0.0)["a"]
    assert (stats.cancellations, stats.failures) == (not events, 0)


def test_a_plan_that_nobody_holds_gives_its_pick_back() -> None:
    router = make_router()
    plan = plan_at(router)
    assert sys.getrefcount(plan) == 2
    del plan
    assert sum(in_flight(router.balancer, now=0.0).values()) == 0


class Broken:
    """A policy that fails."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        raise ZeroDivisionError


def test_a_choice_that_fails_leaves_nothing_behind() -> None:
    router = ConsensusRouter(ABC, Broken())
    plan: Plan[None] = router.plan(READ, now=0.0)
    with pytest.raises(ZeroDivisionError):
        next(plan)
    assert sum(in_flight(router.balancer, now=0.0).values()) == 0


@pytest.mark.parametrize("kind", [FailureKind.DROPPED, FailureKind.UNAUTHENTICATED])
def test_an_interruption_of_a_pause_or_a_renewal_is_raised(kind: FailureKind) -> None:
    router = make_router()
    plan = plan_at(router, kind)
    with pytest.raises(KeyboardInterrupt):
        plan.send(Failure(KeyboardInterrupt(), FailureKind.CANCELLED, 0.0))
    assert sum(in_flight(router.balancer, now=0.0).values()) == 0


# -- strategies -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", Strategy)
@pytest.mark.parametrize("kind", [FailureKind.UNREACHABLE, FailureKind.NO_LEADER])
def test_every_strategy_asks_everybody_before_it_pauses(
    strategy: Strategy, kind: FailureKind
) -> None:
    for operation, out in itertools.product((READ, WRITE, STALE), ((), ("b",), ABC)):
        router = make_router(strategy, rng=random.Random(1))
        missed(router.tracker, *out)
        play = Play.of(router, kind, kind)
        play(operation)
        assert set(play.asked) == set(ABC)
        assert play.pauses == []
        play.assert_nothing_in_flight()


def test_after_an_election_writes_go_to_the_new_leader() -> None:
    router = make_router()
    play = Play.of(router, FailureKind.UNREACHABLE)
    play(WRITE)
    led(router, "c", term=2)
    assert play(WRITE) == "c"


def test_what_waits_for_somebody_else_is_no_load_when_it_is_sent_again() -> None:
    router = make_router()
    lock = Operation(OperationClass.WRITE, "lock", timed=False)
    plan: Plan[str] = router.plan(lock, now=0.0)
    leader = next(plan)
    plan.send(Failure(StoreError(FailureKind.DROPPED, "a"), FailureKind.DROPPED, 0.1))
    assert plan.send(Done(0.12)) == leader
    assert set(in_flight(router.balancer, now=0.12).values()) == {0}
