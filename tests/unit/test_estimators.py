"""Decay is plain mathematics, so its vectors are exact to 1e-15."""

import math

import pytest

from lb_strategies.estimators import LEAST_RTT, MeanEwma, PeakEwma, SampleEwma


def peak(value: float, *, decay: float = 10.0, at: float = 0.0) -> PeakEwma:
    estimate = PeakEwma(decay)
    estimate.reset(value, at)
    return estimate


def mean(value: float, *, decay: float = 10.0, at: float = 0.0) -> MeanEwma:
    estimate = MeanEwma(decay)
    estimate.reset(value, at)
    return estimate


def test_a_peak_decays_by_e_in_one_decay() -> None:
    assert peak(1.0).at(10.0) == pytest.approx(0.36787944117144233, rel=1e-15)


def test_a_peak_of_20_seconds_ago_beats_a_smaller_one_of_a_second_ago() -> None:
    old = peak(1.2).at(20.0)
    assert old == pytest.approx(0.16240233988393524, rel=1e-15)
    assert old < peak(0.2).at(1.0)


def test_a_sample_below_the_peak_is_blended_in() -> None:
    estimate = peak(0.3)
    estimate.add(0.12, 5.0)
    assert estimate.value == pytest.approx(0.22917551874827402, rel=1e-15)


def test_a_sample_above_the_decayed_peak_replaces_it() -> None:
    estimate = peak(10.0)
    assert estimate.at(25.0) == pytest.approx(0.8208, abs=1e-4)
    estimate.add(1.0, 25.0)
    assert (estimate.value, estimate.updated_at) == (1.0, 25.0)


def test_a_peak_is_seen_at_once() -> None:
    estimate = peak(0.001)
    estimate.add(0.100, 0.0)
    assert estimate.at(0.0) == 0.100


def test_a_smaller_sample_in_the_same_instant_is_ignored_by_the_peak() -> None:
    estimate = peak(0.100)
    estimate.add(0.001, 0.0)
    assert estimate.at(0.0) == 0.100


def test_a_peak_decays_to_the_prior_and_not_to_zero() -> None:
    estimate = peak(1.0)
    assert estimate.at(10.0, 0.5) == pytest.approx(0.5 + 0.5 * math.exp(-1.0), rel=1e-15)
    assert estimate.at(1e9, 0.5) == 0.5


def test_a_peak_below_the_prior_rises_to_it() -> None:
    assert peak(0.1).at(1e9, 0.5) == 0.5


def test_an_estimate_that_never_learnt_is_the_prior() -> None:
    assert PeakEwma(10.0).at(0.0, 0.03) == 0.03


def test_reading_a_peak_changes_nothing() -> None:
    estimate = peak(1.0)
    for at in range(1000):
        estimate.at(float(at), 0.5)
    assert (estimate.value, estimate.updated_at) == (1.0, 0.0)


@pytest.mark.parametrize(
    ("elapsed", "weight"),
    [(-5.0, 0.1), (0.0, 0.1), (0.5, 0.1), (2.0, 1 - math.exp(-0.2)), (20.0, 0.5), (1e9, 0.5)],
)
def test_the_weight_of_a_sample_in_the_mean_is_clamped(elapsed: float, weight: float) -> None:
    estimate = mean(1.0)
    estimate.add(math.e, elapsed)
    assert estimate.log == pytest.approx(weight, rel=1e-12)


def test_a_spike_of_100_times_moves_the_mean_by_1_58() -> None:
    estimate = mean(0.001)
    estimate.add(0.1, 0.0)
    assert estimate.value == pytest.approx(0.001 * 100**0.1, rel=1e-12)


def test_a_spike_of_any_height_moves_the_mean_no_more_than_one_of_100_times() -> None:
    estimate = mean(0.001)
    estimate.add(1e6, 0.0)
    assert estimate.value == pytest.approx(0.001 * 100**0.1, rel=1e-12)


def test_a_mean_does_not_go_back_in_time() -> None:
    estimate = mean(1.0, at=5.0)
    estimate.add(1.0, 3.0)
    assert estimate.updated_at == 5.0
    estimate.add(1.0, 7.0)
    assert estimate.updated_at == 7.0


def test_the_least_round_trip_has_a_logarithm() -> None:
    assert mean(LEAST_RTT).value == pytest.approx(LEAST_RTT)


@pytest.mark.parametrize(
    ("before", "sample", "after"),
    [
        (None, 10.0, 10.0),
        (None, 0.0, 0.0),
        (0.0, 5.0, 1.0),
        (3.1, 36.0, 9.68),
        (9.12, 9.12, 9.12),
        (1.0, 1000.0, 200.8),
        (0.0, 0.25, 0.05),
    ],
)
def test_a_plain_average_takes_a_fifth_of_each_sample(
    before: float | None, sample: float, after: float
) -> None:
    estimate = SampleEwma(0.2, before)
    assert estimate.add(sample) == pytest.approx(after)
    assert estimate.value == pytest.approx(after)
