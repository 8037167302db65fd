"""Following MOVED and ASK to addresses that are known, and to no other.

Every error reply passes the parser of its connection. There a redirect gets the address to
dial; one to a node that the client does not know ends the attempt (nothing was executed), and
goes on only when nodes that are known have confirmed it.
"""

from __future__ import annotations

from collections.abc import Generator
from itertools import islice
from typing import Any, Final

from ._errors import StandIn, stand_in
from ._library import library_of
from ._router import router_of

MOST_CONFIRMATIONS: Final = 4
"""Unknown addresses that one command is sent on to, in a row; redis-py counts the known ones."""

_WITNESSES: Final = 3  # nodes asked for CLUSTER NODES about one address


class Unconfirmed(StandIn):
    """Stands in for a redirect to a node that the client does not know. Never seen by the user."""


def astray(error: Exception) -> Exception:
    """Return what ends the attempt that was redirected to a node nobody knows."""
    return stand_in("ResponseError", library_of(type(error)), error, Unconfirmed)


def is_known(manager: Any, error: Any) -> bool:
    """Whether a redirect leads to a node of the topology."""
    if getattr(error, "_lb_refused", False):
        return False
    return manager.get_node(host=error.host, port=error.port) is not None


def localise(error: Any, connection: Any, manager: Any) -> bool:
    """Give a redirect the address to dial; return whether it is that of a known node."""
    router = router_of(manager)
    if router is None:
        return True  # switched back: for redis-py to handle
    router.addresses.localise(error, connection.host)
    return is_known(manager, error)


def confirmation(manager: Any, error: Any) -> Generator[Any, Any, bool]:
    """Have known nodes confirm where a redirect leads to.

    CLUSTER SLOTS has no nodes without slots, which is what the target of the first slot to be
    migrated is; CLUSTER NODES has.

    Yields:
        None to have the topology refreshed, or a node to ask for CLUSTER NODES; the reply is
        sent in, parsed, or nothing if there is none.

    Returns:
        Whether the node has to be added to the topology.

    Raises:
        EndpointRefusedError: nothing may be sent there.
    """
    router = router_of(manager)
    if router is None or is_known(manager, error):
        return False
    addresses = router.addresses
    addresses.check(error)
    yield None
    if is_known(manager, error):
        return False
    for node in islice(list(manager.nodes_cache.values()), _WITNESSES):
        if addresses.is_listed(error, (yield node) or {}):
            return True
    raise addresses.unconfirmed(error) from error
