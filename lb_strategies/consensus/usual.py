"""How long reads usually take, so that one that takes far longer can be given up."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

_WEIGHT_OF_LESS: Final = 0.02
_USUAL_TIMES: Final = 10.0
_UNKNOWN_TIMES: Final = 10.0
_MOST_LABELS: Final = 256


class UsualTimes:
    """Seconds that each kind of read takes at most, more or less: up at once, down slowly.

    Args:
        least: the least time that an attempt is given, in seconds, > 0.
    """

    def __init__(self, least: float) -> None:
        self._least = least
        self._usual: dict[Hashable, float] = {}

    def __len__(self) -> int:
        return len(self._usual)

    def learn(self, label: Hashable, elapsed: float) -> None:
        """Take in that one of the kind `label` took `elapsed` seconds."""
        usual = self._usual.get(label)
        if usual is None:
            if len(self._usual) >= _MOST_LABELS:
                self._usual.clear()
            self._usual[label] = elapsed
        elif elapsed > usual:
            self._usual[label] = elapsed
        else:
            self._usual[label] = usual + _WEIGHT_OF_LESS * (elapsed - usual)

    def limit(self, label: Hashable) -> float:
        """Return how long an attempt may take, in seconds: ten times the usual, or the least.

        Ten times the least for a kind that was never seen to end.
        """
        usual = self._usual.get(label)
        if usual is None:
            return _UNKNOWN_TIMES * self._least
        return max(self._least, _USUAL_TIMES * usual)
