"""The requests of a caller, for one stream after the other: asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable


class AsyncRequests:
    """The caller's requests, for one stream after the other.

    Whichever stream is open gets what comes, and none keeps what it could not send. No more than
    one request waits here.

    Args:
        sent: is told of each request that a stream takes.
    """

    def __init__(self, sent: Callable[[object], None]) -> None:
        self._sent = sent
        self._waiting: list[object] = []
        self._changed = asyncio.Event()
        self._stream = 0
        self._is_taken = False
        """Whether the present stream takes requests."""
        self.has_ended = False
        self._failure: BaseException | None = None

    def _tell(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def read(self, source: AsyncIterable[object] | Iterable[object]) -> None:
        """Take the requests of `source` until it ends."""
        try:
            if isinstance(source, AsyncIterable):
                async for request in source:
                    await self.put(request, wait=True)
            else:
                for request in source:
                    await self.put(request, wait=True)
        except Exception as error:
            self._failure = error  # gRPC gives the call up, as it does for a plain stream
        self.end()

    async def put(self, request: object, *, wait: bool = False) -> None:
        """Hand `request` on; return when a stream has taken it.

        Args:
            request: the caller's.
            wait: whether to wait for the next stream too, if the present one has failed.
        """
        self._waiting.append(request)
        self._tell()
        while (self._is_taken or wait) and self._waiting and not self.has_ended:
            await self._changed.wait()

    def end(self) -> None:
        """Let every stream end its requests once it has sent what is there."""
        self.has_ended = True
        self._tell()

    def feed(self, first: list[object]) -> AsyncIterator[object]:
        """Return the requests of a new stream; those of the one before end."""
        self.detach()
        self._is_taken = True
        return self._feed(first, self._stream)

    async def _feed(self, first: list[object], mine: int) -> AsyncIterator[object]:
        for request in first:
            yield request
        while mine == self._stream:
            if self._waiting:
                request = self._waiting.pop(0)
                self._sent(request)
                self._tell()
                yield request
            elif self._failure is not None:
                raise self._failure
            elif self.has_ended:
                return
            else:
                await self._changed.wait()

    def detach(self) -> None:
        """Give nothing more to the present stream."""
        self._stream += 1
        self._is_taken = False
        self._tell()
