"""What the user asked for, checked, and what is handed to redis-py for it."""

from __future__ import annotations

from dataclasses import dataclass
from time import perf_counter
from typing import Any

from redis.cluster import LoadBalancingStrategy as UpstreamStrategy

from lb_strategies import (
    BalancerOptions,
    EndpointStats,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
)

from ._router import Router, router_of


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
    ) -> Selection:
        """Check what the user passed.

        Raises:
            ValueError: unknown strategy, or options that nothing would use.
            TypeError: `options` is of another type.
        """
        if options is not None and not isinstance(options, BalancerOptions):
            raise TypeError(f"balancer_options must be a BalancerOptions, got {options!r}")
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
            return cls(UpstreamStrategy.ROUND_ROBIN, Router(parsed, options))
        if options is not None:
            raise ValueError(
                f"balancer_options has no effect with load_balancing_strategy={strategy!r}, "
                "which redis-py itself carries out"
            )
        return cls(upstream, None)


class BalancedClient:
    """What our clients have and upstream's do not."""

    nodes_manager: Any

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
