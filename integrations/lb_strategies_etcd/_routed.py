"""What the callables of both routing channels have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import grpc

from ._call import Call, as_metadata
from ._links import Links
from ._links_aio import AsyncLinks
from ._methods import classifier

Metadata = Iterable[tuple[str, str | bytes]] | None


class Routed:
    """One method of a routing channel.

    Args:
        channel: the routing channel.
        links: of that channel.
        method: path of the RPC.
        make: makes the plain callable on a member's channel.
    """

    def __init__(
        self,
        channel: object,
        links: Links | AsyncLinks,
        method: str,
        make: Callable[[Any], Any],
    ) -> None:
        self._channel = channel
        self._links = links
        self._classify = classifier(method)
        self._make = make

    def on(self, member: str) -> Any:
        """Return the plain callable on `member`."""
        link = self._links.known.get(member)
        if link is None:
            link = self._links.get(member)
        plain = link.only.get(self)
        return link.stub(self, self._make) if plain is None else plain

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
            self._classify(message),
            message,
            None if metadata is None else as_metadata(metadata),
            credentials,
            compression,
            with_call,
        )
