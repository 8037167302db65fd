"""The clients that compete on a ZooKeeper ensemble, and how each is opened.

A client of ours has a session that writes and one that reads on each server; ``sticky`` and
``limit`` have as many, of kazoo's own client, with the same division of labour. ``limit`` is what
nobody can have in production: writes straight to the leader, reads spread by hand over the servers
that are well. ``stock`` is kazoo's client as everybody uses it, with one session for everything.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Final, Literal

import kazoo.client

from bench.zookeeper.workload import VALUE
from lb_strategies_zookeeper import KazooClient

Kind = Literal["ours", "stock", "sticky", "limit"]

SESSION_TIMEOUT: Final = 4.0
"""Seconds; for every contender."""
START_TIMEOUT: Final = 15.0

LOGGER: Final = logging.getLogger("bench.zookeeper.sessions")
LOGGER.setLevel(logging.CRITICAL)
"""Where kazoo's clients tell of every connection that fails, of which many are made to fail."""


@dataclass(frozen=True, slots=True)
class Contender:
    """A client and its strategy.

    Attributes:
        name: As reported; of ours, the value of a ``LoadBalancingStrategy``.
        kind: See the module.
    """

    name: str
    kind: Kind = "ours"


OURS = "hybrid"
ROUND_ROBIN = "round_robin"
STICKY = Contender("sticky", "sticky")
STOCK = Contender("stock_kazoo", "stock")
LIMIT = Contender("limit", "limit")
ALL = [STOCK, STICKY, *map(Contender, (ROUND_ROBIN, "boltzmann", OURS)), LIMIT]


@dataclass(frozen=True, slots=True)
class Place:
    """The ensemble that clients connect to, as it is now.

    Attributes:
        endpoints: Of all servers, that first which a client sticks to unless it knows better.
        leader: Endpoint of the leader.
        left_out: Endpoints that ``limit`` keeps away from.
    """

    endpoints: Sequence[str]
    leader: str
    left_out: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Client:
    """An opened contender.

    Attributes:
        get: Reads the node of a path.
        put: Writes the value of all nodes to it.
        writer: The session that writes.
        sessions: All clients of kazoo's kind that have to be closed.
    """

    get: Callable[[str], object]
    put: Callable[[str], object]
    writer: kazoo.client.KazooClient
    sessions: Sequence[kazoo.client.KazooClient]

    def close(self) -> None:
        """Close everything."""
        for session in self.sessions:
            session.stop()
            session.close()


def open_client(contender: Contender, place: Place) -> Client:
    """Return a new client, connected.

    Raises:
        KazooTimeoutError: It could not connect.
    """
    with ExitStack() as stack:

        def connect(*endpoints: str) -> kazoo.client.KazooClient:
            return _started(stack, kazoo.client.KazooClient(**_arguments(endpoints)))

        everywhere = place.endpoints
        if contender.kind == "ours":
            arguments = _arguments(everywhere)
            client = _started(stack, KazooClient(strategy=contender.name, **arguments))
            made = Client(client.get, _put(client.set), client, [client])
        elif contender.kind == "stock":
            client = connect(*everywhere)
            made = Client(client.get, _put(client.set), client, [client])
        else:
            is_sticky = contender.kind == "sticky"
            writer = connect(everywhere[0] if is_sticky else place.leader)
            wells = [endpoint for endpoint in everywhere if endpoint not in place.left_out]
            read_from = [everywhere[0]] * len(everywhere) if is_sticky else wells
            readers = [connect(endpoint) for endpoint in read_from]
            made = Client(_spread(readers), _put(writer.set), writer, [writer, *readers])
        stack.pop_all()
        return made


def _arguments(endpoints: Sequence[str]) -> dict[str, Any]:
    """Return what all clients are made with; kazoo would begin with a random server."""
    return {
        "hosts": ",".join(endpoints),
        "timeout": SESSION_TIMEOUT,
        "randomize_hosts": False,
        "logger": LOGGER,
    }


def _started(stack: ExitStack, client: kazoo.client.KazooClient) -> kazoo.client.KazooClient:
    stack.callback(client.close)
    stack.callback(client.stop)
    client.start(timeout=START_TIMEOUT)
    return client


def _put(write: Callable[[str, bytes], object]) -> Callable[[str], object]:
    return lambda path: write(path, VALUE)


def _spread(readers: Sequence[kazoo.client.KazooClient]) -> Callable[[str], object]:
    """Return what reads from each in turn."""
    following = cycle([reader.get for reader in readers]).__next__
    return lambda path: following()(path)
