"""One request: given back once, described anew, shown to a human."""

import pytest

from lb_strategies import Outcome
from lb_strategies.estimators import LEAST_RTT

from .scripted import MS, answer, balancer, fail, in_flight, look

AB = ("a", "b")


@pytest.mark.parametrize("first", list(Outcome))
@pytest.mark.parametrize("second", list(Outcome))
def test_giving_back_twice_counts_once(first: Outcome, second: Outcome) -> None:
    target = balancer()
    pick = target.begin("a", now=0.0)
    assert in_flight(target, now=0.0) == {"a": 1}
    pick.done(first, now=1.0)
    once = target.snapshot(now=2.0)
    pick.done(second, now=2.0)
    assert target.snapshot(now=2.0) == once
    assert once["a"].in_flight == 0


@pytest.mark.parametrize(
    ("outcome", "counter"),
    [
        (Outcome.SUCCESS, "successes"),
        (Outcome.FAILURE, "failures"),
        (Outcome.TIMEOUT, "timeouts"),
        (Outcome.CANCELLED, "cancellations"),
        (Outcome.REDIRECT, None),
        (Outcome.UNTIMED, "successes"),
    ],
)
def test_each_outcome_has_its_counter(outcome: Outcome, counter: str | None) -> None:
    target = balancer()
    target.begin("a", now=0.0).done(outcome, now=1.0)
    stats = target.snapshot(now=1.0)["a"]
    counters = ("successes", "failures", "timeouts", "cancellations")
    assert {name for name in counters if getattr(stats, name)} == {counter} - {None}


def test_a_redirect_teaches_nothing() -> None:
    target, twin = balancer(), balancer()
    for each in (target, twin):
        answer(each, AB, now=0.0)
    target.begin("a", now=1.0).done(Outcome.REDIRECT, now=9.0)
    assert target.snapshot(now=9.0) == twin.snapshot(now=9.0)


def test_an_untimed_answer_proves_that_the_server_works_and_no_more() -> None:
    """Four failures, a write that is answered, four failures: never five in a row."""
    target, twin = balancer(), balancer()
    for each in (target, twin):
        answer(each, AB, now=0.0, times=50)
        look(each, AB, now=1.0)
    before = target.snapshot(now=9.0)["a"]
    target.begin("a", now=1.0).done(Outcome.UNTIMED, now=9.0)
    after = target.snapshot(now=9.0)["a"]
    assert (after.peak_rtt, after.mean_rtt) == (before.peak_rtt, before.mean_rtt)
    for each, between in ((target, Outcome.UNTIMED), (twin, Outcome.REDIRECT)):
        for outcome in [Outcome.FAILURE] * 4 + [between] + [Outcome.FAILURE] * 4:
            each.begin("a", now=10.0).done(outcome, now=10.0)
    assert not target.snapshot(now=10.0)["a"].ejected
    assert twin.snapshot(now=10.0)["a"].ejected_for == "errors"


def test_a_timeout_teaches_the_time_it_took_and_a_penalty() -> None:
    target = balancer()
    now = answer(target, AB, now=0.0)
    look(target, AB, now=now)
    target.begin("a", now=now).done(Outcome.TIMEOUT, now=now + 7.0)
    stats = target.snapshot(now=now + 7.0)["a"]
    assert stats.peak_rtt == 7.0
    assert stats.mean_rtt > MS


def test_a_request_that_began_later_than_its_pick_is_timed_from_its_begin() -> None:
    target = balancer()
    target.begin("a", now=0.0).done(Outcome.SUCCESS, now=10.0, started_at=9.5)
    assert target.snapshot(now=10.0)["a"].mean_rtt == pytest.approx(0.5)


def test_a_request_that_ends_before_it_begins_took_the_least_time() -> None:
    target = balancer()
    target.begin("a", now=10.0).done(Outcome.SUCCESS, now=9.0)
    assert target.snapshot(now=10.0)["a"].mean_rtt == pytest.approx(LEAST_RTT)


def test_a_pick_learns_later_what_it_is() -> None:
    """A batch of 100 that takes 20 ms: as a kind of its own it proves nothing at first."""
    target = balancer()
    answer(target, ["a"], now=0.0, operation="get")
    pick = target.begin("a", now=1.0, operation="get")
    assert pick.operation == "get"
    pick.relabel("pipeline", 100)
    assert pick.operation != "get"
    pick.done(Outcome.SUCCESS, now=1.02)
    assert target.snapshot(now=1.02)["a"].mean_rtt == pytest.approx(MS)


def test_a_pick_cannot_become_less_than_one_request() -> None:
    target = balancer()
    pick = target.begin("a", now=0.0)
    with pytest.raises(ValueError, match="units must be at least 1, got 0"):
        pick.relabel("pipeline", 0)
    pick.done(Outcome.SUCCESS, now=MS)
    assert in_flight(target, now=MS) == {"a": 0}


def test_a_pick_shows_its_endpoint_and_whether_it_is_a_probe() -> None:
    target = balancer()
    now = answer(target, AB, now=0.0)
    look(target, AB, now=now)
    assert repr(target.begin("a", now=1.5)) == "<Pick 'a' started at 1.500000>"
    fail(target, "a", now=2.0)
    assert repr(target.acquire(AB, now=4.0)) == "<Pick 'a' (probe) started at 4.000000>"
