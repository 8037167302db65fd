"""What the user asked for, checked, and what is handed to redis-py for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from redis.cluster import LoadBalancingStrategy as UpstreamStrategy

from lb_strategies import (
    BalancerOptions,
    EndpointPolicy,
    EndpointStats,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
)

from ._router import Router, primary_only, router_of


@dataclass(frozen=True, slots=True)
class Selection:
    """A strategy in the two forms that are needed.

    Args:
        upstream: what redis-py's own constructor gets; with one of our strategies its round
            robin, which makes it open connections that may read from replicas.
        router: chooses in its place; None if the strategy is upstream's.
    """

    upstream: UpstreamStrategy | None
    router: Router | None

    @classmethod
    def parse(
        cls,
        strategy: LoadBalancingStrategy | Policy | str | UpstreamStrategy | None,
        options: BalancerOptions | None,
        read_commands: Iterable[str] = (),
        endpoint_policy: EndpointPolicy | None = None,
    ) -> Selection:
        """Check what the user passed.

        Raises:
            ValueError: unknown strategy, an empty name, or options that nothing would use.
            TypeError: `options`, `read_commands` or `endpoint_policy` is of another type.
        """
        if options is not None and not isinstance(options, BalancerOptions):
            raise TypeError(f"balancer_options must be a BalancerOptions, got {options!r}")
        if endpoint_policy is not None and not isinstance(endpoint_policy, EndpointPolicy):
            raise TypeError(f"endpoint_policy must be an EndpointPolicy, got {endpoint_policy!r}")
        reads = _names(read_commands)
        parsed: LoadBalancingStrategy | Policy | None
        if strategy is None or isinstance(strategy, Policy):
            parsed = strategy
        else:
            parsed = LoadBalancingStrategy.parse(strategy)
        names = {member.value: member for member in UpstreamStrategy}
        if parsed is None:
            upstream = None
        elif isinstance(parsed, LoadBalancingStrategy) and parsed.value in names:
            upstream = names[parsed.value]
        else:
            router = Router(parsed, options, reads, endpoint_policy)
            return cls(UpstreamStrategy.ROUND_ROBIN, router)
        for name, is_given in (
            ("balancer_options", options is not None),
            ("read_commands", bool(reads)),
            ("endpoint_policy", endpoint_policy is not None),
        ):
            if is_given:
                raise ValueError(
                    f"{name} has no effect with load_balancing_strategy={strategy!r}, "
                    "which redis-py itself carries out"
                )
        return cls(upstream, None)


def _names(read_commands: Iterable[str]) -> tuple[str, ...]:
    """Return the names in capitals."""
    if isinstance(read_commands, str | bytes) or not isinstance(read_commands, Iterable):
        raise TypeError(f"read_commands must be several names, got {read_commands!r}")
    names = tuple(read_commands)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"read_commands must hold strings, got {name!r}")
        if not name.strip():
            raise ValueError(f"read_commands must hold names of commands, got {name!r}")
    return tuple(name.upper() for name in names)


class BalancedClient:
    """What our clients have and upstream's do not."""

    nodes_manager: Any
    read_from_replicas: bool
    load_balancing_strategy: Any

    @contextmanager
    def primary_reads(self) -> Iterator[None]:
        """Have the reads of this client inside the block go to the primary.

        For reads that must see the last write. It holds for the code in the block, in the
        thread or task that entered it and in tasks that are created there, for nothing else.

        Raises:
            ValueError: the strategy is one of redis-py's own, which cannot be overridden.
        """
        router = router_of(self.nodes_manager)
        if router is None:
            if self.load_balancing_strategy is not None or self.read_from_replicas:
                raise ValueError(
                    "primary_reads() needs one of our strategies, "
                    f"got {self.load_balancing_strategy!r}"
                )
            yield  # everything goes to the primary anyway
            return
        token = primary_only.set((*primary_only.get(), router))
        try:
            yield
        finally:
            with suppress(ValueError):  # thrown away, and closed in somebody else's context
                primary_only.reset(token)

    @property
    def load_balancer(self) -> LoadBalancer | None:
        """The balancer; None while the strategy is one of redis-py's own, or none."""
        router = router_of(self.nodes_manager)
        return None if router is None else router.balancer

    def endpoint_stats(self) -> dict[str, EndpointStats]:
        """Return what is known of each node, by ``"host:port"``; empty without a balancer."""
        balancer = self.load_balancer
        if balancer is None:
            return {}
        return {str(k): v for k, v in balancer.snapshot(now=perf_counter()).items()}
