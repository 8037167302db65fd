"""Policies of a user's own."""

from __future__ import annotations

import random
from collections.abc import Sequence

from lb_strategies import Candidate


class Greatest:
    """Takes the endpoint with the greatest name, whatever happens."""

    ignores_health = True

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        return max(candidates, key=lambda candidate: str(candidate.endpoint))
