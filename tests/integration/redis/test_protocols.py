"""RESP2 and RESP3, decoded or not, with redis-py's own parsers and with hiredis."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import redis

from bench.scenarios.redis_loading import master_down
from bench.servers.redis import RedisClusterServers

from . import library
from .children import run_module

pytestmark = pytest.mark.integration

HIREDIS = Path(sys.prefix) / "hiredis"
"""Where `make setup` puts it: not where redis-py would always find it."""


@pytest.mark.parametrize("hiredis", [False, True])
def test_a_client_works_whatever_parses_the_replies(
    shard: RedisClusterServers, hiredis: bool
) -> None:
    """Error replies are seen as they are parsed, and each parser does it in its own way."""
    if hiredis and library.NAME != "redis":
        pytest.skip(f"{library.TITLE} does not use hiredis")
    if hiredis and not HIREDIS.is_dir():
        pytest.skip("hiredis is not there; install it with: make setup")
    with redis.RedisCluster(host=shard.host, port=shard.port) as client:
        client.hset("hash", mapping={"a": "1", "b": "2"})
        client.disconnect_connection_pools()
    sick = shard.replicas[0]
    with master_down(sick):
        path = [HIREDIS] if hiredis else []
        found = run_module("protocols", shard.host, shard.port, sick.endpoint, path=path)
    assert found == {"hiredis": hiredis, "wrong": {}}
