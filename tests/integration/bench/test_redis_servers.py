import time
from collections.abc import Iterator

import pytest
import redis
from redis.cluster import RedisCluster

from bench.servers.binaries import Binary, find_redis_server
from bench.servers.process import PORTS
from bench.servers.redis import (
    FORMING_NODE_TIMEOUT,
    RedisClusterServers,
    RedisNode,
    ports_in_slots,
)

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def servers() -> Iterator[RedisClusterServers]:
    with RedisClusterServers(primaries=1, replicas=2) as started:
        yield started


def test_a_cluster_is_complete_when_entered(servers: RedisClusterServers) -> None:
    assert [node.role for node in servers.nodes] == ["primary", "replica", "replica"]
    assert all(node.port in PORTS for node in servers.nodes)
    with RedisCluster(host=servers.host, port=servers.port) as client:
        assert {node.name for node in client.get_replicas()} == {
            node.endpoint for node in servers.replicas
        }
        client.set("key", "value")
        assert client.get("key") == b"value"


def test_calls_are_counted_per_server(servers: RedisClusterServers) -> None:
    primary = servers.primaries[0]
    before = primary.command_calls("get")
    with primary.client() as client:
        client.get("key")
        client.get("key")
    assert primary.command_calls("GET") == before + 2
    assert primary.command_calls("never-called") == 0


def test_a_paused_server_is_silent_and_serves_again(servers: RedisClusterServers) -> None:
    replica = servers.replicas[0]
    replica.pause()
    try:
        with replica.client(timeout=0.1) as client, pytest.raises(redis.TimeoutError):
            client.ping()
    finally:
        replica.resume()
    replica.wait_until_answering()


def test_a_killed_server_refuses_and_can_be_restarted(servers: RedisClusterServers) -> None:
    replica = servers.replicas[1]
    port = replica.port
    replica.kill()
    with replica.client() as client, pytest.raises(redis.ConnectionError):
        client.ping()
    replica.restart()
    servers.wait_until_ready()
    assert replica.port == port


def test_a_replica_joins_though_the_others_stall_for_longer_than_it_waits(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """It gives up its handshakes, and then nobody tells it of the others."""
    with RedisClusterServers(replicas=1) as servers:
        others = list(servers.nodes)
        ask = RedisNode.ask

        def ask_and_stall(node: RedisNode, *command: object) -> object:
            answer = ask(node, *command)
            if command[:2] == ("CLUSTER", "MEET") and others and command[3] == others[-1].port:
                stalled = list(others)
                others.clear()
                for other in stalled:
                    other.pause()
                time.sleep(2 * FORMING_NODE_TIMEOUT)
                for other in stalled:
                    other.resume()
            return answer

        monkeypatch.setattr(RedisNode, "ask", ask_and_stall)
        replica = servers.add_replica(servers.primaries[0])
        assert not others
        assert replica.port in ports_in_slots(servers.primaries[0])


def test_every_server_has_ended_on_leaving_also_a_paused_one() -> None:
    nodes: list[RedisNode] = []

    def be_interrupted() -> None:
        with RedisClusterServers(replicas=1) as servers:
            nodes.extend(servers.nodes)
            nodes[1].pause()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        be_interrupted()
    assert len(nodes) == 2
    for node in nodes:
        with node.client() as client, pytest.raises(redis.ConnectionError):
            client.ping()


def test_several_shards_start_in_seconds() -> None:
    began_at = time.monotonic()
    with RedisClusterServers(primaries=3, replicas=1) as servers:
        assert time.monotonic() - began_at < 15
        slots = [len(node.ask("CLUSTER", "SLOTS")) for node in servers.nodes]  # type: ignore[arg-type]  # a list, as `ask` cannot know
        assert slots == [3] * 6


def test_a_server_that_cannot_start_is_reported_with_its_log() -> None:
    with (
        pytest.raises(RuntimeError, match="Bad directive"),
        RedisClusterServers(replicas=0, config={"no-such-option": "yes"}),
    ):
        pass


@pytest.mark.parametrize(("primaries", "replicas"), [(0, 1), (1, -1)])
def test_meaningless_sizes_are_refused(primaries: int, replicas: int) -> None:
    with pytest.raises(ValueError, match="must be >="):
        RedisClusterServers(primaries=primaries, replicas=replicas)


def test_a_binary_is_found_with_its_version() -> None:
    binary = find_redis_server()
    assert isinstance(binary, Binary)
    assert binary.path.is_file()
    assert int(binary.version.split(".")[0]) >= 7
