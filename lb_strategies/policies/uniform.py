"""Uniformly random choice: the other stock baseline."""

import random
from collections.abc import Sequence

from ..policy import Candidate


class Uniform:
    """Take any candidate with equal probability, whatever its state."""

    ignores_health = True

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        """Return one of the candidates, each with probability 1/n."""
        return candidates[int(rng.random() * len(candidates))]
