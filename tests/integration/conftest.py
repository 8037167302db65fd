"""What holds for all tests with real servers."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from bench.servers import process


@pytest.fixture(scope="session", autouse=True)
def _ports_of_its_own() -> Iterator[None]:
    """Give each worker of pytest-xdist its ports: that of a killed server must stay free."""
    worker = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    workers = int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(process, "PORTS", process.PORTS[worker::workers])
        yield
