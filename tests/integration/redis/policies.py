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


class Always:
    """Takes one endpoint whenever it is a candidate, whatever happens.

    Args:
        endpoint: which.
    """

    ignores_health = True

    def __init__(self, endpoint: object) -> None:
        self._endpoint = endpoint

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        found = [c for c in candidates if c.endpoint == self._endpoint]
        return found[0] if found else candidates[0]
