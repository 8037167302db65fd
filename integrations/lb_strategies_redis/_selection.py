"""What the user asked for, checked, and what is handed to the client library for it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from time import perf_counter
from typing import Any

from lb_strategies import (
    BalancerOptions,
    EndpointPolicy,
    EndpointStats,
    LoadBalancer,
    LoadBalancingStrategy,
    Policy,
)

from ._library import Library
from ._router import Router, primary_only, router_of

UPSTREAMS = frozenset(
    {
        LoadBalancingStrategy.ROUND_ROBIN,
        LoadBalancingStrategy.ROUND_ROBIN_REPLICAS,
        LoadBalancingStrategy.RANDOM,
        LoadBalancingStrategy.RANDOM_REPLICA,
    }
)
"""The strategies that client libraries carry out themselves, if they have them."""


@dataclass(frozen=True, slots=True)
class Selection:
    """A strategy in the two forms that are needed.

    Args:
        upstream: what the library's own selector gets; with one of our strategies its round
            robin, which makes it open connections that may read from replicas.
        router: chooses in its place; None if the strategy is upstream's.
    """

    upstream: Any
    router: Router | None

    @classmethod
    def parse(
        cls,
        library: Library,
        strategy: object,
        options: BalancerOptions | None,
        read_commands: Iterable[str] = (),
        endpoint_policy: EndpointPolicy | None = None,
    ) -> Selection:
        """Check what the user passed, for a client of `library`.

        Raises:
            ValueError: unknown strategy, one that this version of the library does not have,
                an empty name, or options that nothing would use.
            TypeError: `options`, `read_commands` or `endpoint_policy` is of another type.
            UnsupportedClientError: the library is too old or too new.
        """
        library.check()
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
        if parsed is None:
            upstream = None
        elif isinstance(parsed, LoadBalancingStrategy) and parsed in UPSTREAMS:
            upstream = library.strategies.get(parsed)
            if upstream is None:
                theirs = ", ".join(member.value for member in library.strategies)
                raise ValueError(
                    f"load_balancing_strategy={strategy!r} is for {library.name} to carry out, "
                    f"and {library.name} {library.version} has only: {theirs}"
                )
        else:
            round_robin = library.strategies[LoadBalancingStrategy.ROUND_ROBIN]
            return cls(round_robin, Router(library, parsed, options, reads, endpoint_policy))
        for name, is_given in (
            ("balancer_options", options is not None),
            ("read_commands", bool(reads)),
            ("endpoint_policy", endpoint_policy is not None),
        ):
            if is_given:
                raise ValueError(
                    f"{name} has no effect with load_balancing_strategy={strategy!r}, "
                    f"which {library.name} itself carries out"
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

    @contextmanager
    def primary_reads(self) -> Iterator[None]:
        """Have the reads of this client inside the block go to the primary.

        For reads that must see the last write. It holds for the code in the block, in the
        thread or task that entered it and in tasks that are created there, for nothing else.

        Raises:
            ValueError: the strategy is one of the library's own, which cannot be overridden.
        """
        router = router_of(self.nodes_manager)
        if router is None:
            theirs = getattr(self, "load_balancing_strategy", None)
            if theirs is not None or self.read_from_replicas:
                raise ValueError(f"primary_reads() needs one of our strategies, got {theirs!r}")
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
        """The balancer; None while the strategy is one of the library's own, or none."""
        router = router_of(self.nodes_manager)
        return None if router is None else router.balancer

    def endpoint_stats(self) -> dict[str, EndpointStats]:
        """Return what is known of each node, by ``"host:port"``; empty without a balancer."""
        balancer = self.load_balancer
        if balancer is None:
            return {}
        return {str(k): v for k, v in balancer.snapshot(now=perf_counter()).items()}
