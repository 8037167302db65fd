"""The workers of a closed loop on one client of ZooKeeper: threads that share it."""

from __future__ import annotations

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from bench.closed_loop import Load, Measured, Request, run_threads
from bench.zookeeper.contenders import Client
from lb_strategies import LoadBalancerError


class ZooKeeperDriver:
    """Drives a client; replies do not tell who answered."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def run(self, load: Load) -> Measured:
        """Run the load; kazoo's calls know no time-out, so that of the load is not used."""
        get, put = self.client.get, self.client.put

        def ask(request: Request, timeout: float) -> str:
            (get if request.kind == "read" else put)(request.message)
            return ""

        return run_threads(load, ask, name_of)

    def close(self) -> None:
        """Close the client."""
        self.client.close()


def name_of(error: Exception) -> str | None:
    """Return the name of an error that ZooKeeper, or the way there, is the cause of."""
    expected = (KazooException, KazooTimeoutError, LoadBalancerError)
    return type(error).__name__ if isinstance(error, expected) else None
