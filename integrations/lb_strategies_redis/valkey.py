"""The cluster clients of valkey-py, with a strategy.

valkey-py has no strategies of its own but ``read_from_replicas=True``, which is what
`LoadBalancingStrategy.ROUND_ROBIN` stands for here.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

import valkey.asyncio.cluster
import valkey.cluster

from ._use import StrategyClient

__all__ = ["AsyncValkeyCluster", "ValkeyCluster"]


class ValkeyCluster(StrategyClient, valkey.cluster.ValkeyCluster):
    """A ``valkey.cluster.ValkeyCluster`` that can choose by latency.

    Takes everything that the class it extends takes, and:

    Args:
        load_balancing_strategy: None, a `LoadBalancingStrategy`, its value, or a `Policy`. With
            None, or ``round_robin``, the client is upstream's, untouched.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer, beyond those that
            valkey-py knows as reads: ``("PFCOUNT", "TOUCH")``, or reads of a module.
        endpoint_policy: which of the addresses that servers name may be dialled. None: those
            that nodes which are known confirm.

    Raises:
        ValueError: unknown strategy, one that valkey-py would have to carry out and cannot,
            options without a strategy of ours, or a name in `read_commands` that the server
            calls a write (in asyncio with the first command).
        TypeError: `balancer_options`, `read_commands` or `endpoint_policy` is of another type.
        UnsupportedClientError: this valkey-py is too old or too new.
    """

    if TYPE_CHECKING:  # the methods are upstream's, which do not say that they return Self

        @classmethod
        def from_url(cls, url: str, **kwargs: Any) -> Self:  # noqa: D102 - upstream's
            ...

        def __enter__(self) -> Self: ...


class AsyncValkeyCluster(  # type: ignore[misc]  # valkey-py's own bases disagree
    StrategyClient, valkey.asyncio.cluster.ValkeyCluster
):
    """A ``valkey.asyncio.cluster.ValkeyCluster`` that can choose by latency.

    Takes everything that the class it extends takes, and:

    Args:
        load_balancing_strategy: None, a `LoadBalancingStrategy`, its value, or a `Policy`. With
            None, or ``round_robin``, the client is upstream's, untouched.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer, beyond those that
            valkey-py knows as reads: ``("PFCOUNT", "TOUCH")``, or reads of a module.
        endpoint_policy: which of the addresses that servers name may be dialled. None: those
            that nodes which are known confirm.

    Raises:
        ValueError: unknown strategy, one that valkey-py would have to carry out and cannot,
            options without a strategy of ours, or a name in `read_commands` that the server
            calls a write (in asyncio with the first command).
        TypeError: `balancer_options`, `read_commands` or `endpoint_policy` is of another type.
        UnsupportedClientError: this valkey-py is too old or too new.
    """

    if TYPE_CHECKING:  # the methods are upstream's, which do not say that they return Self

        @classmethod
        def from_url(cls, url: str, **kwargs: Any) -> Self:  # noqa: D102 - upstream's
            ...

        async def __aenter__(self) -> Self: ...

        def __await__(self) -> Generator[Any, None, Self]: ...
