"""The connections to each member, and the callables made on them: threads."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import grpc

from ._settings import Settings

_CLOSED: Final = "Cannot invoke RPC on closed channel!"
"""What a plain channel says."""


class Link:
    """The channels to one member.

    Args:
        channels: at least one, all to the same member.
    """

    def __init__(self, channels: Sequence[grpc.Channel]) -> None:
        self.channels = tuple(channels)
        self.only: dict[object, Any] = {}
        """The callables made so far, if there is one channel."""
        self._turn = itertools.count()
        self._stubs: dict[object, tuple[Any, ...]] = {}

    def stub(self, key: object, make: Callable[[grpc.Channel], Any]) -> Any:
        """Return the callable called `key`, of the channel whose turn it is."""
        stubs = self._stubs.get(key)
        if stubs is None:
            stubs = self._stubs[key] = tuple(make(channel) for channel in self.channels)
            if len(stubs) == 1:
                self.only[key] = stubs[0]
        return stubs[next(self._turn) % len(stubs)]

    def close(self) -> None:
        """Close every channel; what is in flight is cancelled."""
        for channel in self.channels:
            channel.close()


class Links:
    """The links of one routing channel, made when they are first needed.

    Args:
        settings: what the channels are made with.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self.known: dict[str, Link] = {}
        """Those made so far, by member; to be read only."""
        self._lock = threading.Lock()
        self.is_closed = False
        """Whether everything has been closed, for good."""

    def get(self, member: str) -> Link:
        """Return the link to `member`.

        Raises:
            ValueError: everything has been closed, in a plain channel's words.
        """
        link = self.known.get(member)
        if link is not None:
            return link
        with self._lock:
            self.check()
            link = self.known.get(member)
            if link is None:
                count = self._settings.channels_per_member
                link = self.known[member] = Link([self._make(member, i) for i in range(count)])
            return link

    def check(self) -> None:
        """Raise ``ValueError`` if everything has been closed, in a plain channel's words."""
        if self.is_closed:
            raise ValueError(_CLOSED)

    def _make(self, member: str, index: int) -> grpc.Channel:
        settings = self._settings
        target, options = settings.target(member), settings.options(index)
        if settings.credentials is not None and settings.is_secure(member):
            return grpc.secure_channel(target, settings.credentials, options)
        return grpc.insecure_channel(target, options)

    def keep(self, members: Iterable[str]) -> None:
        """Close the links to all others."""
        kept = set(members)
        with self._lock:
            gone = [self.known.pop(m) for m in tuple(self.known) if m not in kept]
        for link in gone:
            link.close()

    def close(self) -> None:
        """Close everything, for good."""
        with self._lock:
            self.is_closed = True
        self.keep(())
