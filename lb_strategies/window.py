"""Exact counts of success and failure over the last seconds."""

from collections import deque
from typing import Final

_BUCKETS: Final = 30  # marks in a success window: one a second by default


class SuccessWindow:
    """How many of the requests of the last seconds failed, by exact counts.

    Counts and not a moving average: a burst of failures gives each sample of an average
    almost no weight and can hide a total outage (linkerd's reason). The endpoint counts its
    requests anyway, so it is enough to mark those counters a few times per window: success
    costs nothing.

    Args:
        length: of the window in seconds; a mark is up to a thirtieth of it late.
    """

    __slots__ = ("_length", "_marks", "next_at")

    def __init__(self, length: float) -> None:
        self._length = length
        self.next_at = float("-inf")
        """When the next mark is due."""
        self.reset(0, 0)

    def mark(self, now: float, failures: int, successes: int) -> None:
        """Note the totals so far; called at least when a mark is due."""
        self.next_at = now + self._length / _BUCKETS
        self._marks.append((now, failures, successes))
        self._forget(now)

    def counts(self, now: float, failures: int, successes: int) -> tuple[int, int]:
        """Return the (failures, successes) of the window that ends at `now`."""
        if now >= self.next_at:
            self.mark(now, failures, successes)
        self._forget(now)
        _, failures_before, successes_before = self._marks[0]
        return failures - failures_before, successes - successes_before

    def _forget(self, now: float) -> None:
        """Drop the marks that lie before the one that the window starts from."""
        while len(self._marks) > 1 and self._marks[1][0] <= now - self._length:
            self._marks.popleft()

    def reset(self, failures: int, successes: int) -> None:
        """Forget everything up to these totals."""
        self._marks = deque([(float("-inf"), failures, successes)])
