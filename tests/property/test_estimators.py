"""Averages of any samples at any times: reads agree, and nothing leaves its bounds."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lb_strategies.estimators import LEAST_RTT, MeanEwma, PeakEwma, SampleEwma
from lb_strategies.window import SuccessWindow

rtts = st.floats(LEAST_RTT, 1e4)
times = st.floats(-1e9, 1e9)
decays = st.floats(1e-3, 1e3)
samples = st.lists(st.tuples(times, rtts), min_size=1, max_size=30)


@given(decay=decays, first=rtts, prior=rtts, samples=samples, at=times)
def test_a_peak_stays_between_the_least_and_the_greatest_it_was_told(
    decay: float, first: float, prior: float, samples: list[tuple[float, float]], at: float
) -> None:
    peak = PeakEwma(decay)
    peak.reset(first, 0.0)
    for now, rtt in samples:
        peak.add(rtt, now, prior)
    told = [first, prior, *(rtt for _, rtt in samples)]
    for value in (peak.value, peak.at(at, prior)):
        assert min(told) * (1 - 1e-9) <= value <= max(told) * (1 + 1e-9)


@given(decay=decays, value=rtts, prior=rtts, at=times, reads=st.lists(times, max_size=20))
def test_reads_agree_however_often_and_in_whatever_order(
    decay: float, value: float, prior: float, at: float, reads: list[float]
) -> None:
    peak = PeakEwma(decay)
    peak.reset(value, 0.0)
    once = peak.at(at, prior)
    for read in reads:
        peak.at(read, prior)
    assert peak.at(at, prior) == once
    assert (peak.value, peak.updated_at) == (value, 0.0)


@given(decay=decays, value=rtts, prior=rtts, first=st.floats(0, 1e3), second=st.floats(0, 1e3))
def test_a_peak_moves_towards_the_prior_and_never_past_it(
    decay: float, value: float, prior: float, first: float, second: float
) -> None:
    peak = PeakEwma(decay)
    peak.reset(value, 0.0)
    early, late = sorted((first, second))
    distances = [abs(peak.at(now, prior) - prior) for now in (0.0, early, late)]
    slack = 1e-12 * max(value, prior)
    assert distances[0] + slack >= distances[1]
    assert distances[1] + slack >= distances[2]


@given(decay=decays, value=rtts, rtt=rtts, now=times, prior=rtts)
def test_a_sample_above_what_is_read_is_read_at_once(
    decay: float, value: float, rtt: float, now: float, prior: float
) -> None:
    peak = PeakEwma(decay)
    peak.reset(value, 0.0)
    above = rtt >= peak.at(now, prior)
    peak.add(rtt, now, prior)
    assert not above or peak.at(now, prior) == pytest.approx(rtt)


@given(decay=decays, first=rtts, samples=samples)
def test_a_mean_stays_between_the_least_and_the_greatest_sample(
    decay: float, first: float, samples: list[tuple[float, float]]
) -> None:
    mean = MeanEwma(decay)
    mean.reset(first, 0.0)
    for now, rtt in samples:
        mean.add(rtt, now)
    told = [first, *(rtt for _, rtt in samples)]
    assert min(told) * (1 - 1e-9) <= mean.value <= max(told) * (1 + 1e-9)
    assert math.isfinite(mean.log)


@given(decay=decays, first=rtts, samples=samples)
def test_the_time_of_an_estimate_never_goes_back(
    decay: float, first: float, samples: list[tuple[float, float]]
) -> None:
    peak, mean = PeakEwma(decay), MeanEwma(decay)
    peak.reset(first, 0.0)
    mean.reset(first, 0.0)
    latest = 0.0
    for now, rtt in samples:
        peak.add(rtt, now)
        mean.add(rtt, now)
        latest = max(latest, now)
        assert peak.updated_at == mean.updated_at == latest


@given(weight=st.floats(0.01, 1.0), values=st.lists(rtts, min_size=1))
def test_a_plain_average_stays_between_its_samples(weight: float, values: list[float]) -> None:
    average = SampleEwma(weight)
    for value in values:
        average.add(value)
    assert average.value is not None
    assert min(values) * (1 - 1e-9) <= average.value <= max(values) * (1 + 1e-9)


@given(
    length=st.floats(0.3, 300.0),
    steps=st.lists(st.tuples(st.floats(0.0, 100.0), st.booleans()), max_size=60),
)
def test_a_window_counts_what_a_list_would_to_one_mark(
    length: float, steps: list[tuple[float, bool]]
) -> None:
    """At least what lies within its length, at most what one more mark adds to it."""
    window = SuccessWindow(length)
    now, log = 0.0, list[tuple[float, bool]]()
    totals = [0, 0]
    for gap, success in steps:
        now += gap
        if now >= window.next_at:
            window.mark(now, *totals)
        totals[success] += 1
        log.append((now, success))
    failures, successes = window.counts(now, *totals)
    slack = 1e-9 * (1.0 + now)
    inside = [success for at, success in log if at > now - length + slack]
    assert failures >= inside.count(False)
    assert successes >= inside.count(True)
    # The mark that the window starts from was made when the first request after it came.
    times = [at for at, _ in log]
    before = [at for at in times if at <= now - length - slack]
    oldest = before[-1] - length / 30 - slack if before else -1.0
    assert failures + successes <= sum(at >= oldest for at in times)
