"""Every built-in policy, a user's own, and proof that the check would notice a bad one."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from lb_strategies import BalancerOptions, Candidate, LoadBalancingStrategy, Policy
from lb_strategies.endpoint import EndpointState
from lb_strategies.policies import PowerOfTwoChoices, Rotation, make_policy
from lb_strategies.testing import check_policy


class LeastBusy:
    """A user's own policy: the fewest requests in flight, then the least recently picked.

    Whoever has not answered yet gets one request at a time.
    """

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return min(candidates, key=lambda c: (c.is_cold and c.in_flight, c.in_flight, c.last_pick))


class Cheapest:
    """Another: always the least load; it may starve an endpoint, says so, and is helped."""

    may_starve = True

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        least = min(c.load(now) for c in candidates)
        cheap = [c for c in candidates if c.load(now) <= 4 * least]
        return min(cheap, key=lambda c: c.last_pick)


class Stranger:
    """Returns a record that it was not given."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return EndpointState("stranger", BalancerOptions())


class Meddler:
    """Counts the request itself."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        chosen: Any = candidates[int(rng.random() * len(candidates))]
        chosen.in_flight += 1
        return candidates[0]


class Starver:
    """Never the last one, if it can help it."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return candidates[int(rng.random() * max(1, len(candidates) - 1))]


class Stubborn:
    """Round robin that neither heeds health nor says so: it keeps records of its own."""

    def __init__(self) -> None:
        self._seen: dict[object, Candidate] = {}
        self._turn = 0

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        self._seen.update((c.endpoint, c) for c in candidates)
        if len(candidates) == len(self._seen):
            return min(candidates, key=lambda c: c.last_pick)
        self._turn += 1
        return list(self._seen.values())[self._turn % len(self._seen)]


class Conservative:
    """Asks only those that have answered before."""

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        answered = [c for c in candidates if not c.is_cold] or candidates
        return min(answered, key=lambda c: c.last_pick)


class Grudging:
    """Takes what ever failed for lost, for good."""

    def __init__(self) -> None:
        self._bad: set[object] = set()

    def observe(self, candidate: Candidate, rtt: float, success: bool) -> None:
        if not success:
            self._bad.add(candidate.endpoint)

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        good = [c for c in candidates if c.endpoint not in self._bad] or candidates
        return min(good, key=lambda c: c.last_pick)


@pytest.mark.parametrize("strategy", list(LoadBalancingStrategy))
@pytest.mark.parametrize("seed", [0, 1])
def test_a_built_in_policy_conforms(strategy: LoadBalancingStrategy, seed: int) -> None:
    check_policy(lambda: make_policy(strategy, BalancerOptions()), seed=seed)


@pytest.mark.parametrize("choices", [3, 4])
def test_more_than_two_choices_conform(choices: int) -> None:
    check_policy(lambda: PowerOfTwoChoices(choices))


@pytest.mark.parametrize("make", [LeastBusy, Cheapest, Rotation])
def test_a_users_own_policy_conforms(make: Callable[[], Policy]) -> None:
    check_policy(make)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (Stranger, "choose returned .* which is none of its 1 candidates"),
        (Meddler, "choose changed a candidate"),
        (Starver, "c, one of three equals, got 0%"),
        (Stubborn, "an endpoint that only fails still got"),
        (Conservative, "one of three equals, got 0%|a healed endpoint got only"),
        (Grudging, "a healed endpoint got only"),
    ],
)
def test_a_broken_policy_is_caught(make: Callable[[], Policy], complaint: str) -> None:
    with pytest.raises(AssertionError, match=complaint):
        check_policy(make)


def test_a_check_is_a_function_of_its_seed() -> None:
    """What it says of a policy that fails, to the last digit, twice."""

    def complaint() -> str:
        with pytest.raises(AssertionError) as caught:
            check_policy(Starver, seed=5)
        return str(caught.value)

    assert complaint() == complaint()
