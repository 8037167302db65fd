import pytest

from bench.counters import CallCounts, calls_between
from bench.scenarios.redis_healthy import worst_share


def test_calls_between_two_counts_are_differences() -> None:
    before, after = CallCounts(0.0, {"a": 5, "b": 1}), CallCounts(1.0, {"a": 9, "b": 1})
    assert calls_between(before, after) == {"a": 4, "b": 0}


@pytest.mark.parametrize(
    ("endpoints", "window", "worst"),
    [("abab", 2, 0.5), ("abaaba", 3, 2 / 3), ("bbaaab", 3, 1.0), ("aaab", 4, 0.75)],
)
def test_the_worst_share_is_found_in_a_window_that_starts_anywhere(
    endpoints: str, window: int, worst: float
) -> None:
    assert worst_share(endpoints, window) == pytest.approx(worst)
