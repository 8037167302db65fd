"""Softmax over latency: the comparator of the paper this project implements.

p_i ~ exp(-(s_i - min s) / temperature), where s_i is a moving average with a fixed weight.
The minimum is subtracted so that nothing underflows to 0/0.
"""

import random
from collections.abc import Sequence
from itertools import accumulate
from math import exp
from typing import Final
from weakref import WeakKeyDictionary

from ..estimators import SampleEwma
from ..policy import Candidate

_MOST_FAILURES: Final = 3
_FAILURE_COST: Final = 10.0  # temperatures; e^-10 is out, and a few good answers undo it
_FAILING: Final = 1e-9  # relative probability; not zero, or it could never be seen to heal


class Boltzmann:
    """Draw a candidate with a probability that falls exponentially with its latency.

    Health is part of the rule, so ejection does not apply: each failure counts as an answer
    ten temperatures slower than usual, and more than three in a row leave next to no
    probability.

    Args:
        temperature: seconds of extra latency that divide the probability by e, > 0.
        weight: of a new sample in the average, in (0, 1].
    """

    ignores_health = True
    may_starve = True

    def __init__(self, temperature: float = 0.001, weight: float = 0.3) -> None:
        self._temperature = temperature
        self._weight = weight
        self._averages: WeakKeyDictionary[Candidate, SampleEwma] = WeakKeyDictionary()

    def observe(self, candidate: Candidate, rtt: float, success: bool) -> None:
        """Learn a sample of `rtt` seconds; of a failure only that it was one."""
        average = self._averages.get(candidate)
        if average is None:
            average = self._averages[candidate] = SampleEwma(self._weight)
        if not success:
            # Slower than usual, not than the last failure: else a long outage adds up to an
            # average that no answer ever brings down again. And never faster than it seems.
            rtt = candidate.mean_rtt + _FAILURE_COST * self._temperature
            rtt = max(rtt, self._average(candidate))
        average.add(rtt)

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        """Return a candidate, drawn by softmax."""
        weights = list(accumulate(self.weights(candidates)))
        point = rng.random() * weights[-1]
        for candidate, edge in zip(candidates, weights, strict=True):
            if point < edge:
                return candidate
        return candidates[-1]

    def weights(self, candidates: Sequence[Candidate]) -> list[float]:
        """Return one relative weight per candidate, same order, at least one above 0."""
        averages = [
            None if c.consecutive_failures > _MOST_FAILURES else self._average(c)
            for c in candidates
        ]
        # Of those that work: against a fast one that fails the others would underflow to 0.
        least = min((average for average in averages if average is not None), default=0.0)
        return [
            _FAILING if average is None else exp(-(average - least) / self._temperature)
            for average in averages
        ]

    def _average(self, candidate: Candidate) -> float:
        average = self._averages.get(candidate)
        # One without an answer starts like the others do: at the prior, which is its mean.
        return candidate.mean_rtt if average is None or average.value is None else average.value
