import random
from itertools import pairwise

import pytest

from bench.workload import Mix, Operation, poisson_arrivals

GET = Operation("read", "get", ("key",))
SET = Operation("write", "set", ("key", "value"))
MIX = Mix([GET, SET], [0.9, 0.1])


def test_the_same_seed_gives_the_same_arrivals() -> None:
    first, second = (
        poisson_arrivals(MIX, rate=500, seconds=2, rng=random.Random(7)) for _ in range(2)
    )
    assert first == second
    assert first != poisson_arrivals(MIX, rate=500, seconds=2, rng=random.Random(8))


def test_arrivals_are_ordered_and_end_in_time() -> None:
    arrivals = poisson_arrivals(MIX, rate=500, seconds=2, rng=random.Random(1))
    assert all(a.at < b.at for a, b in pairwise(arrivals))
    assert arrivals[0].at > 0
    assert arrivals[-1].at < 2


def test_arrivals_come_at_the_rate_and_in_the_mix() -> None:
    """20,000 arrivals: the count's deviation is 141, the writes' is 42; both within five."""
    arrivals = poisson_arrivals(MIX, rate=1000, seconds=20, rng=random.Random(1))
    assert abs(len(arrivals) - 20_000) < 5 * 141
    writes = sum(arrival.operation.kind == "write" for arrival in arrivals)
    assert abs(writes - len(arrivals) / 10) < 5 * 42


def test_the_number_of_arrivals_is_bounded() -> None:
    arrivals = poisson_arrivals(MIX, rate=1e6, seconds=60, rng=random.Random(1), limit=100)
    assert len(arrivals) == 100


@pytest.mark.parametrize(
    ("rate", "seconds"), [(0, 1), (-1, 1), (float("nan"), 1), (1, 0), (1, float("nan"))]
)
def test_meaningless_rates_and_durations_are_refused(rate: float, seconds: float) -> None:
    with pytest.raises(ValueError, match="must be positive"):
        poisson_arrivals(MIX, rate=rate, seconds=seconds, rng=random.Random(1))
