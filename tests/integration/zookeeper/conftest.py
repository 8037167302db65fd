"""Ensembles: one for the whole session, and new ones for tests that no repair would undo.

``zookeeper`` is for most tests, also for those that pause or kill servers, which the next one
finds repaired; ``fresh_zookeeper`` for those that must not see, or leave, epochs and sessions of
others; ``start_zookeeper(**options)`` for any other ensemble, see ``bench.servers.zookeeper``.
``connect(hosts, **options)`` makes our clients, and ``plain`` kazoo's.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any, Protocol, cast

import kazoo.client
import pytest

from bench.servers.zookeeper import ZooKeeperServers
from lb_strategies_zookeeper import KazooClient
from tests.integration.zookeeper import blocking

LIMIT = 60
"""Seconds that a test may take, its own ensemble's start not counted."""


@pytest.fixture(autouse=True)
def _bounded_time(request: pytest.FixtureRequest) -> Iterator[None]:
    """Fail a test that hangs."""

    def fail(number: int, frame: FrameType | None) -> None:
        pytest.fail(f"took longer than {seconds} s")

    marker = request.node.get_closest_marker("integration")
    seconds = (marker.kwargs.get("limit") if marker else None) or LIMIT
    previous = signal.signal(signal.SIGALRM, fail)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, previous)


class Starter(Protocol):
    def __call__(self, **options: object) -> ZooKeeperServers: ...


@pytest.fixture(scope="session")
def _zookeeper() -> Iterator[ZooKeeperServers]:
    with ZooKeeperServers() as servers:
        yield servers


@pytest.fixture
def zookeeper(_zookeeper: ZooKeeperServers) -> ZooKeeperServers:
    """Three servers that are well and have no nodes."""
    _zookeeper.repair()
    _zookeeper.clear()
    return _zookeeper


@pytest.fixture
def fresh_zookeeper() -> Iterator[ZooKeeperServers]:
    """Three servers, of this test alone."""
    with ZooKeeperServers() as servers:
        yield servers


@pytest.fixture
def start_zookeeper() -> Iterator[Starter]:
    """Start ensembles as the test wants them; they are stopped at its end."""
    with ExitStack() as stack:

        def start(**options: object) -> ZooKeeperServers:
            return stack.enter_context(ZooKeeperServers(**options))  # type: ignore[arg-type]

        yield start


class Connector(Protocol):
    def __call__(self, hosts: str, **options: Any) -> KazooClient: ...


class PlainConnector(Protocol):
    def __call__(self, hosts: str, **options: Any) -> kazoo.client.KazooClient: ...


@pytest.fixture
def in_event_loop(request: pytest.FixtureRequest) -> bool:
    """Whether `connect` makes clients for event loops; a test of both kinds is given both."""
    return bool(getattr(request, "param", False))


both_kinds = pytest.mark.parametrize(
    "in_event_loop", [False, True], indirect=True, ids=["threads", "asyncio"]
)
"""Of tests that hold for the client for threads and for the one for event loops."""


@pytest.fixture
def connect(in_event_loop: bool) -> Iterator[Connector]:
    """Start our clients; at the end they are stopped, and must leave no thread behind."""
    before = set(threading.enumerate())
    clients: list[KazooClient] = []
    loop = blocking.Loop() if in_event_loop else None

    def start(hosts: str, **options: Any) -> KazooClient:
        options = {"timeout": 4.0, **options}
        if loop is not None:
            waiting = cast(KazooClient, blocking.connect(hosts, loop, **options))
            clients.append(waiting)
            return waiting
        client = KazooClient(hosts, **options)
        clients.append(client)
        client.start(timeout=20.0)
        return client

    yield start
    for client in clients:
        client.stop()
        client.close()
    if loop is not None:
        loop.close()
    deadline = time.monotonic() + 10.0
    while left := [t for t in threading.enumerate() if t not in before and t.is_alive()]:
        assert time.monotonic() < deadline, f"threads are left: {left}"
        time.sleep(0.01)


@pytest.fixture
def plain() -> Iterator[PlainConnector]:
    """Start stock clients of kazoo's."""
    clients: list[kazoo.client.KazooClient] = []

    def start(hosts: str, **options: Any) -> kazoo.client.KazooClient:
        client = kazoo.client.KazooClient(hosts, **{"timeout": 4.0, **options})
        clients.append(client)
        client.start(timeout=20.0)
        return client

    yield start
    for client in clients:
        client.stop()
        client.close()
