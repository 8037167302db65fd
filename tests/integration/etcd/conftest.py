"""Clusters: one for the whole session, and new ones for tests that change their members.

``etcd`` is for most tests, also for those that pause or kill members, which the next one finds
repaired; ``fresh_etcd`` for those that add or remove members or users; ``start_etcd(**options)``
for any other cluster, see ``bench.servers.etcd``.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import ExitStack
from types import FrameType
from typing import Any, Protocol

import pytest

from bench.servers.etcd import EtcdServers
from tests.integration.etcd.drivers import DRIVERS, Driver

# Members are started by fork and exec while channels are open. gRPC's handlers of forks, which the
# child does not need, fail in it now and then ("epoll_wait error: Bad file descriptor", an abort).
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

LIMIT = 60
"""Seconds that a test may take; none takes a third of it."""


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
    def __call__(self, **options: object) -> EtcdServers: ...


@pytest.fixture(scope="session")
def _etcd() -> Iterator[EtcdServers]:
    with EtcdServers(members=3) as servers:
        yield servers


@pytest.fixture
def etcd(_etcd: EtcdServers) -> EtcdServers:
    """Three members that are well and have no keys."""
    _etcd.repair()
    _etcd.clear()
    return _etcd


@pytest.fixture
def fresh_etcd() -> Iterator[EtcdServers]:
    """Three members, of this test alone."""
    with EtcdServers(members=3) as servers:
        yield servers


@pytest.fixture
def start_etcd() -> Iterator[Starter]:
    """Start clusters as the test wants them; they are stopped at its end."""
    with ExitStack() as stack:

        def start(**options: object) -> EtcdServers:
            return stack.enter_context(EtcdServers(**options))  # type: ignore[arg-type]

        yield start


class Connect(Protocol):
    def __call__(self, etcd: EtcdServers | list[str], **options: Any) -> Driver: ...


@pytest.fixture(params=DRIVERS, ids=["threads", "asyncio"])
def connect(request: pytest.FixtureRequest) -> Iterator[Connect]:
    """Make channels, which are closed at the end of the test."""
    made: list[Driver] = []

    def connect(etcd: EtcdServers | list[str], **options: Any) -> Driver:
        endpoints = etcd if isinstance(etcd, list) else etcd.endpoints
        driver: Driver = request.param(endpoints, **options)
        made.append(driver)
        return driver

    yield connect
    for driver in made:
        driver.end()
