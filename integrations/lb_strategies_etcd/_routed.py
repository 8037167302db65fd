"""What the callables of both routing channels have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Protocol

import grpc

from ._call import Call, as_metadata
from ._links import Link
from ._methods import classify

Metadata = Iterable[tuple[str, str | bytes]] | None


class HasLinks(Protocol):
    """A routing channel, as far as it concerns all kinds of methods."""

    def link(self, member: str) -> Link:
        """Return the connections to `member`."""
        ...


class Routed:
    """One method of a routing channel.

    Args:
        channel: the routing channel.
        method: path of the RPC.
        make: makes the plain callable on a member's channel.
    """

    def __init__(self, channel: HasLinks, method: str, make: Callable[[Any], Any]) -> None:
        self._channel = channel
        self._method = method
        self._make = make

    def on(self, member: str) -> Any:
        """Return the plain callable on `member`."""
        return self._channel.link(member).stub(self, self._make)

    def _call(
        self,
        message: object,
        metadata: Metadata,
        credentials: grpc.CallCredentials | None,
        compression: grpc.Compression | None,
        *,
        with_call: bool = False,
    ) -> Call:
        return Call(
            self,
            classify(self._method, message),
            message,
            as_metadata(metadata),
            credentials,
            compression,
            with_call,
        )
