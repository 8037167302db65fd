"""The session that writes: at the leader, away from who hangs, with all that belongs to it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest
from kazoo.protocol.states import KazooState

from bench.proxy import ProxyProcess
from bench.servers.process import free_ports
from bench.servers.zookeeper import ZooKeeperServer, ZooKeeperServers
from lb_strategies_zookeeper import KazooClient
from tests.integration.zookeeper.conftest import Connector, PlainConnector, Starter, both_kinds
from tests.integration.zookeeper.history import Writer

pytestmark = pytest.mark.integration


def wait_until(condition: Callable[[], object], timeout: float = 20.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def at_leader(client: KazooClient, servers: ZooKeeperServers) -> bool:
    return client.connected and client.session_endpoint == servers.leader().endpoint


def with_first(servers: ZooKeeperServers, first: str) -> str:
    return ",".join([first, *(e for e in servers.endpoints if e != first)])


def test_a_planned_move_fails_nothing(zookeeper: ZooKeeperServers) -> None:
    """With requests in flight all the while; the session, ephemerals and order are kept."""
    hosts = with_first(zookeeper, zookeeper.followers[0].endpoint)
    client = KazooClient(hosts, timeout=10.0, randomize_hosts=False)
    states: list[str] = []
    client.add_listener(states.append)
    try:
        # Without waiting for the leader to be known, so that there is something to move.
        assert client._routing is not None
        client._routing.is_started = True
        client.start_async().wait(10.0)
        assert client.session_endpoint == zookeeper.followers[0].endpoint
        client.create("/ephemeral", ephemeral=True)
        client.create("/log")
        session = client.client_id
        results = [client.create_async("/log/n-", b"%d" % n, sequence=True) for n in range(50)]
        client._routing.is_started = False
        client._routing.start()
        deadline = time.monotonic() + 20.0
        while not at_leader(client, zookeeper) or len(results) < 400:
            assert time.monotonic() < deadline
            n = len(results)
            results.append(client.create_async("/log/n-", b"%d" % n, sequence=True))
            if n % 10 == 0:
                results[-1].get(timeout=10.0)
        names = [result.get(timeout=10.0) for result in results]
        assert names == sorted(names)
        assert client.client_id == session
        stat = client.exists("/ephemeral")
        assert stat is not None
        assert stat.ephemeralOwner == session[0]
        wait_until(lambda: len(states) >= 3)
        assert states == ["CONNECTED", "SUSPENDED", "CONNECTED"]
    finally:
        client.stop()
        client.close()


@pytest.mark.parametrize("role", ["leader", "follower"])
def test_a_server_that_hangs_is_left_with_the_session(
    start_zookeeper: Starter, connect: Connector, plain: PlainConnector, role: str
) -> None:
    """kazoo#260, kazoo#491: with requests in flight kazoo itself takes the session's time-out.

    A session at a follower stays there with a strategy that does not pin writes, and needs no
    election; otherwise the new leader has to be waited for. kazoo misses a ping after a third of
    the session's time-out at the earliest, which is longer than both take.
    """
    servers = start_zookeeper(tick=0.5, sync_limit=3)
    timeout = 10.0  # the longest with this tick
    hung = servers.leader() if role == "leader" else servers.followers[0]
    hosts = with_first(servers, hung.endpoint)
    strategy = "hybrid" if role == "leader" else "round_robin"
    ours = connect(hosts, strategy=strategy, randomize_hosts=False, timeout=timeout)
    stock = plain(hosts, randomize_hosts=False, timeout=timeout)
    assert ours.session_endpoint == hung.endpoint
    assert stock.client_id is not None
    session, stock_session = ours.client_id[0], stock.client_id[0]
    ours.create("/ephemeral", ephemeral=True)
    with Writer(ours, "/ours") as our_writer, Writer(stock, "/stock") as stock_writer:
        time.sleep(0.3)
        paused = time.monotonic()
        hung.pause()
        if role == "leader":
            servers.leader()
        elected = time.monotonic() - paused
        wait_until(lambda: our_writer.times[-1] > paused + max(elected, 0.2))
        time.sleep(1.0)
        our_gap = our_writer.longest_gap()
        stock_gap = max(time.monotonic() - stock_writer.times[-1], stock_writer.longest_gap())
        hung.resume()
        wait_until(lambda: stock_writer.times[-1] > time.monotonic() - 0.5)
    assert ours.client_id[0] == session
    assert ours.exists("/ephemeral").ephemeralOwner == session  # type: ignore[union-attr]
    assert len(our_writer.errors) <= 5, our_writer.errors
    assert our_gap < elected + 2.5, (our_gap, elected)
    assert our_gap < stock_gap or stock.client_id[0] != stock_session
    our_writer.check(ours)


def test_hardly_anything_fails_with_requests_in_flight(
    zookeeper: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    """kazoo#260: 20 a second are begun whatever the answers; kazoo sends them all to who hangs."""
    hung = zookeeper.followers[0]
    hosts = with_first(zookeeper, hung.endpoint)
    ours = connect(hosts, strategy="round_robin", randomize_hosts=False)
    stock = plain(hosts, randomize_hosts=False)
    session = ours.client_id[0]
    ours.create("/ephemeral", ephemeral=True)
    for path, client in (("/ours", ours), ("/stock", stock)):
        client.create(path)
        for _ in range(20):
            client.set(path, b"")
    began = time.monotonic()
    hung.pause()
    results: dict[str, list[Any]] = {"/ours": [], "/stock": []}
    for n in range(80):
        results["/ours"].append(ours.set_async("/ours", b"%d" % n))
        results["/stock"].append(stock.set_async("/stock", b"%d" % n))
        time.sleep(max(0.0, began + 0.05 * n - time.monotonic()))
    wait_until(lambda: all(result.ready() for result in results["/ours"]))
    seconds = time.monotonic() - began
    stock_failed = sum(not result.successful() for result in results["/stock"])
    failed = [result.exception for result in results["/ours"] if not result.successful()]
    hung.resume()
    # Four or five, with all else equal; without any of it all that are begun in 1.25 s, 25.
    assert len(failed) <= 10, failed
    assert stock_failed > 3 * len(failed), "kazoo had answered by then"
    assert seconds < 10.0
    assert ours.client_id[0] == session
    assert ours.exists("/ephemeral").ephemeralOwner == session  # type: ignore[union-attr]
    assert ours.get("/ours")[1].version == 20 + 80 - len(failed)


def test_thousands_of_requests_in_flight_block_nothing(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """The connection is woken up through a socket, which takes some hundred requests at once."""
    client = connect(zookeeper.hosts, timeout=20.0)
    client.create("/node")
    hung = zookeeper.leader()
    threads = []
    results: list[Any] = []

    def ask() -> None:
        results.extend(client.set_async("/node", b"") for _ in range(1000))

    for when in (0.0, 0.4, 0.4):
        time.sleep(when)
        hung.pause()
        for _ in range(2):
            threads.append(threading.Thread(target=ask))
            threads[-1].start()
        time.sleep(0.4)
        hung.resume()
    for thread in threads:
        thread.join(20.0)
        assert not thread.is_alive()
    assert len(results) == 6000
    for result in results:
        result.get(timeout=20.0)


@both_kinds
def test_a_killed_leader_is_left_at_once(zookeeper: ZooKeeperServers, connect: Connector) -> None:
    client = connect(zookeeper.hosts)
    session = client.client_id[0]
    client.create("/ephemeral", ephemeral=True)
    with Writer(client, "/ours") as writer:
        time.sleep(0.2)
        killed = time.monotonic()
        zookeeper.leader().kill()
        zookeeper.leader()
        elected = time.monotonic()
        wait_until(lambda: at_leader(client, zookeeper))
        wait_until(lambda: writer.times[-1] > elected + 0.2)
    assert writer.first_after(elected) < 1.0 + (elected - killed)
    assert client.client_id[0] == session
    assert client.exists("/ephemeral").ephemeralOwner == session  # type: ignore[union-attr]
    assert len(writer.errors) <= 5
    writer.check(client)


@pytest.mark.integration(limit=120)
def test_ten_changes_of_leader_lose_nothing(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """Under load, with locks held and ephemerals present; and nothing is executed twice."""
    clients = [connect(zookeeper.hosts, timeout=15.0) for _ in range(2)]
    rival = connect(zookeeper.hosts, timeout=15.0)
    sessions = [client.client_id[0] for client in clients]
    locks = [client.Lock(f"/lock{n}", str(n)) for n, client in enumerate(clients)]
    for n, client in enumerate(clients):
        assert locks[n].acquire(timeout=10.0)
        client.create(f"/ephemeral{n}", ephemeral=True)
    writers = [Writer(client, f"/ours{n}", every=0.01) for n, client in enumerate(clients)]
    for writer in writers:
        writer.__enter__()
    try:
        for _ in range(10):
            zookeeper.change_leader()
            for client in (*clients, rival):
                wait_until(partial(at_leader, client, zookeeper))
    finally:
        for writer in writers:
            writer.__exit__()
    rival.sync("/")
    for n, client in enumerate(clients):
        assert client.client_id[0] == sessions[n]
        assert client.exists(f"/ephemeral{n}").ephemeralOwner == sessions[n]  # type: ignore[union-attr]
        assert locks[n].is_acquired
        assert not rival.Lock(f"/lock{n}", "rival").acquire(blocking=False)
        assert rival.Lock(f"/lock{n}").contenders() == [str(n)]
        writers[n].check(rival)
        assert len(writers[n].created) > 100


def test_the_users_listeners_may_use_the_client(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """kazoo#356, kazoo#241, kazoo#116: in kazoo the listener waits for its own thread."""
    client = connect(zookeeper.hosts)
    client.create("/node", b"value")
    told: list[tuple[str, Any]] = []

    def listen(state: KazooState) -> None:
        found = client.get("/node")[0] if state == KazooState.CONNECTED else None
        told.append((state, found))

    client.add_listener(listen)
    zookeeper.leader().kill()
    wait_until(lambda: ("CONNECTED", b"value") in told)
    assert told[0] == ("SUSPENDED", None)
    client.remove_listener(listen)
    states = len(told)
    zookeeper.repair()
    zookeeper.leader().kill()
    wait_until(lambda: at_leader(client, zookeeper))
    assert len(told) == states


def test_a_leader_that_serves_nobody_is_not_pinned_to(
    start_zookeeper: Starter, connect: Connector
) -> None:
    servers = start_zookeeper(leader_serves=False)
    client = connect(servers.hosts)
    client.create("/node", b"value")
    followers = [server.endpoint for server in servers.followers]
    assert client.leader is None
    assert client.session_endpoint in followers
    for _ in range(50):
        assert client.get("/node")[0] == b"value"


@contextmanager
def at_one_port(servers: ZooKeeperServers) -> Iterator[tuple[dict[str, ZooKeeperServer], int]]:
    """Give each server an address of its own, all with the same two ports.

    Yields what is at which endpoint, and the port of the AdminServers.
    """
    port, admin_port = free_ports(2)
    with ProxyProcess() as proxies:
        found = {}
        for n, server in enumerate(servers.servers):
            assert server.admin_port is not None
            host = f"127.0.0.{21 + n}"
            proxies.open("127.0.0.1", server.ports.client, listen_on=port, listen_host=host)
            proxies.open("127.0.0.1", server.admin_port, listen_on=admin_port, listen_host=host)
            found[f"{host}:{port}"] = server
        yield found, admin_port


def test_the_admin_server_tells_who_leads(start_zookeeper: Starter) -> None:
    servers = start_zookeeper(admin_server=True)
    with at_one_port(servers) as (found, admin_port):
        client = KazooClient(",".join(found), timeout=10.0, admin_port=admin_port)
        try:
            client.start(timeout=20.0)
            wait_until(lambda: found.get(str(client.session_endpoint)) is servers.leader())
            servers.change_leader()
            wait_until(lambda: found.get(str(client.session_endpoint)) is servers.leader())
        finally:
            client.stop()
            client.close()


def test_a_leader_that_refuses_clients_is_tried_once_in_a_while(
    start_zookeeper: Starter, caplog: pytest.LogCaptureFixture
) -> None:
    """The AdminServer says that it leads; the session has to go elsewhere and stay there."""
    servers = start_zookeeper(leader_serves=False)
    with at_one_port(servers) as (found, admin_port):
        client = KazooClient(",".join(found), timeout=10.0, admin_port=admin_port)
        try:
            client.start(timeout=20.0)
            client.create("/node", b"value")
            wait_until(lambda: found.get(str(client.leader)) is servers.leader())
            wait_until(lambda: "does not take the session" in caplog.text)
            began = time.monotonic()
            while time.monotonic() < began + 1.5:
                assert client.get("/node")[0] == b"value"
                client.set("/node", b"value")
                assert found[str(client.session_endpoint)] is not servers.leader()
            assert caplog.text.count("does not take the session") == 1
        finally:
            client.stop()
            client.close()


def test_one_server_is_enough(start_zookeeper: Starter, connect: Connector) -> None:
    servers = start_zookeeper(servers=1, options={"standaloneEnabled": "true"})
    client = connect(servers.hosts)
    assert client.leader == client.session_endpoint == servers.hosts
    client.create("/node", b"value")
    assert [client.get("/node")[0] for _ in range(5)] == [b"value"] * 5


@both_kinds
def test_a_server_that_joins_is_used_and_one_that_leaves_is_not(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """The client's ``set_hosts``, and CURATOR-7: the session is kept when the ensemble changes."""
    two = [zookeeper.leader().endpoint, zookeeper.followers[0].endpoint]
    client = connect(",".join(two), timeout=10.0)
    session = client.client_id
    client.create("/node", b"value")
    client.set_hosts(zookeeper.hosts)

    def is_used() -> bool:
        assert client.get("/node")[0] == b"value"
        return all(stats.picks for stats in client.endpoint_stats().values())

    wait_until(is_used)
    assert set(client.endpoint_stats()) == set(zookeeper.endpoints)
    others = [server.endpoint for server in zookeeper.followers]
    client.set_hosts(",".join(others))
    assert list(client.endpoint_stats()) == others
    assert [client.get("/node")[0] for _ in range(10)] == [b"value"] * 10
    assert client.client_id == session


def test_the_leader_stops_leading_while_nobody_uses_the_client(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    client = connect(zookeeper.hosts)
    new = zookeeper.change_leader()
    wait_until(lambda: client.leader == new.endpoint == client.session_endpoint)
    assert threading.active_count() < 40
