"""Opting in: a client that something else built, or one that is being built."""

from __future__ import annotations

from collections.abc import Iterable
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeAlias

from lb_strategies import (
    BalancerOptions,
    EndpointPolicy,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
)

from . import aio, sync
from ._library import find_library, library_of
from ._selection import BalancedClient, Selection

if TYPE_CHECKING:
    import redis.asyncio.cluster
    import redis.cluster
    import valkey.asyncio.cluster
    import valkey.cluster

    ClusterClient: TypeAlias = (
        redis.cluster.RedisCluster
        | redis.asyncio.cluster.RedisCluster
        | valkey.cluster.ValkeyCluster
        | valkey.asyncio.cluster.ValkeyCluster
    )


def use_strategy(
    client: ClusterClient,
    strategy: LoadBalancingStrategy | Policy | str | None,
    *,
    balancer_options: BalancerOptions | None = None,
    read_commands: Iterable[str] = (),
    endpoint_policy: EndpointPolicy | None = None,
) -> LoadBalancer | None:
    """Give an existing cluster client a strategy; it stays the same object.

    Its connections are made anew when next used, so that replicas answer reads on them.

    Args:
        client: a cluster client of redis-py or valkey-py, synchronous or asyncio, or of a class
            derived from one; no other client is affected.
        strategy: what it shall use from now on, in place of whatever it used; None or one that
            the client library itself carries out restores the client's own code.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer.
        endpoint_policy: which of the addresses that servers name may be dialled.

    Returns:
        The balancer, or None without a strategy of ours.

    Raises:
        TypeError: `client` is no cluster client, or an option is of another type.
        ValueError: unknown strategy, one that this version of the library does not have,
            options without a strategy of ours, or a name in `read_commands` that the server
            calls a write; the client is then as it was.
        UnsupportedClientError: the library is too old or too new.
    """
    shell = _shell_of(client)
    library = library_of(type(client))
    selection = Selection.parse(library, strategy, balancer_options, read_commands, endpoint_policy)
    target: Any = client
    could_read = target.read_from_replicas or getattr(target, "load_balancing_strategy", None)
    if selection.router is None:
        shell.detach(target)
    else:
        shell.attach(target, selection.router)
    setattr(target, library.selector, selection.upstream)
    if selection.upstream is not None and not could_read:
        shell.reconnect(target)
    return None if selection.router is None else selection.router.balancer


class StrategyClient(BalancedClient):
    """Takes a strategy in its constructor; comes before upstream's class among the bases."""

    def __init__(
        self,
        *args: Any,
        load_balancing_strategy: LoadBalancingStrategy | Policy | str | None = None,
        balancer_options: BalancerOptions | None = None,
        read_commands: Iterable[str] = (),
        endpoint_policy: EndpointPolicy | None = None,
        **kwargs: Any,
    ) -> None:
        library = library_of(type(self))
        selection = Selection.parse(
            library, load_balancing_strategy, balancer_options, read_commands, endpoint_policy
        )
        shell, router = _shell_of(self), selection.router
        if router is not None:
            shell.prepare(self, router, args, kwargs)
        if selection.upstream is not None:
            kwargs[library.selector] = selection.upstream
        super().__init__(*args, **kwargs)
        if router is not None:
            shell.attach(self, router)


def _shell_of(client: object) -> ModuleType:
    """Return the module that knows how to handle `client`.

    Raises:
        TypeError: it is no cluster client.
    """
    library = find_library(type(client))
    if library is not None:
        cluster, aio_cluster = library.cluster_clients
        if isinstance(client, cluster) and not isinstance(client, library.cluster.ClusterPipeline):
            return sync
        if isinstance(client, aio_cluster):
            return aio
    raise TypeError(
        f"a cluster client of redis-py or valkey-py is needed, got {type(client).__name__}"
    )
