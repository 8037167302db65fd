"""From the nodes of a slot to one of them: the part that sync and asyncio share."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from contextvars import ContextVar
from time import perf_counter
from typing import Any, Final

from lb_strategies import (
    BalancerOptions,
    EndpointPolicy,
    LoadBalancer,
    LoadBalancingStrategy,
    Pick,
    Policy,
)

from ._addresses import Addresses
from ._library import Library

_REFRESH_INTERVAL: Final = 1.0
"""Seconds between topology refreshes that reads failing on replicas may cause."""

_MOST_SHARDS: Final = 4096  # lists of nodes remembered; a cluster has far fewer


primary_only: ContextVar[tuple[Router, ...]] = ContextVar("lb_strategies_primary", default=())
"""The clients whose reads go to the primary in the running code."""


class Shard:
    """The nodes that can serve the reads of some slots.

    It travels through redis-py in the place of the node of a read, and is exchanged for one
    of its nodes when the command is about to be sent: so the pick is made by the code that
    gives it back, and a retry can choose anew.

    Args:
        balancer: of the client.
        nodes: a list of the client's slots cache, primary first.
        replicas_only: whether the primary serves only when no replica can.
    """

    __slots__ = (
        "balancer",
        "by_name",
        "candidates",
        "everyone",
        "fallback",
        "name",
        "nodes",
    )

    def __init__(
        self, balancer: LoadBalancer, nodes: Sequence[Any], *, replicas_only: bool
    ) -> None:
        self.balancer = balancer
        self.nodes = nodes
        names: tuple[str, ...] = tuple(node.name for node in nodes)
        self.name = names[0]
        """The primary's; redis-py asks for it when it files the reply."""
        self.by_name: dict[object, Any] = dict(zip(names, nodes, strict=True))
        self.everyone = frozenset(names)
        restricted = replicas_only and len(names) > 1
        self.candidates = names[1:] if restricted else names
        self.fallback = names[:1] if restricted else ()

    def acquire(self, operation: object, exclude: Collection[str]) -> Pick:
        """Choose a node for a read and count it in flight."""
        return self.balancer.acquire(
            self.candidates,
            now=perf_counter(),
            operation=operation,
            exclude=exclude,
            fallback=self.fallback,
        )

    def choose(self) -> Any:
        """Return the node that a read would get now, without counting it."""
        name = self.balancer.choose(self.candidates, now=perf_counter(), fallback=self.fallback)
        return self.by_name[name]


class Router:
    """Knows the shards of one client.

    Args:
        library: that the client belongs to.
        strategy: one of ours, or a policy.
        options: of the balancer.
        read_commands: names, in capitals, of reads that redis-py does not know as such.
        endpoint_policy: which addresses may be dialled.
    """

    def __init__(
        self,
        library: Library,
        strategy: LoadBalancingStrategy | Policy,
        options: BalancerOptions | None,
        read_commands: Collection[str] = (),
        endpoint_policy: EndpointPolicy | None = None,
    ) -> None:
        self.library = library
        self.balancer = LoadBalancer(strategy, options=options)
        self.reads = frozenset((*library.read_commands, *read_commands))
        """Names of the commands that a replica can answer, in capitals."""
        self._added = read_commands
        self._replicas_only = strategy is LoadBalancingStrategy.LATENCY_BASED_REPLICAS
        self.addresses = Addresses(endpoint_policy, library)
        self.refreshes = 0
        """Topology refreshes under way."""
        self.shards: dict[int, Shard] = {}
        """By the identity of a list in the slots cache, which many slots share."""
        self._refreshed_at = float("-inf")

    def shard(self, slot: object, slots_cache: dict[Any, list[Any]]) -> Shard:
        """Return the shard that serves `slot`.

        Raises:
            SlotNotCoveredError: no node does.
        """
        nodes = slots_cache.get(slot)
        return self.shards.get(id(nodes)) or self._add(slot, nodes)

    def _add(self, slot: object, nodes: list[Any] | None) -> Shard:
        if not nodes:
            raise self.uncovered(slot)
        if len(self.shards) >= _MOST_SHARDS:
            self.shards.clear()
        shard = Shard(self.balancer, nodes, replicas_only=self._replicas_only)
        self.shards[id(nodes)] = shard  # it holds the list, so the id stays the list's
        return shard

    def is_read(self, command: object) -> bool:
        """Whether a command of this name can be answered by a replica."""
        return command in self.reads or (isinstance(command, str) and command.upper() in self.reads)

    def check_reads(self, commands: dict[str, Any]) -> None:
        """Check the reads that the user added.

        Args:
            commands: what redis-py made of the server's COMMAND reply.

        Raises:
            ValueError: the server says that one of them writes.
        """
        for name in self._added:
            known = commands.get(name.lower())
            if isinstance(known, dict) and "write" in known["flags"]:
                raise ValueError(f"read_commands has {name!r}, which the server calls a write")

    def uncovered(self, slot: object) -> Exception:
        """Return the error for a slot that no node serves, as far as is known."""
        note = self.addresses.note()
        message = f'Slot "{slot}" is not covered by the cluster{note}.'
        error: Exception = self.library.exceptions.SlotNotCoveredError(message)
        return error

    def slots_moved(self) -> None:
        """Look at the slots cache anew: a failover reorders its lists in place."""
        self.shards.clear()

    def topology_changed(self, names: Iterable[str]) -> None:
        """Take over the membership after a refresh; survivors keep their history."""
        self._refreshed_at = perf_counter()
        self.shards.clear()
        self.balancer.update(names)

    def may_refresh(self) -> bool:
        """Whether a read that failed on one node may have the topology refreshed."""
        return perf_counter() - self._refreshed_at >= _REFRESH_INTERVAL


def put(router: Router, manager: Any) -> None:
    """Put a router into a node manager.

    It travels in the one attribute that all node managers have for a balancer. If a code path
    of the client library were to ask that for an index all the same, it would still get
    upstream's round robin.
    """
    take_out(manager)
    manager.read_load_balancer.router = router


def take_out(manager: Any) -> None:
    """Leave a node manager with upstream's balancer alone."""
    manager.read_load_balancer = type(manager.read_load_balancer)()


def router_of(manager: Any) -> Router | None:
    """Return the router of a node manager; None if the client has just been switched back."""
    router: Router | None = getattr(manager.read_load_balancer, "router", None)
    return router


def slots_moved(manager: Any) -> None:
    """Tell the router of a node manager, if it has one, that a slot has other nodes now."""
    router = router_of(manager)
    if router is not None:
        router.slots_moved()
