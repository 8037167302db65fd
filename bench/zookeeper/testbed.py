"""A ZooKeeper ensemble whose links have a delay, with its nodes, and the drivers of its clients."""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import ExitStack
from typing import Final, Self

from bench.closed_loop import Workload
from bench.closed_testbed import MEMBERS, READ_PART, ClosedTestbed
from bench.scenario import Settings
from bench.servers.process import running_on, split_cpus, taking_precedence
from bench.servers.zookeeper import ZooKeeperServer, ZooKeeperServers
from bench.zookeeper.contenders import Contender, Place, open_client
from bench.zookeeper.load import ZooKeeperDriver
from bench.zookeeper.workload import NODES, PARENT, VALUE, mixed, path

WORKERS: Final = 4
"""With twice as many, on two CPUs, the threads wait for each other and not for servers."""


class ZooKeeperTestbed(ClosedTestbed):
    """A running ensemble with all nodes written. A context manager.

    The client, whose threads take turns anyway, has the first CPU for itself, and everything else
    the rest: a thread that wakes one on another CPU costs more than all that a client does.

    Args:
        settings: What the command line decided.
        members: Of the ensemble, unless told.
        workers: Of the loops, unless told.
        read_part: Part of the operations that are reads, unless told.
        sync_limit: Half seconds of silence after which followers give their leader up.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        members: int = MEMBERS,
        workers: int = WORKERS,
        read_part: float = READ_PART,
        sync_limit: int = 5,
    ) -> None:
        super().__init__(settings, members=members, workers=workers, read_part=read_part)
        self._client_cpus, server_cpus = split_cpus()
        self.zookeeper = ZooKeeperServers(
            servers=self.members,
            client_rtt=self.rtts[0],
            peer_rtt=self.rtts[1],
            sync_limit=sync_limit,
            seed=settings.seed,
            cpus=server_cpus,
        )

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            stack.enter_context(taking_precedence())
            stack.enter_context(self.zookeeper)
            stack.enter_context(running_on(self._client_cpus))
            self._fill()
            self._stack = stack.pop_all()
        return self

    @property
    def roles(self) -> dict[str, str]:
        """The names of the servers, and what they are besides."""
        leader = self.zookeeper.leader()
        return {
            server.name: f"{server.name} (leader)" if server is leader else server.name
            for server in self.zookeeper.servers
        }

    @property
    def version(self) -> str:
        """The version of the servers."""
        return self.zookeeper.leader().status().version

    def place(self, first: ZooKeeperServer, *, left_out: Collection[ZooKeeperServer] = ()) -> Place:
        """Return where clients connect.

        Args:
            first: The server that a client sticks to unless it knows better.
            left_out: Those that ``limit`` keeps away from.
        """
        others = [server for server in self.zookeeper.servers if server is not first]
        return Place(
            [server.endpoint for server in (first, *others)],
            self.zookeeper.leader().endpoint,
            frozenset(server.endpoint for server in left_out),
        )

    @contextlib.contextmanager
    def driving(self, contender: Contender, place: Place) -> Iterator[ZooKeeperDriver]:
        """Open a fresh client, and close it at the end."""
        driver = ZooKeeperDriver(open_client(contender, place))
        try:
            yield driver
        finally:
            driver.close()

    def received(self) -> dict[str, int]:
        """Return how many packets of clients each server has counted, by its name."""
        return {server.name: server.status().received for server in self.zookeeper.servers}

    def _mixed(self, read_part: float) -> Workload:
        return mixed(read_part)

    def _round_trips_given(self) -> tuple[float, float]:
        return self.zookeeper.round_trips_given()

    def _fill(self) -> None:
        with self.zookeeper.leader().client() as client:
            client.ensure_path(PARENT)
            results = [client.create_async(path(i), VALUE) for i in range(NODES)]
            for result in results:
                result.get(timeout=30.0)


def since(before: Mapping[str, int], after: Mapping[str, int]) -> dict[str, int]:
    """Return the difference of two counts."""
    return {name: count - before[name] for name, count in after.items()}
