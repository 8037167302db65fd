"""The client library that the tests are about: redis-py, or another by its name in LB_LIBRARY.

The servers are started, filled and asked with redis-py all the same.
"""

from __future__ import annotations

import inspect
import os
from importlib import import_module
from typing import Any, Final

import pytest

from lb_strategies import LoadBalancingStrategy

NAME: Final = os.environ.get("LB_LIBRARY", "redis")
"""What it is imported by."""

VERSION: Final[str] = import_module(NAME).__version__
TITLE: Final = f"{NAME}-py {VERSION}"

package: Any = import_module(NAME)
cluster: Any = import_module(f"{NAME}.cluster")
aio_package: Any = import_module(f"{NAME}.asyncio")
aio_cluster: Any = import_module(f"{NAME}.asyncio.cluster")
client: Any = import_module(f"{NAME}.client")
aio_client: Any = import_module(f"{NAME}.asyncio.client")
connection: Any = import_module(f"{NAME}.connection")
aio_connection: Any = import_module(f"{NAME}.asyncio.connection")
errors: Any = import_module(f"{NAME}.exceptions")

_CLUSTER = f"{NAME.capitalize()}Cluster"
_ours: Any = import_module(f"lb_strategies_redis.{NAME}")

ClientError: Any = getattr(errors, f"{NAME.capitalize()}Error")
"""The root of what the library raises, except:"""
ClusterException: Any = getattr(errors, f"{_CLUSTER}Exception")

STOCK: Final = {"sync": getattr(cluster, _CLUSTER), "asyncio": getattr(aio_cluster, _CLUSTER)}
"""The library's own cluster clients, by mode."""

OURS: Final = {"sync": getattr(_ours, _CLUSTER), "asyncio": getattr(_ours, f"Async{_CLUSTER}")}

STRATEGIES: Final = tuple(getattr(cluster, "LoadBalancingStrategy", ()))
"""The library's own strategies; valkey-py has only ``read_from_replicas``."""

REPLICAS_ONLY: Final = "round_robin_replicas" if STRATEGIES else None
"""The library's own strategy that reads from the replicas in turn, if it has one."""

OWN: Final = tuple(member.value for member in STRATEGIES) or ("round_robin",)
"""What the library carries out itself, as we call it."""

OFFERED: Final = tuple(
    strategy
    for strategy in LoadBalancingStrategy
    if strategy.value in OWN or not strategy.value.startswith(("round_robin", "random"))
)
"""Our strategies, and those of the four others that the library has."""

READS: Final[frozenset[str]] = import_module(f"{NAME}.commands").READ_COMMANDS

CHECKS_HOST_NAMES: Final = "ssl_check_hostname" in getattr(
    cluster, f"{NAME.upper()}_ALLOWED_KEYS", ()
)
"""Whether a synchronous cluster client hands that option on to its connections."""

HAS_C_PARSER: Final = bool(
    getattr(import_module(f"{NAME}.utils"), "HIREDIS_AVAILABLE", False)
    or getattr(import_module(f"{NAME}.utils"), "LIBVALKEY_AVAILABLE", False)
)
"""Whether the library parses replies with hiredis, or its own offspring of it."""

CACHE: Final[dict[str, Any]] = (
    {"cache_config": import_module("redis.cache").CacheConfig()}
    if NAME == "redis"
    else {"cache_enabled": True}
)
"""The option that turns the client-side cache on."""

CACHING_MODES: Final = ("sync",) if NAME == "redis" else ("sync", "asyncio")
"""Which clients have it."""

HAS_RETRY: Final = NAME == "redis" and int(VERSION.partition(".")[0]) >= 6
"""Whether the option ``retry`` is about commands; before, it was about connecting."""

HAS_TRANSACTIONS: Final = hasattr(cluster, "TransactionStrategy")

CONFIRMS_TRANSACTIONS: Final = inspect.iscoroutinefunction(
    getattr(aio_cluster.NodesManager, "move_slot", None)
)
"""Whether an asyncio transaction can wait until the node that it is moved to is confirmed."""

_MAJOR: Final = int(VERSION.partition(".")[0])

DROPS_OPEN_NODES: Final = NAME == "redis" and _MAJOR == 7
"""Whether each refresh of an asyncio client drops nodes with their connections open."""

STAYS_CLOSED: Final = "_closed" in getattr(aio_cluster, _CLUSTER).__slots__
"""Whether an asyncio client that was closed cannot be used again."""

reopens: Final = pytest.mark.skipif(
    STAYS_CLOSED, reason=f"an asyncio client of {TITLE} that was closed stays closed"
)

drops_coroutines: Final = pytest.mark.skipif(
    NAME != "redis" or _MAJOR < 8,
    reason=f"{TITLE} waits for a connection to close in a coroutine that is thrown away",
)

with_transactions: Final = pytest.mark.skipif(
    not HAS_TRANSACTIONS, reason=f"{TITLE} has no transactions in clusters"
)


EITHER_PIPELINE: Final = [False, pytest.param(True, marks=with_transactions)]
"""Parameters for whether a pipeline is a transaction."""


def member(strategy: str) -> Any:
    """Return the library's own member of this value; None if it has no enumeration."""
    return cluster.LoadBalancingStrategy(strategy) if STRATEGIES else None


def read_from_replicas(strategy: str | None) -> dict[str, Any]:
    """Return what makes a client of the library's own use one of its own strategies."""
    if strategy is None:
        return {}
    if not STRATEGIES:
        assert strategy == "round_robin"
        return {"read_from_replicas": True}
    return {"load_balancing_strategy": member(strategy)}


def chosen_by(client: Any) -> str | None:
    """Return which of the library's own strategies a client uses."""
    if not STRATEGIES:
        return "round_robin" if client.read_from_replicas else None
    strategy = client.load_balancing_strategy
    return None if strategy is None else str(strategy.value)


def node_client(node: Any) -> Any:
    """Return the client that a node of a synchronous cluster client has."""
    return getattr(node, f"{NAME}_connection")
