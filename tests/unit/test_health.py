"""Who leaves the pool and how it comes back, where the twenty behaviours do not say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable

import pytest

from lb_strategies import BalancerOptions, LoadBalancer, LoadBalancingStrategy, Outcome

from .scripted import MS, answer, balancer, closed_loop, ejected, fail, in_flight, look

AB = ("a", "b")
ABC = ("a", "b", "c")
LATENCY_BASED = LoadBalancingStrategy.LATENCY_BASED
HYBRID = LoadBalancingStrategy.HYBRID


def healthy(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
    return MS, Outcome.SUCCESS


def settled(
    endpoints: tuple[Hashable, ...] = ABC,
    *,
    strategy: LoadBalancingStrategy = LATENCY_BASED,
    options: BalancerOptions | None = None,
    rtt: float = MS,
) -> tuple[LoadBalancer, float]:
    """Return a balancer that has heard ten answers of each endpoint and looked at all."""
    target = balancer(strategy, options=options)
    now = answer(target, endpoints, now=0.0, rtt=rtt)
    look(target, endpoints, now=now)
    return target, now


# -- errors ---------------------------------------------------------------------------------


def test_five_failures_in_a_row_eject_and_four_do_not() -> None:
    target, now = settled()
    now = answer(target, ["a"], now=now, times=30)
    fail(target, "a", now=now, times=4)
    assert ejected(target, now=now) == set()
    fail(target, "a", now=now, times=1, outcome=Outcome.TIMEOUT)
    assert target.snapshot(now=now)["a"].ejected_for == "errors"


def test_a_success_ends_a_row_of_failures() -> None:
    target, now = settled()
    now = answer(target, ["a"], now=now, times=30)
    fail(target, "a", now=now, times=4)
    answer(target, ["a"], now=now, times=1)
    fail(target, "a", now=now, times=4)
    assert ejected(target, now=now) == set()


def test_under_80_percent_of_at_least_ten_requests_ejects() -> None:
    """3 failures of 12 are 75 %; the 10 answers of the beginning are over 30 s old."""
    target, now = settled()
    now += 60.0
    for _ in range(2):
        now = answer(target, ["a"], now=now, times=3)
        fail(target, "a", now=now, times=1)
    assert ejected(target, now=now) == set()
    now = answer(target, ["a"], now=now, times=3)
    fail(target, "a", now=now, times=1)
    assert ejected(target, now=now) == {"a"}


def test_80_percent_is_enough() -> None:
    target, now = settled()
    now += 60.0
    for _ in range(20):
        now = answer(target, ["a"], now=now, times=4)
        fail(target, "a", now=now, times=1)
    assert ejected(target, now=now) == set()


def test_an_exploring_success_does_not_wipe_the_failures_of_the_window() -> None:
    """Half of all requests fail: the 80 % over 30 s must still be noticed."""
    target, now = settled()
    now += 60.0
    parity = Counter[Hashable]()

    def every_other(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        parity[endpoint] += 1
        bad = endpoint == "a" and parity[endpoint] % 2
        return MS, Outcome.FAILURE if bad else Outcome.SUCCESS

    for _ in range(30):
        _, now = closed_loop(target, ABC, every_other, now=now, picks=1000)
        if target.snapshot(now=now)["a"].ejections:
            break
    assert target.snapshot(now=now)["a"].ejections == 1


def test_errors_may_eject_everyone() -> None:
    """The cap is for comparisons; a failure speaks for itself, and panic serves all."""
    target, now = settled()
    for name in ABC:
        fail(target, name, now=now)
    assert ejected(target, now=now) == set(ABC)
    assert target.acquire(ABC, now=now).endpoint in ABC


def test_an_endpoint_never_compared_is_never_ejected() -> None:
    target = balancer()
    fail(target, "a", now=0.0, times=50)
    assert target.snapshot(now=0.0)["a"].ejections == 0


def test_a_look_at_one_alone_does_not_take_it_out_of_the_comparison() -> None:
    """A write goes to the leader alone; its reads are still compared with the replicas'."""
    target, now = settled()
    look(target, ("a",), now=now)
    fail(target, "a", now=now)
    assert ejected(target, now=now) == {"a"}
    assert target.acquire(("a",), now=now).endpoint == "a"


# -- latency --------------------------------------------------------------------------------


@pytest.mark.parametrize(("slow", "out"), [(0.55 * MS, set()), (0.65 * MS, {"a"})])
def test_twice_as_slow_by_less_than_the_floor_is_noise(slow: float, out: set[str]) -> None:
    """0.1 ms against 0.55 and 0.65: both over 2 x, but only one by more than 0.5 ms."""
    target, now = settled(rtt=0.1 * MS)
    now = answer(target, ["a"], now=now, rtt=slow, times=200)
    assert ejected(target, now=now) == out


def test_less_than_ten_samples_eject_nobody() -> None:
    target = balancer()
    now = answer(target, ["b", "c"], now=0.0)
    look(target, ABC, now=now)
    now = answer(target, ["a"], now=now, rtt=1.0, times=9)
    assert ejected(target, now=now) == set()
    now = answer(target, ["a"], now=now, rtt=1.0, times=1)
    assert ejected(target, now=now) == {"a"}


def test_two_slow_samples_in_a_row_eject_nobody() -> None:
    """After two of 1 s the mean is over 2 x already (1.58^2); the third makes the streak."""
    target, now = settled()
    now = answer(target, ["a"], now=now, rtt=1.0, times=2)
    assert target.snapshot(now=now)["a"].mean_rtt > 2 * MS
    assert ejected(target, now=now) == set()
    answer(target, ["a"], now=now, rtt=1.0, times=1)
    assert ejected(target, now=now) == {"a"}


def test_the_cap_counts_whoever_is_out_for_whatever_reason() -> None:
    target, now = settled()
    fail(target, "b", now=now)
    now = answer(target, ["a"], now=now, rtt=0.02, times=100)
    assert ejected(target, now=now) == {"b"}


def test_the_worst_goes_first() -> None:
    """Two, b and c, are outliers while d and e, out for errors, leave no room; then d comes back.

    It is a sample of b that makes somebody go, and c, five times as slow, who goes.
    """
    everyone = tuple("abcde")
    target, now = settled(everyone)
    for name in "de":
        fail(target, name, now=now)
    for _ in range(20):
        now = answer(target, ["b"], now=now, rtt=10 * MS, times=1)
        now = answer(target, ["c"], now=now, rtt=50 * MS, times=1)
    assert ejected(target, now=now) == {"d", "e"}
    probe = target.acquire(everyone, now=now)
    assert probe.is_probe
    now += MS
    probe.done(Outcome.SUCCESS, now=now)
    now = answer(target, ["b"], now=now, rtt=10 * MS, times=1)
    assert ejected(target, now=now) == {"c", "d", "e"} - {probe.endpoint}


@pytest.mark.parametrize(
    "strategy",
    [
        LoadBalancingStrategy.ROUND_ROBIN,
        LoadBalancingStrategy.RANDOM,
        LoadBalancingStrategy.BOLTZMANN,
    ],
)
def test_a_policy_that_ignores_health_has_nobody_ejected(
    strategy: LoadBalancingStrategy,
) -> None:
    target, now = settled(strategy=strategy)
    target.begin("b", now=now)
    fail(target, "a", now=now, times=50)
    now = answer(target, ["c"], now=now, rtt=1.0, times=50)
    look(target, ABC, now=now + 100.0)
    assert ejected(target, now=now) == set()


# -- hung -----------------------------------------------------------------------------------


def test_less_than_the_floor_is_not_hung() -> None:
    """M is 1 ms: 8 x M is 8 ms, but nobody is hung below 50 ms."""
    target, now = settled(strategy=HYBRID)
    target.begin("a", now=now)
    look(target, ABC, now=now + 0.049)
    assert ejected(target, now=now + 0.049) == set()
    look(target, ABC, now=now + 0.06)
    assert ejected(target, now=now + 0.06) == {"a"}


def test_the_age_counts_as_latency_before_it_ejects() -> None:
    """At 20 ms, 20 x M, the endpoint is in the pool and dear: its share is none."""
    target, now = settled()
    pick = target.begin("a", now=now)
    look(target, ABC, now=now + 0.020)
    assert target.snapshot(now=now + 0.020)["a"].peak_rtt == pytest.approx(0.020)
    pick.done(Outcome.UNTIMED, now=now + 0.021)
    assert target.snapshot(now=now + 0.021)["a"].peak_rtt == pytest.approx(MS)


def test_the_longest_hung_go_first_and_half_stay() -> None:
    target, now = settled(tuple("abcd"), strategy=HYBRID)
    for index, name in enumerate("abcd"):
        target.begin(name, now=now + index * MS)
    look(target, tuple("abcd"), now=now + 1.0)
    assert ejected(target, now=now + 1.0) == {"a", "b"}


def test_a_hung_endpoint_takes_the_place_of_the_mildest_outlier() -> None:
    """One of three may be out: noise on b must not keep a, which answers nobody, in the pool."""
    target, now = settled()
    now = answer(target, "b", now=now, rtt=4 * MS)
    assert ejected(target, now=now) == {"b"}
    target.begin("a", now=now)
    now += 0.060
    assert target.choose(ABC, now=now) != "a"
    look(target, ABC, now=now)
    assert ejected(target, now=now) == {"a"}
    after = target.snapshot(now=now)
    assert (after["b"].returns, after["a"].ejections_for["hung"]) == (1, 1)
    assert after["b"].mean_rtt > 2 * MS  # as slow as it is: it has proved nothing


def test_a_far_slower_endpoint_takes_the_place_of_a_milder_outlier() -> None:
    """One of three may be out: noise on b must not keep a, which is slow for good, in the pool."""
    target, now = settled(strategy=HYBRID)
    now = answer(target, "b", now=now, rtt=4 * MS)
    assert ejected(target, now=now) == {"b"}
    now = answer(target, "a", now=now, rtt=40 * MS)
    assert ejected(target, now=now) == {"a"}
    after = target.snapshot(now=now)
    assert (after["b"].returns, after["a"].ejections_for["latency"]) == (1, 1)


def test_outliers_that_are_as_slow_as_each_other_do_not_take_turns() -> None:
    target, now = settled(strategy=HYBRID)
    now = answer(target, "b", now=now, rtt=10 * MS)
    assert ejected(target, now=now) == {"b"}
    now = answer(target, "a", now=now, rtt=12 * MS)
    assert ejected(target, now=now) == {"b"}


def test_no_more_outliers_come_back_than_are_hung() -> None:
    names = tuple("abcdef")
    target, now = settled(names)
    for name, rtt in (("d", 4 * MS), ("e", 6 * MS), ("f", 8 * MS)):
        now = answer(target, name, now=now, rtt=rtt)
    assert ejected(target, now=now) == set("def")
    target.begin("a", now=now)
    now += 0.060
    look(target, names, now=now)
    assert ejected(target, now=now) == set("aef")


def test_a_hung_request_is_seen_behind_blocking_ones() -> None:
    """What a blocking read usually takes is unknown; twenty of them say nothing."""
    target, now = settled(strategy=HYBRID)
    for _ in range(20):
        target.begin("a", now=now, operation="blpop")
    target.begin("a", now=now)
    look(target, ABC, now=now + 1.0)
    assert ejected(target, now=now + 1.0) == {"a"}


def test_one_stuck_connection_does_not_make_an_endpoint_flap() -> None:
    """It is ejected once; after the good probe that one request is known to prove nothing."""
    target, now = settled(strategy=HYBRID)
    stuck = target.begin("a", now=now)
    counts, now = closed_loop(target, ABC, healthy, now=now, picks=10_000)
    stats = target.snapshot(now=now)["a"]
    assert (stats.ejections, stats.ejected) == (1, False)
    assert counts["a"] >= 2500
    stuck.done(Outcome.TIMEOUT, now=now)
    assert in_flight(target, now=now)["a"] == 0


def test_a_request_that_hangs_after_the_return_counts_again() -> None:
    target, now = settled(strategy=HYBRID)
    target.begin("a", now=now)
    _, now = closed_loop(target, ABC, healthy, now=now, picks=3000)
    assert ejected(target, now=now) == set()
    target.begin("a", now=now)
    look(target, ABC, now=now + 1.0)
    assert ejected(target, now=now + 1.0) == {"a"}


# -- probes ---------------------------------------------------------------------------------


@pytest.mark.parametrize("outcome", [Outcome.REDIRECT, Outcome.UNTIMED, Outcome.CANCELLED])
def test_a_probe_without_a_verdict_does_not_stand_in_the_way(outcome: Outcome) -> None:
    target, now = settled()
    fail(target, "a", now=now)
    now += 1.2
    probe = target.acquire(ABC, now=now)
    assert (probe.endpoint, probe.is_probe) == ("a", True)
    probe.done(outcome, now=now + MS)
    again = target.acquire(ABC, now=now + 0.02)
    assert (again.endpoint, again.is_probe) == ("a", True)
    again.done(Outcome.SUCCESS, now=now + 0.02 + MS)
    assert ejected(target, now=now + 0.03) == set()


def test_a_probe_given_up_after_a_long_wait_is_a_verdict() -> None:
    """Callers that wait 50 ms, where 1 ms is usual: a probe after 1, 2, 4, ... s and no more.

    In 30 s: 1 + 2 + 4 + 8 + 10 = 25, so at most 6 probes with the jitter of 10 %.
    """
    target, now = settled()
    fail(target, "a", now=now, outcome=Outcome.TIMEOUT)
    sent, end = 0, now + 30.0
    while now < end:
        pick = target.acquire(ABC, now=now)
        if pick.endpoint == "a":
            sent += 1
            now += 0.05
            pick.done(Outcome.CANCELLED, now=now)
        else:
            now += MS
            pick.done(Outcome.SUCCESS, now=now)
    assert 4 <= sent <= 6


def test_a_new_endpoint_that_only_hangs_does_not_take_every_request() -> None:
    """One worker that gives up after 100 ms: it must get on with the others."""
    target, now = settled(AB)
    sent, end = 0, now + 30.0
    while now < end:
        pick = target.acquire(ABC, now=now)
        if pick.endpoint == "c":
            sent += 1
            now += 0.1
            pick.done(Outcome.CANCELLED, now=now)
        else:
            now += MS
            pick.done(Outcome.SUCCESS, now=now)
    assert 1 <= sent <= 6


def test_a_new_endpoint_that_only_redirects_does_not_take_every_request() -> None:
    """No verdict, so asked again, but 8 x its prior of 1 ms apart: at most one of 9."""
    target, now = settled(AB)

    def service(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        return MS, Outcome.REDIRECT if endpoint == "c" else Outcome.SUCCESS

    counts, _ = closed_loop(target, ABC, service, now=now, picks=900)
    assert 1 <= counts["c"] <= 100


def test_the_first_answer_opens_the_pool() -> None:
    target, now = settled(AB)
    pick = target.acquire(ABC, now=now)
    assert pick.endpoint == "c"
    pick.done(Outcome.SUCCESS, now=now + MS)
    counts, _ = closed_loop(target, ABC, healthy, now=now + MS, picks=9)
    assert counts["c"] >= 2


def test_a_slow_new_endpoint_is_asked_with_growing_delays() -> None:
    """20 ms against 1 ms for 60 s: 0.2 (10 x its cost), doubling to 10 s."""
    target, now = settled(AB)

    def service(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        return (20 * MS if endpoint == "c" else MS), Outcome.SUCCESS

    counts, _ = closed_loop(target, ABC, service, now=now, picks=60_000)
    assert 1 <= counts["c"] <= 15


def test_two_groups_with_a_common_endpoint_send_one_probe() -> None:
    target, now = settled()
    other = ("c", "b", "a")
    fail(target, "a", now=now)
    now += 1.2
    for group in (ABC, other):
        assert target.acquire(group, now=now, exclude=("a",)).endpoint != "a"
    picks = [target.acquire(group, now=now) for group in (ABC, other) for _ in range(5)]
    assert [pick.is_probe for pick in picks if pick.endpoint == "a"] == [True]


def test_a_probe_waits_while_its_endpoint_is_excluded() -> None:
    target, now = settled()
    fail(target, "a", now=now)
    assert target.acquire(ABC, now=now + 1.2, exclude=("a",)).endpoint != "a"
    assert target.acquire(ABC, now=now + 1.2).endpoint == "a"


def test_a_membership_update_leaves_a_probe_in_flight_alone() -> None:
    target, now = settled()
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    assert probe.is_probe
    target.update(("a", "b"))
    assert target.acquire(AB, now=now + 1.2).endpoint == "b"
    probe.done(Outcome.SUCCESS, now=now + 1.2 + MS)
    assert ejected(target, now=now + 1.3) == set()


def test_a_probe_that_ends_right_after_an_update_readmits() -> None:
    """Nobody has looked at the new group yet, so the last known median is the measure."""
    target, now = settled()
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    target.update(AB)
    probe.done(Outcome.SUCCESS, now=now + 1.2 + MS)
    stats = target.snapshot(now=now + 1.3)["a"]
    assert (stats.ejected, stats.probes) == (False, 1)
    assert stats.mean_rtt == pytest.approx(MS)


def test_a_probe_of_an_endpoint_that_left_does_not_readmit_its_successor() -> None:
    target, now = settled()
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    target.update(("b", "c"))
    target.update(ABC)
    before = target.snapshot(now=now)
    probe.done(Outcome.SUCCESS, now=now + 1.2 + MS)
    assert target.snapshot(now=now) == before


def test_one_of_two_comes_back() -> None:
    target, now = settled(AB)
    fail(target, "a", now=now)
    counts, now = closed_loop(target, AB, healthy, now=now, picks=4000)
    assert ejected(target, now=now) == set()
    assert counts["a"] >= 1000


def test_a_readmitted_endpoint_is_no_better_than_its_peers() -> None:
    """A probe of 0.1 ms among peers of 1 ms: one answer must not win every comparison."""
    target, now = settled()
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    now = probe.started_at + 0.1 * MS
    probe.done(Outcome.SUCCESS, now=now)
    stats = target.snapshot(now=now)["a"]
    assert stats.mean_rtt == pytest.approx(MS)
    assert stats.peak_rtt == pytest.approx(MS)


def test_a_fraction_of_a_millisecond_does_not_keep_an_endpoint_out() -> None:
    """Peers at 0.1 ms, a probe of 0.3 ms: within the allowance, and no statement on the usual."""
    target, now = settled(rtt=0.1 * MS)
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    now = probe.started_at + 0.3 * MS
    probe.done(Outcome.SUCCESS, now=now)
    stats = target.snapshot(now=now)["a"]
    assert not stats.ejected
    assert stats.mean_rtt == pytest.approx(0.1 * MS)


def test_the_allowance_ends_at_half_of_what_makes_an_outlier() -> None:
    target, now = settled(rtt=0.1 * MS)
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    now = probe.started_at + 0.36 * MS
    probe.done(Outcome.SUCCESS, now=now)
    assert target.snapshot(now=now)["a"].ejected


@pytest.mark.parametrize(("rtt", "wait"), [(0.5 * MS, 1.0), (0.7 * MS, 4.0)])
def test_a_probe_that_is_hardly_too_slow_is_repeated_soon(rtt: float, wait: float) -> None:
    """Peers at 0.1 ms: up to 0.6 ms is too little to tell; beyond, the wait goes on doubling."""
    target, now = settled(rtt=0.1 * MS)
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.2)
    now = probe.started_at + 10 * MS  # slow beyond doubt: 2 s
    probe.done(Outcome.SUCCESS, now=now)
    probe = target.acquire(ABC, now=now + 2.3)
    assert probe.is_probe
    now = probe.started_at + rtt
    probe.done(Outcome.SUCCESS, now=now)
    assert not target.acquire(ABC, now=now + 0.8 * wait).is_probe
    assert target.acquire(ABC, now=now + 1.2 * wait).is_probe


def test_a_readmitted_endpoint_without_peers_starts_at_its_probe() -> None:
    target, now = settled()
    for name in ABC:
        fail(target, name, now=now)
    now += 1.2
    probe = target.acquire(ABC, now=now)
    probe.done(Outcome.SUCCESS, now=now + 1.2 * MS)
    stats = target.snapshot(now=now + 1.2 * MS)[probe.endpoint]
    assert not stats.ejected
    assert stats.peak_rtt == pytest.approx(1.2 * MS)


def test_an_endpoint_after_one_pause_is_back_soon() -> None:
    """One answer of 100 ms: its peak alone would keep it out for 10 s x ln 25 = 32 s.

    Explored after 2 x 100 ms; so by 0.6 s it has its share again.
    """
    target, now = settled()
    now = answer(target, ["a"], now=now, rtt=0.1, times=1)
    first, later = closed_loop(target, ABC, healthy, now=now, picks=80)
    assert first["a"] == 0
    _, later = closed_loop(target, ABC, healthy, now=later, picks=520)
    counts, _ = closed_loop(target, ABC, healthy, now=later, picks=1000)
    assert counts["a"] >= 300


def test_a_pause_of_the_only_fast_endpoint_does_not_make_it_one_of_the_slow() -> None:
    """The median is slow then: taken for its mean it would make all three equal."""
    target = balancer()
    now = answer(target, ["a"], now=0.0, times=30)
    now = answer(target, ["b", "c"], now=now, rtt=20 * MS, times=30)
    look(target, ABC, now=now)
    now = answer(target, ["a"], now=now, rtt=0.5, times=1)
    while True:
        pick = target.acquire(ABC, now=now)
        now += MS if pick.endpoint == "a" else 20 * MS
        pick.done(Outcome.SUCCESS, now=now)
        if pick.endpoint == "a":
            break
    assert pick.is_probe
    assert target.snapshot(now=now)["a"].mean_rtt < 5 * MS


def test_a_loser_is_not_explored_while_it_is_busy() -> None:
    target, now = settled(strategy=LATENCY_BASED)
    now = answer(target, ["a"], now=now, rtt=0.1, times=1) + 0.9
    picks = [target.acquire(ABC, now=now) for _ in range(20)]
    assert [p.endpoint for p in picks].count("a") == 1


def test_a_convincing_ordinary_answer_ends_the_waiting() -> None:
    """After a bad exploration the next is due in 1 s, after a fast answer in 0.2 s again."""
    target, now = settled()
    now = answer(target, ["a"], now=now, rtt=0.1, times=1)
    probe = target.acquire(ABC, now=now + 0.9)
    assert (probe.endpoint, probe.is_probe) == ("a", True)
    now = probe.started_at + 0.1
    probe.done(Outcome.SUCCESS, now=now)
    now = answer(target, ["a"], now=now, times=1)
    now += 0.9
    assert target.acquire(ABC, now=now).endpoint == "a"


def test_without_jitter_a_probe_is_due_to_the_second() -> None:
    target, now = settled(options=BalancerOptions(probe_jitter=0.0))
    fail(target, "a", now=now)
    assert look(target, ABC, now=now + 1.0 - MS) != "a"
    assert target.acquire(ABC, now=now + 1.0 + 10 * MS).endpoint == "a"


# -- one alone ------------------------------------------------------------------------------


@pytest.mark.parametrize("names", [("a",), ("a", "b")])
def test_how_long_an_answer_took_is_looked_at_only_where_there_is_a_choice(
    names: tuple[str, ...],
) -> None:
    """One alone is picked anyway: there, one answer in 10 ms is learned, whatever it is like."""
    target, now = settled(names)
    now = answer(target, ["a"], now=now, times=1)
    now = answer(target, ["a"], now=now, rtt=6 * MS, times=1)
    known = target.snapshot(now=now)["a"].peak_rtt
    assert known == pytest.approx((1 if len(names) == 1 else 6) * MS, rel=0.01)
    now = answer(target, ["a"], now=now + 4 * MS, rtt=5 * MS, times=1)
    assert target.snapshot(now=now)["a"].peak_rtt >= 5 * MS


def test_one_alone_that_gets_a_peer_is_looked_at_closely_again() -> None:
    target, now = settled(("a",))
    now = answer(target, ["a", "b"], now=now, times=10)
    look(target, AB, now=now)
    now = answer(target, ["a"], now=now, times=1)
    now = answer(target, ["a"], now=now, rtt=6 * MS, times=1)
    assert target.snapshot(now=now)["a"].peak_rtt == pytest.approx(6 * MS)


def test_a_group_of_one_does_not_hide_what_matters_among_its_peers() -> None:
    """The primary of a shard serves some requests alone and others as one of several."""
    target, now = settled()
    look(target, ("a",), now=now)
    now = answer(target, ["a"], now=now, times=1)
    now = answer(target, ["a"], now=now, rtt=6 * MS, times=1)
    assert target.snapshot(now=now)["a"].peak_rtt == pytest.approx(6 * MS)
