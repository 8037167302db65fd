"""The synchronous client under gevent, as in gunicorn's gevent workers and Celery."""

from __future__ import annotations

import pytest

from bench.servers.redis import RedisClusterServers

from .children import run_module
from .nodes import frozen

pytestmark = pytest.mark.integration


def test_greenlets_share_a_client_while_a_replica_freezes(shard: RedisClusterServers) -> None:
    """What is in flight on behalf of the running code is a greenlet's own."""
    sick = shard.replicas[0]
    try:
        arguments = (shard.host, shard.port, sick.pid, sick.endpoint)
        patched = ("gevent.monkey", "--module")
        report = run_module("greenlets", *arguments, runner=patched)
    finally:
        with frozen(sick):  # whatever happened, it runs and answers afterwards
            pass
    assert report["patched"]
    assert report["errors"] == []
    assert report["wrong"] == report["left behind"] == report["in flight"] == 0
    assert report["ejections"] > 0
    assert report["reads beside the frozen one"] > 50
    assert report["in flight in the killed one"] == 1
    assert report["given up"] == 3
    assert report["cancelled"] == 4
