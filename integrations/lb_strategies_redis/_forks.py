"""Locks of the client library that another thread holds while the process is forked."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain
from typing import Any
from weakref import ref

from lb_strategies.forks import renew_after_fork

from ._library import library_of


class Locks:
    """Opens the locks of a client in each forked child: who held one is not there to do so.

    A pool of redis-py 8 takes its lock to begin anew in a child, so a child that was forked
    while a thread of its parent took a connection would wait for ever.

    Args:
        client: of the synchronous kind; it owns this object.
    """

    def __init__(self, client: Any) -> None:
        self._client = ref(client)
        renew_after_fork(self)

    def _after_fork_in_child(self) -> None:
        client = self._client()
        if client is None:
            return
        for owner in owners_of_locks(client):
            for value in list(vars(owner).values()):
                # Not gevent's: its greenlets go on in the child, and give back what they hold.
                if type(value).__module__ == "_thread" and hasattr(value, "_at_fork_reinit"):
                    value._at_fork_reinit()


def owners_of_locks(client: Any) -> Iterator[Any]:
    """Return the parts of a client that have locks."""
    manager = client.nodes_manager
    yield from (client, manager, manager.read_load_balancer)
    for node in chain(list(manager.startup_nodes.values()), list(manager.nodes_cache.values())):
        server = library_of(type(node)).node_client(node)
        if server is not None:
            pool = server.connection_pool
            cache = getattr(pool, "cache", None)
            yield from (part for part in (server, pool, cache) if hasattr(part, "__dict__"))
