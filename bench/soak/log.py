"""What was done to the servers, from when to when, and which errors it excuses.

An error is *unavoidable* if the store itself could not have answered: a read, while every server
of its shard was down; a write, while its shard's primary was down or handing over to another.
Down is a server from the moment it is stopped or killed until it is seen to serve again. A slow
server is not down, and neither is a shard whose slots move: redirects must be followed. But one
command cannot read two keys of such a slot while they are apart: the servers say TRYAGAIN, and
redis-py gives up after 0.4 s ("TTL exhausted").

The answer "no such key" is excused while the key's slot moves (a replica does not know that its
primary has handed a key on, so it cannot redirect), and by nothing else.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass

NO_FAULT = "none"
# Windows that an operation can still overlap; older ones are only counted.
REMEMBERED = 64


@dataclass(eq=False, slots=True)
class Window:
    """A fault.

    Attributes:
        kind: Its name.
        start: Time of ``time.monotonic``.
        end: The same; infinity while it lasts.
        no_reads: Shards of which no server can answer.
        no_writes: Shards that can take no write.
        moving: Slots on their way from one shard to the other.
    """

    kind: str
    start: float
    end: float = float("inf")
    no_reads: Collection[int] = ()
    no_writes: Collection[int] = ()
    moving: Collection[int] = ()

    def overlaps(self, start: float, end: float) -> bool:
        """Whether it was on at some time between two instants."""
        return self.start <= end and start <= self.end


class FaultLog:
    """All windows; written by one thread, read by all.

    Args:
        owner: Returns the shard that serves a slot.
    """

    def __init__(self, owner: Callable[[int], int]) -> None:
        self.begun: Counter[str] = Counter()
        self._owner = owner
        self._recent: deque[Window] = deque(maxlen=REMEMBERED)

    @contextlib.contextmanager
    def window(
        self,
        kind: str,
        *,
        no_reads: Collection[int] = (),
        no_writes: Collection[int] = (),
        moving: Collection[int] = (),
    ) -> Iterator[Window]:
        """Log a fault that begins before the block and ends after it."""
        window = Window(
            kind, time.monotonic(), no_reads=no_reads, no_writes=no_writes, moving=moving
        )
        self.begun[kind] += 1
        self._recent.append(window)
        try:
            yield window
        finally:
            window.end = time.monotonic()

    def kind_between(self, start: float, end: float) -> str:
        """Return the fault that an operation met, the latest one if there were several."""
        for window in reversed(self._recent.copy()):
            if window.overlaps(start, end):
                return window.kind
        return NO_FAULT

    def excuses_error(self, slots: Iterable[int], start: float, end: float, *, write: bool) -> bool:
        """Whether an operation on keys in these slots could not have been answered."""
        windows = self._between(start, end)
        down = {shard for window in windows for shard in window.no_reads}
        if write:
            down |= {shard for window in windows for shard in window.no_writes}
        moving = {slot for window in windows for slot in window.moving}
        # Both shards had a part in what happened to a slot that moved.
        return any(down if slot in moving else self._owner(slot) in down for slot in slots)

    def excuses_refusal(self, slots: Iterable[int], start: float, end: float) -> bool:
        """Whether one command with keys in these slots may have been told to try again."""
        moving = {slot for window in self._between(start, end) for slot in window.moving}
        return any(count > 1 for slot, count in Counter(slots).items() if slot in moving)

    def excuses_missing(self, slot: int, start: float, end: float) -> bool:
        """Whether a replica may say that a key in `slot` does not exist."""
        return any(slot in window.moving for window in self._between(start, end))

    def _between(self, start: float, end: float) -> list[Window]:
        return [window for window in self._recent.copy() if window.overlaps(start, end)]
