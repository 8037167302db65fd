"""What the callables of both routing channels have in common."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from ._links import Links
from ._links_aio import AsyncLinks
from ._methods import classifier, fixed_operation

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
        self.operation = fixed_operation(method)
        """What every call of it needs; None if its message decides."""
        self.classify = classifier(method)
        self._make = make

    def on(self, member: str) -> Any:
        """Return the plain callable on `member`."""
        link = self._links.known.get(member)
        if link is None:
            link = self._links.get(member)
        plain = link.only.get(self)
        return link.stub(self, self._make) if plain is None else plain
