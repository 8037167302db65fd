"""Latency-aware reads for the cluster clients of redis-py, and of valkey-py.

`RedisCluster` is a ``redis.cluster.RedisCluster`` and `AsyncRedisCluster` a
``redis.asyncio.cluster.RedisCluster``; `use_strategy` opts in a client that something else
built. With one of redis-py's own strategies, or none, they are exactly upstream's. The same for
valkey-py is in `lb_strategies_redis.valkey`; either library works without the other.
"""

from typing import TYPE_CHECKING, Any

from ._addresses import EndpointRefusedError
from ._library import UnsupportedClientError
from ._use import use_strategy

if TYPE_CHECKING:
    from .redis import AsyncRedisCluster, RedisCluster

__all__ = [
    "AsyncRedisCluster",
    "EndpointRefusedError",
    "RedisCluster",
    "UnsupportedClientError",
    "use_strategy",
]


def __getattr__(name: str) -> Any:
    if name in ("AsyncRedisCluster", "RedisCluster"):
        from . import redis  # only now, for it may not be installed

        return getattr(redis, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
