"""What users of kazoo and of other ZooKeeper clients have complained of, by issue."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
from kazoo.exceptions import KazooException, NoNodeError

from bench.proxy import ProxyProcess
from bench.servers.process import free_ports
from bench.servers.zookeeper import ZooKeeperServers
from lb_strategies_zookeeper import KazooClient
from tests.integration.zookeeper.conftest import Connector, PlainConnector

pytestmark = pytest.mark.integration


def wait_until(condition: Callable[[], object], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def all_read(client: KazooClient) -> bool:
    client.exists("/")
    return all(stats.picks for stats in client.endpoint_stats().values())


def test_reads_survive_the_death_of_any_server(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """kazoo#457, #556, #600, #374: ConnectionLoss and SessionExpired when a server dies.

    The read pool alone: no read fails while there is a leader, and while there is none they wait.
    """
    client = connect(zookeeper.hosts, timeout=10.0)
    client.create("/node", b"value")
    wait_until(lambda: all_read(client))
    session = client.client_id
    is_over = threading.Event()
    values: list[bytes] = []
    errors: list[BaseException] = []

    def read() -> None:
        while not is_over.is_set():
            try:
                values.append(client.get("/node")[0])
            except KazooException as error:
                errors.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for server in (zookeeper.followers[0], zookeeper.leader()):
        server.kill()
        zookeeper.leader()
        time.sleep(0.2)
        server.restart()
    is_over.set()
    for thread in threads:
        thread.join(20.0)
    assert errors == []
    assert set(values) == {b"value"}
    assert client.client_id == session


def test_one_name_of_several_servers_is_spread_over(
    zookeeper: ZooKeeperServers, connect: Connector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kazoo#372: behind a name with several addresses it is the same server always."""
    [port] = free_ports(1)
    addresses = [f"127.0.0.{n}" for n in (11, 12, 13)]
    resolve = socket.getaddrinfo

    def resolve_name(host: Any, *arguments: Any, **options: Any) -> Any:
        if host != "zookeeper.test":
            return resolve(host, *arguments, **options)
        return [found for one in addresses for found in resolve(one, *arguments, **options)]

    monkeypatch.setattr(socket, "getaddrinfo", resolve_name)
    with ProxyProcess() as proxies:
        for address, server in zip(addresses, zookeeper.servers, strict=True):
            proxies.open("127.0.0.1", server.ports.client, listen_on=port, listen_host=address)
        client = connect(f"zookeeper.test:{port}", timeout=10.0)
        assert list(client.endpoint_stats()) == [f"{address}:{port}" for address in addresses]
        wait_until(lambda: all_read(client))
        leads = zookeeper.servers.index(zookeeper.leader())
        wait_until(lambda: client.session_endpoint == f"{addresses[leads]}:{port}")
        client.stop()


def test_watches_are_there_again_after_a_move(
    zookeeper: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    """kazoo#257: kazoo's DataWatch and ChildrenWatch arm themselves again, also after our moves."""
    client = connect(zookeeper.hosts, timeout=10.0)
    client.create("/watched", b"0")
    seen: list[bytes | None] = []
    client.DataWatch("/watched", lambda value, stat: seen.append(value))
    new = zookeeper.change_leader()
    wait_until(lambda: client.connected and client.session_endpoint == new.endpoint)
    other = plain(zookeeper.hosts, timeout=10.0)
    other.set("/watched", b"1")
    wait_until(lambda: seen[-1] == b"1")
    assert seen[0] == b"0"


def test_a_client_that_has_just_begun_reads_the_latest(
    zookeeper: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    """apache/helix#1118, pravega#3985: a new session on a slow server reads what is long gone."""
    writer = plain(zookeeper.leader().endpoint, timeout=10.0)
    for n in range(10):
        writer.create(f"/new{n}", b"value")
        client = connect(zookeeper.hosts, read_consistency="strong")
        assert client.get(f"/new{n}")[0] == b"value"
        client.stop()


def test_what_one_session_made_another_one_of_the_client_finds(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """teleport#16941 and others: ensure_path, then a read of another session that raises NoNode."""
    client = connect(zookeeper.hosts, strategy="round_robin", timeout=10.0)
    wait_until(lambda: all_read(client))
    for n in range(200):
        client.ensure_path(f"/made/{n}")
        client.get(f"/made/{n}")
        client.delete(f"/made/{n}")
        with pytest.raises(NoNodeError):
            client.get(f"/made/{n}")


def test_an_election_is_waited_for_without_haste(
    fresh_zookeeper: ZooKeeperServers, connect: Connector, caplog: pytest.LogCaptureFixture
) -> None:
    """samuel/go-zookeeper#72: instant retries during an election, until the session expires."""
    client = connect(fresh_zookeeper.hosts, timeout=10.0)
    client.create("/ephemeral", ephemeral=True)
    session = client.client_id
    caplog.set_level(logging.INFO, "kazoo.client")
    dead = fresh_zookeeper.followers
    for server in dead:
        server.kill()
    wait_until(lambda: not client.connected)
    caplog.clear()
    began = time.monotonic()
    time.sleep(1.5)
    attempts = sum("Connecting to" in record.message for record in caplog.records)
    seconds = time.monotonic() - began
    for server in dead:
        server.restart(wait=False)
    wait_until(lambda: client.connected)
    assert client.client_id == session
    assert client.exists("/ephemeral") is not None
    # Three servers, and 50 ms before the first round that fails, more after each.
    assert 1 <= attempts <= 3 * (seconds / 0.05)


def test_no_thread_and_no_connection_of_a_client_outlives_it(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """... also if it is started and stopped again and again."""
    before = [server.srvr().connections for server in zookeeper.servers]
    client = connect(zookeeper.hosts, timeout=10.0)
    for _ in range(4):
        wait_until(lambda: all_read(client))
        client.restart()
    client.stop()
    client.close()
    wait_until(lambda: [server.srvr().connections for server in zookeeper.servers] <= before)


def test_a_client_that_cannot_connect_says_so_and_leaves_nothing(connect: Connector) -> None:
    ports = free_ports(2)
    before = threading.active_count()
    client = KazooClient(",".join(f"127.0.0.1:{port}" for port in ports), timeout=2.0)
    with pytest.raises(client.handler.timeout_exception, match="time-out"):
        client.start(timeout=0.5)
    wait_until(lambda: threading.active_count() <= before)
