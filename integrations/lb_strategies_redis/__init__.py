"""Latency-aware reads for redis-py's cluster clients.

`RedisCluster` is a ``redis.cluster.RedisCluster`` and `AsyncRedisCluster` a
``redis.asyncio.cluster.RedisCluster``; `use_strategy` opts in a client that something else
built. With one of redis-py's own strategies, or none, they are exactly upstream's.
"""

from ._addresses import EndpointRefusedError
from ._use import use_strategy
from .aio import AsyncRedisCluster
from .sync import RedisCluster

__all__ = ["AsyncRedisCluster", "EndpointRefusedError", "RedisCluster", "use_strategy"]
