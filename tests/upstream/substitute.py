"""A pytest plugin for redis-py's own suite: puts our classes in, and writes down every outcome.

It runs in the process of that suite, by ``-p substitute``, before its test modules import
anything. ``LB_UPSTREAM_MODE`` is a mode of `MODES`; ``LB_UPSTREAM_OUTCOMES`` the file to write.
"""

from __future__ import annotations

import json
import os
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import redis
import redis.asyncio
import redis.asyncio.cluster
import redis.cluster

from lb_strategies import Candidate, LoadBalancingStrategy
from lb_strategies_redis import AsyncRedisCluster, RedisCluster


class Primaries:
    """Takes the endpoint with the lowest port, which in redis-py's suite is the primary."""

    ignores_health = True

    def choose(self, candidates: Sequence[Candidate], now: float, rng: random.Random) -> Candidate:
        """Return that one of `candidates`."""
        return min(candidates, key=lambda c: int(str(c.endpoint).rpartition(":")[2]))


MODES: dict[str, Any] = {
    "stock": None,
    "off": None,
    "primary": Primaries(),
    "latency_based": LoadBalancingStrategy.LATENCY_BASED,
}
"""By name, the strategy of every client that was not told to use one of redis-py's own."""


def substituted(cls: Any, strategy: Any) -> Any:
    """Return `cls` with `strategy` as the default, under the name that redis-py's class has.

    Args:
        cls: one of ours.
        strategy: of the clients that name none; ``read_from_replicas`` names round robin.
    """

    class Substitute(cls):  # type: ignore[misc]  # a dynamic base
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            if not (kwargs.get("load_balancing_strategy") or kwargs.get("read_from_replicas")):
                kwargs["load_balancing_strategy"] = strategy
            super().__init__(*args, **kwargs)

    Substitute.__name__ = Substitute.__qualname__ = "RedisCluster"
    return Substitute


def substitute(mode: str) -> None:
    """Replace redis-py's two classes wherever a module of redis-py names them."""
    pairs = [
        (redis.cluster.RedisCluster, substituted(RedisCluster, MODES[mode])),
        (redis.asyncio.cluster.RedisCluster, substituted(AsyncRedisCluster, MODES[mode])),
    ]
    modules = [module for name, module in sys.modules.items() if name.split(".")[0] == "redis"]
    for theirs, ours in pairs:
        for module in modules:
            if getattr(module, "RedisCluster", None) is theirs:
                module.RedisCluster = ours  # type: ignore[attr-defined]


class Outcomes:
    """Writes down how each test ended: "passed", "failed" or "skipped".

    Args:
        path: the file.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._outcomes: dict[str, str] = {}

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note one phase of a test; the worst of its phases counts."""
        known = self._outcomes.get(report.nodeid)
        if known is None or known == "passed" or report.outcome == "failed":
            self._outcomes[report.nodeid] = report.outcome

    def pytest_sessionfinish(self) -> None:
        """Write the file."""
        self._path.write_text(json.dumps(self._outcomes), encoding="utf-8")


def pytest_configure(config: pytest.Config) -> None:
    """Substitute, unless the mode is that of redis-py alone, and begin to write down."""
    mode = os.environ["LB_UPSTREAM_MODE"]
    if mode != "stock":
        substitute(mode)
    config.pluginmanager.register(Outcomes(Path(os.environ["LB_UPSTREAM_OUTCOMES"])))
