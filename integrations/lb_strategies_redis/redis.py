"""The cluster clients of redis-py, with a strategy."""

from __future__ import annotations

from collections.abc import Generator
from typing import TYPE_CHECKING, Any, Self

import redis.asyncio.cluster
import redis.cluster

from ._use import StrategyClient


class RedisCluster(StrategyClient, redis.cluster.RedisCluster):
    """A ``redis.cluster.RedisCluster`` that can choose by latency.

    Takes everything that the class it extends takes, and:

    Args:
        load_balancing_strategy: None, a `LoadBalancingStrategy`, its value, or a `Policy`. With
            None or one of redis-py's own four the client is upstream's, untouched.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer, beyond those that
            redis-py knows as reads: ``("PFCOUNT", "TOUCH")``, or reads of a module.
        endpoint_policy: which of the addresses that servers name may be dialled. None: those
            that nodes which are known confirm.

    Raises:
        ValueError: unknown strategy, one that this redis-py does not have, options without a
            strategy of ours, or a name in `read_commands` that the server calls a write (in
            asyncio with the first command).
        TypeError: `balancer_options`, `read_commands` or `endpoint_policy` is of another type.
        UnsupportedClientError: this redis-py is too old or too new.
    """

    if TYPE_CHECKING:  # the methods are upstream's, which do not say that they return Self

        @classmethod
        def from_url(cls, url: str, **kwargs: Any) -> Self:  # noqa: D102 - upstream's
            ...

        def __enter__(self) -> Self: ...


class AsyncRedisCluster(  # type: ignore[misc]  # redis-py's own bases disagree
    StrategyClient, redis.asyncio.cluster.RedisCluster
):
    """A ``redis.asyncio.cluster.RedisCluster`` that can choose by latency.

    Takes everything that the class it extends takes, and:

    Args:
        load_balancing_strategy: None, a `LoadBalancingStrategy`, its value, or a `Policy`. With
            None or one of redis-py's own four the client is upstream's, untouched.
        balancer_options: tunables of our strategies.
        read_commands: names of further commands that replicas shall answer, beyond those that
            redis-py knows as reads: ``("PFCOUNT", "TOUCH")``, or reads of a module.
        endpoint_policy: which of the addresses that servers name may be dialled. None: those
            that nodes which are known confirm.

    Raises:
        ValueError: unknown strategy, one that this redis-py does not have, options without a
            strategy of ours, or a name in `read_commands` that the server calls a write (in
            asyncio with the first command).
        TypeError: `balancer_options`, `read_commands` or `endpoint_policy` is of another type.
        UnsupportedClientError: this redis-py is too old or too new.
    """

    if TYPE_CHECKING:  # the methods are upstream's, which do not say that they return Self

        @classmethod
        def from_url(cls, url: str, **kwargs: Any) -> Self:  # noqa: D102 - upstream's
            ...

        async def __aenter__(self) -> Self: ...

        def __await__(self) -> Generator[Any, None, Self]: ...
