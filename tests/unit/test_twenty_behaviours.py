"""What a naive balancer gets wrong: the twenty behaviours, each with a virtual clock.

The numbers are those of the list that the design was made from. Where no seed is named, the
test is exact; where one is, everything in it is a function of that seed.
"""

from __future__ import annotations

import asyncio
import gc
import itertools
import json
import math
import os
import random
import threading
from collections import Counter
from collections.abc import Callable, Generator, Hashable, Sequence
from fractions import Fraction
from typing import Any

import pytest

from lb_strategies import (
    BalancerOptions,
    Candidate,
    LoadBalancer,
    LoadBalancingStrategy,
    NoEndpointError,
    Outcome,
    Pick,
)
from lb_strategies.estimators import MeanEwma, PeakEwma
from lb_strategies.testing import Simulation, lognormal

from .scripted import (
    MS,
    Digits,
    answer,
    balancer,
    closed_loop,
    ejected,
    exact_shares,
    fail,
    in_flight,
    look,
)

LATENCY_BASED = LoadBalancingStrategy.LATENCY_BASED
HYBRID = LoadBalancingStrategy.HYBRID
BOLTZMANN = LoadBalancingStrategy.BOLTZMANN

JUDGING = [LATENCY_BASED, HYBRID]
LEARNING = [LATENCY_BASED, HYBRID, BOLTZMANN]
ABC = ("a", "b", "c")


# -- 1, 2, 3: the draw ----------------------------------------------------------------------


def test_the_busier_of_two_never_wins() -> None:
    """1: with replacement, (b, b) would be drawn in a quarter of all cases."""
    assert exact_shares({"a": 0, "b": 5}) == {"a": 1, "b": 0}


def test_a_saturated_endpoint_leaves_equal_shares_to_the_others() -> None:
    """2: resolving a collision by "the next one" would double a neighbour's share."""
    shares = exact_shares({"a": 0, "b": 0, "c": 50, "d": 0, "e": 0})
    quarter = Fraction(1, 4)
    assert shares == {"a": quarter, "b": quarter, "c": 0, "d": quarter, "e": quarter}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_equal_endpoints_get_exactly_equal_shares(count: int) -> None:
    """3: a tie broken by a bit of the index would give one of two everything."""
    shares = exact_shares(dict.fromkeys("abcd"[:count], 0))
    assert set(shares.values()) == {Fraction(1, count)}


@pytest.mark.parametrize("count", [2, 3, 4])
def test_a_full_scan_of_equal_endpoints_has_no_favourite(count: int) -> None:
    """3: every order that the generator can give, once each; "first wins" would herd."""
    endpoints = tuple("abcd"[:count])
    counts: Counter[Hashable] = Counter()
    # A sample of all takes one of n, one of n - 1, ... and each order comes up once.
    for digits in itertools.product(*(range(left) for left in range(count, 0, -1))):
        target = LoadBalancer(
            LATENCY_BASED, options=BalancerOptions(choices=max(3, count)), rng=Digits(*digits)
        )
        now = answer(target, endpoints, now=0.0)
        counts[target.choose(endpoints, now=now)] += 1
    assert set(counts.values()) == {math.factorial(count) // count}


# -- 4: reading -----------------------------------------------------------------------------


def test_reading_does_not_change_what_later_samples_teach() -> None:
    """4: the same samples with 0 and with 10,000 reads between them, equal to 1e-12."""
    quiet, watched = balancer(), balancer()
    for target, reads in ((quiet, 0), (watched, 10_000)):
        now = answer(target, ABC, now=0.0, times=3)
        for index in range(reads):
            at = now + 5.0 * (index + 1) / reads
            target.snapshot(now=at)
            if index % 10 == 0:
                target.choose(ABC, now=at)
        answer(target, ABC, now=now + 5.0, rtt=2 * MS, times=3)
    for endpoint in ABC:
        a = quiet.snapshot(now=20.0)[endpoint]
        b = watched.snapshot(now=20.0)[endpoint]
        assert a.peak_rtt == pytest.approx(b.peak_rtt, rel=1e-12)
        assert a.mean_rtt == pytest.approx(b.mean_rtt, rel=1e-12)


# -- 5, 6, 7, 8: failures -------------------------------------------------------------------


def fast_failure_on_b(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
    return (0.1 * MS, Outcome.FAILURE) if endpoint == "b" else (MS, Outcome.SUCCESS)


@pytest.mark.parametrize("strategy", LEARNING)
def test_failing_fast_is_not_attractive(strategy: LoadBalancingStrategy) -> None:
    """5: at most 1 % of 1,000 picks; recording the 0.1 ms would draw two thirds."""
    counts, _ = closed_loop(balancer(strategy), ("a", "b"), fast_failure_on_b, now=0.0, picks=1000)
    assert 1 <= counts["b"] <= 10


def test_a_failing_endpoint_looks_dearer_within_ten_picks() -> None:
    """5: ... and the comparison that decides has turned by then."""
    target = balancer()
    _, now = closed_loop(target, ("a", "b"), fast_failure_on_b, now=0.0, picks=10)
    stats = target.snapshot(now=now)
    assert stats["b"].failures >= 1
    assert stats["b"].peak_rtt > stats["a"].peak_rtt


def test_the_penalty_has_a_cap_and_is_worked_off() -> None:
    """6: 64 failures cost <= 30 s; back at <= rho x M within decay x ln(cap / (rho x M))."""
    target = balancer()
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now, times=64)
    assert target.snapshot(now=now)["a"].peak_rtt <= 30.0
    limit = 2.0 * MS
    end = now + 10.0 * math.log(30.0 / limit)
    while target.snapshot(now=now)["a"].peak_rtt > limit:
        _, now = closed_loop(target, ABC, lambda e, t: (MS, Outcome.SUCCESS), now=now, picks=10)
        assert now <= end


def test_a_penalty_below_the_estimate_does_not_lower_it() -> None:
    """7: a slow endpoint (250 ms) that fails with a penalty of 50 ms gets no cheaper."""
    target = balancer(options=BalancerOptions(failure_penalty=0.050))
    now = answer(target, ["a"], now=0.0, rtt=0.250)
    for _ in range(20):
        before = target.snapshot(now=now)["a"]
        now += MS
        fail(target, "a", now=now, times=1)
        after = target.snapshot(now=now)["a"]
        assert after.peak_rtt >= before.peak_rtt
        assert after.mean_rtt >= before.mean_rtt


@pytest.mark.parametrize("strategy", JUDGING)
def test_answers_that_say_no_are_answers(strategy: LoadBalancingStrategy) -> None:
    """8: 100 x "not found" in a row: learnt as latency, no failure, nobody out."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0, times=1)
    look(target, ABC, now=now)
    for _ in range(100):  # apart, so that each of them is news
        now = 5 * MS + answer(target, ["a"], now=now, rtt=0.9 * MS, times=1)
    stats = target.snapshot(now=now)["a"]
    assert (stats.successes, stats.failures, stats.timeouts, stats.ejected) == (101, 0, 0, False)
    assert stats.mean_rtt == pytest.approx(0.9 * MS, rel=1e-3)


# -- 9: cancellation ------------------------------------------------------------------------


def test_a_cancellation_never_lowers_an_estimate() -> None:
    """9: estimate 100 ms, given up after 1 ms: as if it had not been sent; in-flight 0."""
    target, twin = balancer(), balancer()
    for each in (target, twin):
        answer(each, ["a"], now=0.0, rtt=0.100)
    target.begin("a", now=1.0).done(Outcome.CANCELLED, now=1.0 + MS)
    stats, same = target.snapshot(now=1.1)["a"], twin.snapshot(now=1.1)["a"]
    assert (stats.peak_rtt, stats.mean_rtt) == (same.peak_rtt, same.mean_rtt)
    assert (stats.in_flight, stats.cancellations, stats.failures) == (0, 1, 0)


def test_a_long_wait_before_a_cancellation_raises_the_peak_only() -> None:
    """9: given up after 3 s: the true latency is at least that, but nobody saw it."""
    target = balancer()
    now = answer(target, ["a"], now=0.0, rtt=0.100)
    mean = target.snapshot(now=now)["a"].mean_rtt
    target.begin("a", now=now).done(Outcome.CANCELLED, now=now + 3.0)
    stats = target.snapshot(now=now + 3.0)["a"]
    assert stats.peak_rtt == pytest.approx(3.0)
    assert stats.mean_rtt == mean


def test_in_flight_is_exactly_zero_however_a_request_ends() -> None:
    """9: CancelledError, GeneratorExit, giving back twice."""
    target = balancer()

    def stream() -> Generator[Pick]:
        pick = target.acquire(ABC, now=0.0)
        try:
            yield pick
        finally:
            pick.done(Outcome.CANCELLED, now=0.1)

    async def request() -> None:
        pick = target.acquire(ABC, now=0.0)
        try:
            await asyncio.Event().wait()
        finally:
            pick.done(Outcome.CANCELLED, now=0.1)
            pick.done(Outcome.CANCELLED, now=0.2)

    async def cancel() -> None:
        task = asyncio.create_task(request())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    streamed = stream()
    next(streamed)
    streamed.close()
    asyncio.run(cancel())
    assert set(in_flight(target, now=1.0).values()) == {0}
    assert sum(s.cancellations for s in target.snapshot(now=1.0).values()) == 2


def test_the_garbage_collector_may_give_a_pick_back_in_the_middle_of_a_pick() -> None:
    """9: an abandoned generator in a cycle is closed at whichever allocation comes next.

    The threshold of the collector moves through forty allocations, so that some of the
    collections fall inside the balancer's lock.
    """
    target = balancer()

    def stream() -> Generator[None]:
        pick = target.acquire(ABC, now=0.0)
        try:
            yield
        finally:
            pick.done(Outcome.CANCELLED, now=0.0)

    def work() -> None:
        for allocations in range(1, 41):
            streamed = stream()
            next(streamed)
            cycle: list[object] = [streamed]
            cycle.append(cycle)
            del streamed, cycle
            gc.set_threshold(gc.get_count()[0] + allocations, *threshold[1:])
            gc.enable()
            picks = [target.acquire(ABC, now=0.0) for _ in range(30)]
            gc.disable()
            for pick in picks:
                pick.done(Outcome.UNTIMED, now=0.0)

    threshold = gc.get_threshold()
    gc.collect()
    gc.disable()
    try:
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        thread.join(20.0)
        assert not thread.is_alive(), "it waits for a lock that it holds itself"
    finally:
        gc.set_threshold(*threshold)
        gc.enable()
    gc.collect()
    assert set(in_flight(target, now=1.0).values()) == {0}


# -- 10: hung -------------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", JUDGING)
@pytest.mark.parametrize("endpoints", [("a", "b"), ABC])
def test_a_hung_endpoint_is_out_before_any_timeout(
    strategy: LoadBalancingStrategy, endpoints: tuple[str, ...]
) -> None:
    """10: out at 8 x M; M is 10 ms here, so above the floor of 50 ms."""
    target = balancer(strategy)
    now = answer(target, endpoints, now=0.0, rtt=10 * MS)
    stuck = target.begin("a", now=now)
    now += 81 * MS
    counts, now = closed_loop(
        target, endpoints, lambda e, t: (10 * MS, Outcome.SUCCESS), now=now, picks=50
    )
    assert counts["a"] == 0
    assert target.snapshot(now=now)["a"].ejected_for == "hung"
    stuck.done(Outcome.TIMEOUT, now=now)
    stuck.done(Outcome.TIMEOUT, now=now)
    stats = target.snapshot(now=now)["a"]
    assert (stats.in_flight, stats.timeouts, stats.ejections) == (0, 1, 1)


@pytest.mark.parametrize("strategy", JUDGING)
def test_an_endpoint_is_not_hung_a_moment_before(strategy: LoadBalancingStrategy) -> None:
    """10: ... and not at 8 x M less a millisecond."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0, rtt=10 * MS)
    target.begin("a", now=now)
    look(target, ABC, now=now + 79 * MS)
    assert ejected(target, now=now + 79 * MS) == set()


# -- 11, 12: cold and idle ------------------------------------------------------------------


@pytest.mark.parametrize("strategy", LEARNING)
@pytest.mark.parametrize("joined", [1, 2, 3])
def test_a_new_endpoint_is_asked_soon_and_by_one_request_at_a_time(
    strategy: LoadBalancingStrategy, joined: int
) -> None:
    """11: within 2n picks; and never two in flight on it before its first answer."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    endpoints = (*ABC, *"xyz"[:joined])
    target.update(endpoints)
    picks = [target.acquire(endpoints, now=now) for _ in range(100)]
    counts = Counter(pick.endpoint for pick in picks)
    assert [counts[new] for new in "xyz"[:joined]] == [1] * joined
    first = Counter(pick.endpoint for pick in picks[: 2 * len(endpoints)])
    assert [first[new] for new in "xyz"[:joined]] == [1] * joined


def test_an_idle_endpoint_becomes_average_and_not_irresistible() -> None:
    """12: idle for 10 decays it costs the prior + e^-10 of the rest; 100 picks do not herd."""
    target = balancer()
    now = answer(target, ["c"], now=0.0, rtt=3 * MS)
    now = answer(target, ["a", "b"], now=now + 100.0)
    look(target, ABC, now=now)
    assert target.snapshot(now=now)["c"].peak_rtt == pytest.approx(
        MS + 2 * MS * math.exp(-10.0), rel=1e-3
    )
    counts = Counter(target.acquire(ABC, now=now).endpoint for _ in range(100))
    assert max(counts.values()) <= 2 * 100 / 3


# -- 13, 14: return -------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", JUDGING)
def test_exactly_one_probe_is_sent_when_it_is_due(strategy: LoadBalancingStrategy) -> None:
    """13: 50 requests at the due time (1 s, jitter 10 %): one goes there; none before."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now)
    early = Counter(target.acquire(ABC, now=now + 0.89).endpoint for _ in range(50))
    assert early["a"] == 0
    due = [target.acquire(ABC, now=now + 1.11) for _ in range(50)]
    assert [pick.is_probe for pick in due if pick.endpoint == "a"] == [True]


@pytest.mark.parametrize("strategy", JUDGING)
def test_a_slow_probe_doubles_the_wait(strategy: LoadBalancingStrategy) -> None:
    """13: due after 1, 2, 4, 8, 10, 10 s, jitter 10 %; each probe takes 1.6 x the median."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now)
    for wait in (1.0, 2.0, 4.0, 8.0, 10.0, 10.0):
        assert look(target, ABC, now=now + 0.9 * wait - MS) != "a"
        probe = target.acquire(ABC, now=now + 1.1 * wait + MS)
        assert (probe.endpoint, probe.is_probe) == ("a", True)
        now = probe.started_at + 1.6 * MS
        probe.done(Outcome.SUCCESS, now=now)
        assert ejected(target, now=now) == {"a"}


@pytest.mark.parametrize("strategy", JUDGING)
def test_a_fast_probe_brings_the_even_share_back(strategy: LoadBalancingStrategy) -> None:
    """13: the 1,000 picks after it: a third each, within the 0.40 of behaviour 18."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "a", now=now)
    probe = target.acquire(ABC, now=now + 1.11)
    now = probe.started_at + MS
    probe.done(Outcome.SUCCESS, now=now)
    assert ejected(target, now=now) == set()
    counts, _ = closed_loop(target, ABC, lambda e, t: (MS, Outcome.SUCCESS), now=now, picks=1000)
    assert max(counts.values()) <= 400
    assert counts["a"] >= 300


def test_a_straggler_does_not_readmit() -> None:
    """14: begun before the ejection, answered fast after it."""
    target = balancer()
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    straggler = target.begin("a", now=now)
    fail(target, "a", now=now)
    straggler.done(Outcome.SUCCESS, now=now + MS)
    assert ejected(target, now=now + MS) == {"a"}


def test_an_exploring_request_from_before_the_ejection_does_not_readmit() -> None:
    """14: a pick may have been a probe when it began, and be a straggler when it ends."""
    target = balancer()
    now = answer(target, ("a", "b"), now=0.0)
    look(target, ("a", "b"), now=now)
    now = answer(target, ["a"], now=now, rtt=100 * MS, times=1) + 2.0
    exploring = target.acquire(("a", "b"), now=now)
    assert (exploring.endpoint, exploring.is_probe) == ("a", True)
    fail(target, "a", now=now)
    exploring.done(Outcome.SUCCESS, now=now + MS)
    assert ejected(target, now=now + MS) == {"a"}
    probe = target.acquire(("a", "b"), now=now + 1.11)
    assert (probe.endpoint, probe.is_probe) == ("a", True)


# -- 15, 16: who is an outlier --------------------------------------------------------------


def test_the_slower_of_two_can_be_an_outlier() -> None:
    """15: means 1 and 10 ms; against the plain median 10 > 2 x 5.5 can never hold."""
    target = balancer()
    now = answer(target, ["a"], now=0.0)
    look(target, ("a", "b"), now=now)
    now = answer(target, ["b"], now=now, rtt=10 * MS)
    assert target.snapshot(now=now)["b"].ejected_for == "latency"


@pytest.mark.parametrize("strategy", JUDGING)
@pytest.mark.parametrize("seed", [1, 2])
def test_noise_ejects_nobody(strategy: LoadBalancingStrategy, seed: int) -> None:
    """15: three equals, lognormal with sigma 0.25, 30 virtual seconds: no ejection."""
    target = balancer(strategy, seed=seed)
    simulation = Simulation(
        target, {name: lognormal(MS, 0.25) for name in ABC}, random.Random(seed)
    )
    simulation.run(seconds=30.0)
    assert [s.ejections for s in target.snapshot(now=simulation.clock.now).values()] == [0, 0, 0]


@pytest.mark.parametrize("strategy", JUDGING)
@pytest.mark.parametrize("seed", [1, 2])
def test_three_times_as_slow_is_ejected_once(strategy: LoadBalancingStrategy, seed: int) -> None:
    """15: one of three turns three times as slow: out once in 30 virtual seconds, no flapping.

    A probe readmits below 1.5 x M, where one that takes 3 x M in the median comes with
    probability P(z < ln(1/2) / 0.25) = 0.3 %.
    """
    target = balancer(strategy, seed=seed)
    simulation = Simulation(
        target, {name: lognormal(MS, 0.25) for name in ABC}, random.Random(seed)
    )
    simulation.run(seconds=1.0)
    simulation.services["a"] = lognormal(3 * MS, 0.25)
    result = simulation.run(seconds=30.0)
    stats = target.snapshot(now=simulation.clock.now)
    assert [stats[name].ejections for name in ABC] == [1, 0, 0]
    assert result.share("a") <= 0.01


def test_at_most_half_are_ejected_for_latency() -> None:
    """16: 1, 10 and 100 ms; only the worst goes, since a second would be 2 of 3."""
    target = balancer()
    now = answer(target, ["a"], now=0.0)
    look(target, ABC, now=now)
    for _ in range(20):
        now = answer(target, ["b"], now=now, rtt=10 * MS, times=1)
        now = answer(target, ["c"], now=now, rtt=100 * MS, times=1)
    assert len(ejected(target, now=now)) == 1


def test_an_endpoint_alone_is_never_ejected() -> None:
    """16: n = 1, slow, hung and failing: there is nobody to go to."""
    target = balancer()
    now = answer(target, ["a"], now=0.0)
    look(target, ("a",), now=now)
    target.begin("a", now=now)
    fail(target, "a", now=now, times=100)
    now = answer(target, ["a"], now=now, rtt=1.0)
    assert look(target, ("a",), now=now) == "a"
    assert target.snapshot(now=now)["a"].ejections == 0


@pytest.mark.parametrize("strategy", LEARNING)
def test_all_failing_serves_all(strategy: LoadBalancingStrategy) -> None:
    """16: panic: an empty pool is everybody, and each still gets requests."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    for name in ABC:
        fail(target, name, now=now)
    counts, _ = closed_loop(target, ABC, lambda e, t: (MS, Outcome.FAILURE), now=now, picks=300)
    assert set(counts) == set(ABC)


# -- 17, 18: fairness -----------------------------------------------------------------------


@pytest.mark.parametrize("known", [False, True], ids=["first range", "known range"])
@pytest.mark.parametrize("strategy", JUDGING)
def test_one_long_operation_does_not_condemn_a_healthy_endpoint(
    strategy: LoadBalancingStrategy, known: bool
) -> None:
    """17: a range of 2 s among GETs of 1 ms: nobody out, share >= 0.2 of the next 2,000 GETs."""
    target = balancer(strategy)

    def get(endpoint: Hashable, now: float) -> tuple[float, Outcome]:
        return MS, Outcome.SUCCESS

    _, now = closed_loop(target, ABC, get, now=0.0, picks=100)
    if known:
        now = answer(target, ABC, now=now, rtt=0.1, times=5, operation="range")
    now = answer(target, ["a"], now=now, rtt=2.0, times=1, operation="range")
    counts, now = closed_loop(target, ABC, get, now=now, picks=2000)
    assert [s.ejections for s in target.snapshot(now=now).values()] == [0, 0, 0]
    assert counts["a"] >= 400


def test_a_long_operation_in_flight_does_not_look_hung() -> None:
    """17: nobody knows yet what a range costs, so its age proves nothing."""
    target = balancer()
    now = answer(target, ABC, now=0.0, operation="get")
    running = target.begin("a", now=now, operation="range")
    look(target, ABC, now=now + 2.0)
    assert ejected(target, now=now + 2.0) == set()
    running.done(Outcome.SUCCESS, now=now + 2.0)
    assert target.snapshot(now=now + 2.0)["a"].mean_rtt == pytest.approx(MS)


@pytest.mark.parametrize("strategy", JUDGING)
@pytest.mark.parametrize("seed", [1, 2])
def test_one_worker_does_not_herd(strategy: LoadBalancingStrategy, seed: int) -> None:
    """18: three equals, 30 virtual seconds: no endpoint above 0.40 of any 1,000 picks.

    Strictly ordered loads would give 2/3, 1/3 and 0.
    """
    simulation = Simulation(
        balancer(strategy, seed=seed),
        {name: lognormal(MS, 0.25) for name in ABC},
        random.Random(seed),
    )
    result = simulation.run(seconds=30.0)
    assert len(result.endpoints) > 25_000
    assert result.worst_window_share(1000) <= 0.40


# -- 19: time -------------------------------------------------------------------------------


def test_samples_at_one_timestamp_move_the_mean() -> None:
    """19: 200 samples of 1 ms with no time between: from 100 ms to 1 ms (0.9^200 is 1e-9)."""
    target = balancer()
    answer(target, ["a"], now=0.0, rtt=0.1, times=1)
    for _ in range(200):
        target.begin("a", now=0.1 - MS).done(Outcome.SUCCESS, now=0.1)
    assert target.snapshot(now=0.1)["a"].mean_rtt == pytest.approx(MS, rel=1e-6)


def test_a_clock_that_goes_back_counts_as_no_time() -> None:
    """19: a sample from before is weighted as if it came at once, and moves no timestamp."""
    ahead, level = PeakEwma(10.0), PeakEwma(10.0)
    low, high = MeanEwma(10.0), MeanEwma(10.0)
    for peak, mean, at in ((ahead, low, 99.0), (level, high, 100.0)):
        peak.reset(0.010, 100.0)
        mean.reset(0.010, 100.0)
        peak.add(0.020, at)
        mean.add(0.020, at)
        assert peak.at(50.0) == peak.value
    assert ahead.value == level.value == 0.020
    assert low.log == high.log
    assert (ahead.updated_at, low.updated_at) == (100.0, 100.0)


def test_a_balancer_survives_a_clock_that_goes_back() -> None:
    """19: picks go on, everything stays finite, in-flight is exact."""
    target = balancer()
    now = answer(target, ABC, now=1000.0)
    look(target, ABC, now=now)
    pick = target.acquire(ABC, now=now)
    pick.done(Outcome.SUCCESS, now=now - 500.0)
    closed_loop(target, ABC, lambda e, t: (MS, Outcome.SUCCESS), now=now - 500.0, picks=100)
    for stats in target.snapshot(now=now - 600.0).values():
        assert stats.in_flight == 0
        assert 0 < stats.mean_rtt < 1
        assert 0 < stats.peak_rtt < 1


def test_a_latency_of_zero_is_a_sample_of_a_microsecond() -> None:
    """19: a coarse clock measures 0, and 0 has no logarithm."""
    target = balancer()
    target.begin("a", now=5.0).done(Outcome.SUCCESS, now=5.0)
    assert target.snapshot(now=5.0)["a"].mean_rtt == pytest.approx(1e-6)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("outcome", list(Outcome))
def test_a_time_that_is_no_time_teaches_nothing(bad: float, outcome: Outcome) -> None:
    """19: `done` is called in a `finally` and never raises; the request is given back."""
    target, twin = balancer(), balancer()
    for each in (target, twin):
        answer(each, ABC, now=0.0)
    target.begin("a", now=1.0).done(outcome, now=bad)
    target.begin("a", now=1.0).done(outcome, now=2.0, started_at=bad)
    assert target.snapshot(now=3.0) == twin.snapshot(now=3.0)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_pick_at_a_time_that_is_no_time_is_refused(bad: float) -> None:
    """19: NaN compares false with everything and would freeze the balancer."""
    target = balancer()
    for ask in (
        lambda: target.acquire(ABC, now=bad),
        lambda: target.choose(ABC, now=bad),
        lambda: target.begin("a", now=bad),
        lambda: target.snapshot(now=bad),
    ):
        with pytest.raises(ValueError, match="now must be a finite number"):
            ask()


def test_ten_idle_years_do_not_overflow() -> None:
    """19: exp(-3e7) is 0 and not an error; at 3e8 s a double resolves 6e-8 s, 1e-4 of 1 ms."""
    target = balancer()
    now = answer(target, ABC, now=0.0) + 10 * 365.25 * 86400
    look(target, ABC, now=now)
    answer(target, ABC, now=now)
    for stats in target.snapshot(now=now + 1.0).values():
        assert stats.peak_rtt == pytest.approx(MS, rel=1e-4)
        assert stats.mean_rtt == pytest.approx(MS, rel=1e-4)


# -- 20: membership and process life ----------------------------------------------------------


def test_a_late_answer_never_touches_a_successor() -> None:
    """20: removed and added again under the same name while a request is in flight."""
    target = balancer()
    now = answer(target, ABC, now=0.0)
    late = target.begin("a", now=now)
    target.update(["b", "c"])
    target.update(ABC)
    before = target.snapshot(now=now)
    assert (before["a"].in_flight, before["a"].successes) == (0, 0)
    late.done(Outcome.FAILURE, now=now + 1.0)
    assert target.snapshot(now=now) == before


def test_an_unchanged_membership_keeps_everything() -> None:
    """20: a refresh of the topology is no reason to forget."""
    target = balancer()
    now = answer(target, ABC, now=0.0)
    target.begin("a", now=now)
    before = target.snapshot(now=now)
    target.update(reversed(ABC))
    assert target.snapshot(now=now) == before


def in_a_child(report: Callable[[], object]) -> Any:
    """Return what `report` returns in a forked child."""
    read, write = os.pipe()
    pid = os.fork()
    if not pid:
        try:
            os.write(write, json.dumps(report()).encode())
        finally:
            os._exit(0)
    os.close(write)
    with os.fdopen(read, "rb") as pipe:
        answered = pipe.read()
    os.waitpid(pid, 0)
    return json.loads(answered)


needs_fork = pytest.mark.skipif(not hasattr(os, "fork"), reason="this platform has no fork")


@needs_fork
def test_a_forked_child_starts_clean() -> None:
    """20: nothing in flight, other choices (the same 60 by chance: 3^-60), old picks are void."""
    target = balancer()
    now = answer(target, ABC, now=0.0)
    open_pick = target.begin("a", now=now)

    def report() -> object:
        flying = in_flight(target, now=now)
        open_pick.done(Outcome.FAILURE, now=now)
        failures = target.snapshot(now=now)["a"].failures
        return flying, failures, [target.choose(ABC, now=now) for _ in range(60)]

    flying, failures, chosen = in_a_child(report)
    assert flying == {"a": 0, "b": 0, "c": 0}
    assert failures == 0
    assert chosen != [target.choose(ABC, now=now) for _ in range(60)]
    assert in_flight(target, now=now)["a"] == 1


class WaitingPolicy:
    """Keeps the balancer's lock for as long as a test wants."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.leave = threading.Event()

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        self.entered.set()
        self.leave.wait(20.0)
        return candidates[0]


@needs_fork
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_forked_while_the_lock_was_held_can_use_the_balancer() -> None:
    """20: the thread that holds the lock does not exist in the child."""
    policy = WaitingPolicy()
    target = LoadBalancer(policy, rng=random.Random(1))
    thread = threading.Thread(target=target.acquire, args=(ABC,), kwargs={"now": 0.0})
    thread.start()
    assert policy.entered.wait(20.0)
    try:

        def report() -> object:
            policy.leave = threading.Event()
            policy.leave.set()
            return in_flight(target, now=1.0), target.acquire(ABC, now=1.0).endpoint

        assert in_a_child(report) == [{"a": 0, "b": 0, "c": 0}, "a"]
    finally:
        policy.leave.set()
        thread.join()


def test_threads_and_event_loops_share_one_balancer() -> None:
    """20: 4 threads and 2 event loops, every outcome, cancellations: in-flight ends at 0."""
    target = balancer()
    clock = itertools.count()
    outcomes = itertools.cycle(Outcome)

    def now() -> float:
        return next(clock) * MS

    def work() -> None:
        for outcome in itertools.islice(outcomes, 300):
            pick = target.acquire(ABC, now=now(), exclude=("b",))
            target.begin("b", now=now()).done(outcome, now=now())
            pick.done(outcome, now=now())

    async def request() -> None:
        pick = target.acquire(ABC, now=now())
        try:
            for _ in range(5):
                await asyncio.sleep(0)
        finally:
            pick.done(Outcome.CANCELLED, now=now())

    async def serve() -> None:
        for _ in range(20):
            tasks = [asyncio.create_task(request()) for _ in range(10)]
            await asyncio.sleep(0)
            for task in tasks[::2]:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)

    threads = [threading.Thread(target=work) for _ in range(4)]
    threads += [threading.Thread(target=lambda: asyncio.run(serve())) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    stats = target.snapshot(now=now()).values()
    assert [s.in_flight for s in stats] == [0, 0, 0]
    assert sum(s.picks for s in stats) == 4 * 300 + 2 * 200


def test_a_wait_before_the_request_is_not_its_latency() -> None:
    """20: a pick made at 0, a connection until 1 s, an answer 2 ms later: 2 ms."""
    target = balancer()
    target.begin("a", now=0.0).done(Outcome.SUCCESS, now=1.002, started_at=1.0)
    assert target.snapshot(now=1.002)["a"].mean_rtt == pytest.approx(2 * MS)


# -- (+): retries -----------------------------------------------------------------------------


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
def test_a_retry_avoids_what_it_tried_and_falls_back_when_nothing_is_left(
    strategy: LoadBalancingStrategy,
) -> None:
    """(+): an exclude set that leaves nothing is no error; no candidates at all are one."""
    target = balancer(strategy)
    now = answer(target, ABC, now=0.0)
    assert {target.acquire(ABC, now=now, exclude=("a", "b")).endpoint for _ in range(20)} == {"c"}
    assert target.acquire(ABC, now=now, exclude=set(ABC)).endpoint in ABC
    assert target.choose(ABC, now=now, exclude=["b", "c"]) == "a"
    with pytest.raises(NoEndpointError):
        target.acquire((), now=now)


def test_a_retry_prefers_an_ejected_endpoint_to_the_one_it_tried() -> None:
    """(+): what failed just now is the worse bet."""
    target = balancer()
    now = answer(target, ABC, now=0.0)
    look(target, ABC, now=now)
    fail(target, "c", now=now)
    assert {target.acquire(ABC, now=now, exclude=("a",)).endpoint for _ in range(20)} == {"b"}
    assert target.acquire(ABC, now=now, exclude=("a", "b")).endpoint == "c"
