"""Even rotation: the stock baseline, and the read rule of HYBRID."""

import random
from collections.abc import Sequence
from operator import attrgetter

from ..policy import Candidate

_last_pick = attrgetter("last_pick")


class Rotation:
    """Take the candidate that was picked longest ago.

    Unlike an index, this stays even when the candidates change, and cannot point past the end
    of a list that shrank. The first round is in random order, so that many clients that start
    together do not march in step.

    Args:
        ignores_health: rotate over every candidate, ejected ones too.
    """

    def __init__(self, *, ignores_health: bool = False) -> None:
        self.ignores_health = ignores_health

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        """Return the least recently picked one; never picked ones in random order."""
        oldest = min(candidates, key=_last_pick)
        if not self.ignores_health and oldest.is_cold and oldest.in_flight:
            # No answer yet: one request at a time, unless all are in that position.
            idle = [c for c in candidates if not (c.is_cold and c.in_flight)]
            if idle:
                oldest = min(idle, key=_last_pick)
        if oldest.last_pick == 0:
            return rng.choice(
                [c for c in candidates if c.last_pick == 0 and not c.in_flight] or [oldest]
            )
        return oldest
