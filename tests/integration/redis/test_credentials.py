"""Users whose rights end somewhere, everywhere or on one server only."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest

from bench.servers.redis import RedisClusterServers, RedisNode

from . import library
from .drivers import Connector
from .nodes import KEYS, calls, since

pytestmark = pytest.mark.integration

APP = {"username": "app", "password": "secret"}
ALL = ("on", ">secret", "~*", "&*", "+@all")


@contextmanager
def user(nodes: Sequence[RedisNode], *rules: str) -> Iterator[None]:
    """Let the user `app` exist; rights are a server's own, and are not replicated."""
    try:
        for node in nodes:
            node.ask("ACL", "SETUSER", "app", "reset", *rules)
        yield
    finally:
        for node in nodes:
            node.ask("ACL", "DELUSER", "app")


@pytest.mark.parametrize("protocol", [2, 3])
async def test_a_user_with_every_right(
    connect: Connector, shard: RedisClusterServers, protocol: int
) -> None:
    with user(shard.nodes, *ALL):
        client = await connect.ours(shard, "latency_based", protocol=protocol, **APP)
        before = calls(shard.nodes)
        log = await client.reads(count=150, keys=KEYS)
        assert log.errors == []
        assert min(since(before, shard.nodes).values()) > 0
        assert client.total("failures") == client.total("in_flight") == 0
        await client.close()


@pytest.mark.parametrize("rules", [(*ALL, "-readonly"), (*ALL, ">other", "<secret")])
async def test_a_user_who_may_not_connect_sees_what_the_stock_client_shows(
    connect: Connector, shard: RedisClusterServers, rules: tuple[str, ...]
) -> None:
    """Research P13: without the right to READONLY no replica strategy works."""
    seen = []
    with user(shard.nodes, *rules):
        for strategy in ("round_robin", "latency_based"):
            with pytest.raises((library.ClientError, library.ClusterException)) as caught:
                await connect.ours(shard, strategy, **connect.retries(0), **APP)
            seen.append((type(caught.value), str(caught.value).partition("127.0.0.1")[0]))
    assert seen[0] == seen[1]


async def test_what_a_user_may_nowhere_do_is_no_nodes_fault(
    connect: Connector, shard: RedisClusterServers
) -> None:
    with user(shard.nodes, *ALL, "-hgetall"):
        client = await connect.ours(shard, "latency_based", **APP)
        await client.reads(count=60, keys=KEYS)
        for _ in range(20):
            with pytest.raises(library.errors.NoPermissionError):
                await client.hgetall("hash")
            [denied, value] = await client.pipeline(
                [("hgetall", "hash"), ("get", "key:0")], raise_on_error=False
            )
            assert isinstance(denied, library.errors.NoPermissionError)
            assert value == "key:0"
        assert client.total("failures") == client.total("ejections") == 0
        assert client.total("in_flight") == 0
        assert (await client.reads(count=60, keys=KEYS)).errors == []
        await client.close()


RIGHTS: dict[str, tuple[str, ...]] = {
    "may not read": (*ALL, "-get"),
    "has another password": (*ALL, ">other", "<secret"),
    "does not exist": (),
}


@pytest.mark.alone
@pytest.mark.parametrize("rules", RIGHTS.values(), ids=RIGHTS)
async def test_a_replica_that_denies_what_the_others_allow_is_left_out(
    connect: Connector, shard: RedisClusterServers, rules: tuple[str, ...]
) -> None:
    """https://github.com/kubernetes/ingress-nginx/issues/5540: fast failures attract traffic."""
    sick = shard.replicas[0]
    with user(shard.nodes, *ALL):
        early = await connect.ours(shard, "latency_based", **APP)
        await early.reads(count=60, keys=KEYS)
        sick.ask("ACL", "SETUSER", "app", "reset", *rules)
        late = await connect.ours(shard, "latency_based", **APP)
        for client in (early, late):
            log = await client.reads(count=300, keys=KEYS)
            assert log.errors == []
            assert log.values == [KEYS[i % len(KEYS)] for i in range(300)]
            picks = client.stats()[sick.endpoint].picks
            assert (await client.reads(count=300, keys=KEYS)).errors == []
            if client is late or "-get" in rules:  # else it may have been let in before
                # Its fair share is 100.
                assert client.stats()[sick.endpoint].picks - picks <= 15
            assert await client.pipeline([("get", key) for key in KEYS]) == list(KEYS)
            assert client.total("in_flight") == 0
        assert late.stats()[sick.endpoint].failures > 0
        await early.close()
        await late.close()


async def test_a_pipelines_reads_that_one_replica_denies_are_read_elsewhere(
    connect: Connector, shard: RedisClusterServers
) -> None:
    sick = shard.replicas[0]
    with user(shard.nodes, *ALL):
        client = await connect.ours(shard, "latency_based_replicas", **APP)
        sick.ask("ACL", "SETUSER", "app", "-get")
        before = sick.command_calls("strlen")
        for i in range(20):
            commands = [("get", "key:0"), ("strlen", "key:0"), ("incr", "n"), ("get", "key:1")]
            assert await client.pipeline(commands) == ["key:0", 5, i + 1, "key:1"]
        assert sick.command_calls("strlen") > before  # it was asked
        assert client.total("in_flight") == 0
        await client.close()
