"""Opting in a client that something else built."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import Any

import redis.asyncio.cluster
import redis.cluster

from lb_strategies import (
    BalancerOptions,
    EndpointPolicy,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
)

from . import aio, sync
from ._selection import Selection


def use_strategy(
    client: redis.cluster.RedisCluster | redis.asyncio.cluster.RedisCluster,
    strategy: LoadBalancingStrategy | Policy | str | None,
    *,
    balancer_options: BalancerOptions | None = None,
    read_commands: Iterable[str] = (),
    endpoint_policy: EndpointPolicy | None = None,
) -> LoadBalancer | None:
    """Give an existing cluster client a strategy; it stays the same object.

    Its connections are made anew when next used, so that replicas answer reads on them.

    Args:
        client: a cluster client of redis-py, synchronous or asyncio, or of a class derived
            from one; no other client is affected.
        strategy: what it shall use from now on, in place of whatever it used; None or one of
            redis-py's own four restores the client's own code.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer.
        endpoint_policy: which of the addresses that servers name may be dialled.

    Returns:
        The balancer, or None with a strategy of redis-py's own.

    Raises:
        TypeError: `client` is no cluster client, or an option is of another type.
        ValueError: unknown strategy, options without a strategy of ours, or a name in
            `read_commands` that the server calls a write; the client is then as it was.
    """
    shell = _shell(client)
    selection = Selection.parse(strategy, balancer_options, read_commands, endpoint_policy)
    target: Any = client
    could_read = target.read_from_replicas or target.load_balancing_strategy is not None
    if selection.router is None:
        shell.detach(target)
    else:
        shell.attach(target, selection.router)
    target.load_balancing_strategy = selection.upstream
    if selection.upstream is not None and not could_read:
        shell.reconnect(target)
    return None if selection.router is None else selection.router.balancer


def _shell(client: object) -> ModuleType:
    if isinstance(client, redis.cluster.RedisCluster) and not isinstance(
        client, redis.cluster.ClusterPipeline
    ):
        return sync
    if isinstance(client, redis.asyncio.cluster.RedisCluster):
        return aio
    raise TypeError(
        "use_strategy needs a cluster client (redis.cluster.RedisCluster or "
        f"redis.asyncio.cluster.RedisCluster), got {type(client).__name__}"
    )
