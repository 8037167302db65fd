"""Clients of either library that are opted in, and what they have in common."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from lb_strategies import EndpointStats, LoadBalancer
from lb_strategies.membership import Endpoint

if TYPE_CHECKING:
    from .aio_channel import AsyncRoutingChannel
    from .channel import RoutingChannel


class RoutedClient:
    """Stands before a client's own class among the bases of the class it gets.

    A client is opted in by giving it such a class and replacing a few of its attributes; what was
    there before is kept, so that it can be given back.
    """

    _lb_channel: RoutingChannel | AsyncRoutingChannel
    _lb_replaced: dict[str, Any]
    """The client's own attributes, in whose places ours are now."""

    @property
    def leader(self) -> Endpoint | None:
        """The member that writes go to, as ``"host:port"``; None while it is not known."""
        return self._lb_channel.leader

    @property
    def leader_term(self) -> int:
        """The highest term seen, >= 0; -1 before there was any."""
        return self._lb_channel.leader_term

    @property
    def load_balancer(self) -> LoadBalancer:
        """What chooses among the members."""
        return self._lb_channel.load_balancer

    def endpoint_stats(self) -> dict[Endpoint, EndpointStats]:
        """Return what is known of every member now."""
        return self._lb_channel.endpoint_stats()


def opt_in(
    client: Any, ours: type[RoutedClient], channel: object, attributes: Mapping[str, object]
) -> None:
    """Have `client` route over `channel`.

    Args:
        client: of a class that is not routed.
        ours: what comes before its class.
        channel: a routing channel.
        attributes: to be set; names that the client has not are not in its way.
    """
    own = vars(client)
    replaced = {name: own[name] for name in attributes if name in own}
    client.__dict__.update(**attributes, _lb_channel=channel, _lb_replaced=replaced)
    client.__class__ = _derived(type(client), ours)


def opt_out(client: Any) -> None:
    """Give `client` back its class and attributes; the routing channel is left as it is."""
    replaced = client._lb_replaced
    client.__class__ = type(client).__bases__[1]
    client.__dict__.update(replaced)
    del client._lb_channel, client._lb_replaced


def _derived(kind: type, ours: type[RoutedClient]) -> type:
    made = _DERIVED.get(kind)
    if made is None:
        made = type(kind.__name__, (ours, kind), {"__doc__": kind.__doc__})
        made.__module__, made.__qualname__ = kind.__module__, kind.__qualname__
        _DERIVED[kind] = made
    return made


_DERIVED: Final[dict[type, type]] = {}
