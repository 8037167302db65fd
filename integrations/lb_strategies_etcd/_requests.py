"""The requests of a caller, for one stream after the other: threads."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator


class Requests:
    """Hands the caller's requests to whichever stream is open.

    A thread of its own reads the caller's iterator, which may block for ever, and not much ahead:
    so no stream that has ended keeps what it can no longer send.

    Args:
        source: the caller's iterator.
        sent: is told of each request that a stream takes.
    """

    def __init__(self, source: Iterator[object], sent: Callable[[object], None]) -> None:
        self._waiting: deque[object] = deque()
        self._changed = threading.Condition()
        self._sent = sent
        self._stream = 0
        self._has_ended = False
        self._failure: BaseException | None = None
        threading.Thread(
            target=self._read, args=(source,), name="lb-stream-requests", daemon=True
        ).start()

    def _read(self, source: Iterator[object]) -> None:
        try:
            for request in source:
                with self._changed:
                    self._changed.wait_for(lambda: self._has_ended or not self._waiting)
                    if self._has_ended:
                        return
                    self._waiting.append(request)
                    self._changed.notify_all()
        except BaseException as error:
            self._failure = error  # gRPC reports it, as it does for a plain stream
        self.end()

    def end(self) -> None:
        """Let every stream end its requests once it has sent what is there."""
        with self._changed:
            self._has_ended = True
            self._changed.notify_all()

    def detach(self) -> None:
        """Give nothing more to the present stream, whose thread ends."""
        with self._changed:
            self._stream += 1
            self._changed.notify_all()

    def feed(self, first: list[object]) -> Iterator[object]:
        """Return the requests of a new stream; the one before gets no more."""
        self.detach()
        return self._feed(first, self._stream)

    def _feed(self, first: list[object], mine: int) -> Iterator[object]:
        yield from first
        while True:
            with self._changed:
                self._changed.wait_for(
                    lambda: self._waiting or self._has_ended or mine != self._stream
                )
                if mine != self._stream:
                    return
                if not self._waiting:
                    if self._failure is not None:
                        raise self._failure
                    return
                request = self._waiting.popleft()
                self._sent(request)
                self._changed.notify_all()
            yield request
