"""The connections to each member, and the callables made on them: asyncio."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any, Final

import grpc.aio

from ._links import Link
from ._settings import Settings

_CLOSED: Final = "Channel is closed."
"""What a plain channel says."""


class AsyncLinks:
    """The links of one routing channel, made when they are first needed in an event loop.

    A channel of gRPC's belongs to the loop that it was made in. So a loop that comes after
    another one gets new channels, and two loops at a time get an error.

    Args:
        settings: what the channels are made with.
        interceptors: of each channel.
    """

    def __init__(
        self, settings: Settings, interceptors: Sequence[grpc.aio.ClientInterceptor]
    ) -> None:
        self._settings = settings
        self._interceptors = interceptors
        self.known: dict[str, Link] = {}
        """Those made so far in the present loop, by member; to be read only."""
        self._loop: asyncio.AbstractEventLoop | None = None
        self.is_closed = False

    def bind(self) -> bool:
        """See to it that the links are those of the running loop; return whether it is new.

        Raises:
            grpc.aio.UsageError: everything has been closed, in a plain channel's words.
            RuntimeError: another loop, which is running too, has made them.
        """
        loop = asyncio.get_running_loop()
        if loop is self._loop and not self.is_closed:
            return False
        if self.is_closed:
            raise grpc.aio.UsageError(_CLOSED)
        if self._loop is not None and self._loop.is_running():
            raise RuntimeError("the channel is in use in another event loop that is running")
        self._loop, self.known = loop, {}
        return True

    def get(self, member: str) -> Link:
        """Return the link to `member`; `bind` comes first."""
        link = self.known.get(member)
        if link is None:
            if self.is_closed:
                raise grpc.aio.UsageError(_CLOSED)
            count = self._settings.channels_per_member
            link = self.known[member] = Link([self._make(member, i) for i in range(count)])
        return link

    def _make(self, member: str, index: int) -> Any:
        settings = self._settings
        target, options = settings.target(member), settings.options(index)
        if settings.credentials is not None and settings.is_secure(member):
            return grpc.aio.secure_channel(
                target, settings.credentials, options, interceptors=self._interceptors
            )
        return grpc.aio.insecure_channel(target, options, interceptors=self._interceptors)

    async def keep(self, members: Iterable[str], grace: float | None = None) -> None:
        """Close the links to all others."""
        kept = set(members)
        gone = [self.known.pop(m) for m in tuple(self.known) if m not in kept]
        if self._loop is asyncio.get_running_loop():  # else they can be dropped only
            await asyncio.gather(
                *(channel.close(grace) for link in gone for channel in link.channels)
            )

    async def close(self, grace: float | None = None) -> None:
        """Close everything, for good."""
        self.is_closed = True
        await self.keep((), grace)
