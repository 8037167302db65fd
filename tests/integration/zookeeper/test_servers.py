"""The launcher does what it says: else no test of the adapter could be trusted."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from kazoo.client import KazooClient
from kazoo.exceptions import NoAuthError
from kazoo.security import make_digest_acl

from bench.servers.process import wait_until
from bench.servers.zookeeper import NotServingError, ZooKeeperServer, ZooKeeperServers
from bench.servers.zookeeper_words import ServerStatus, ask, opens_sessions, srvr

from .conftest import Starter

pytestmark = pytest.mark.integration

ROOT = Path(__file__).resolve().parents[3]

# Prints the process ids of the servers and of the proxies, then sleeps.
HOLDER = """
import time
from bench.servers.zookeeper import ZooKeeperServers
from bench.servers.process import terminating
with terminating(), ZooKeeperServers(servers=1, client_rtt=0) as zookeeper:
    print(*zookeeper.pids, zookeeper.network.pid, flush=True)
    time.sleep(60)
"""


@pytest.fixture(scope="module")
def linked() -> Iterator[ZooKeeperServers]:
    """Three servers behind links without delay."""
    with ZooKeeperServers(client_rtt=0.0, peer_rtt=0.0) as servers:
        yield servers


def address(server: ZooKeeperServer) -> tuple[str, int]:
    """Return where clients reach the server."""
    host, port = server.endpoint.split(":")
    return host, int(port)


def through_link(server: ZooKeeperServer) -> ServerStatus:
    return srvr(address(server))


def answers(server: ZooKeeperServer) -> bool:
    try:
        return ask(address(server), "srvr") != ""
    except OSError:
        return False


def put(server: ZooKeeperServer, path: str, value: bytes) -> None:
    with server.client() as client:
        client.create(path, value)


def get(server: ZooKeeperServer, path: str) -> bytes:
    with server.client() as client:
        client.sync(path)
        return bytes(client.get(path)[0])


def seconds(call: Callable[[], object], *, count: int = 20) -> float:
    """Return the least of the times that ``call`` takes: a busy machine adds, and never takes."""
    taken = []
    for _ in range(count):
        began_at = time.perf_counter()
        call()
        taken.append(time.perf_counter() - began_at)
    return min(taken)


def test_three_servers_have_one_leader(zookeeper: ZooKeeperServers) -> None:
    leader = zookeeper.leader()
    assert len(zookeeper.followers) == 2
    assert leader not in zookeeper.followers
    modes = sorted(server.srvr().mode for server in zookeeper.servers)
    assert modes == ["follower", "follower", "leader"]
    assert leader.srvr().is_leader
    assert leader.srvr().version == zookeeper.installation.version
    assert zookeeper.server(leader.server_id) is leader
    assert len({*zookeeper.endpoints, *zookeeper.pids}) == 6
    assert zookeeper.hosts.count(",") == 2


def test_every_server_serves_what_was_written(zookeeper: ZooKeeperServers) -> None:
    put(zookeeper.followers[0], "/node", b"value")
    assert [get(server, "/node") for server in zookeeper.servers] == [b"value"] * 3
    zookeeper.clear()
    with zookeeper.leader().client() as client:
        assert client.get_children("/") == ["zookeeper"]


def test_acls_count_for_others_and_not_for_the_launcher(zookeeper: ZooKeeperServers) -> None:
    acl = make_digest_acl("somebody", "secret", all=True)
    with zookeeper.leader().client() as client:
        client.create("/private/child", b"", acl=[acl], makepath=True)
    stranger = KazooClient(zookeeper.hosts)
    stranger.start()
    try:
        with pytest.raises(NoAuthError):
            stranger.get("/private/child")
    finally:
        stranger.stop()
        stranger.close()
    zookeeper.clear()


def test_packets_are_counted_per_server(zookeeper: ZooKeeperServers) -> None:
    """The share of each server in an experiment comes from these counters."""
    busy, idle = zookeeper.followers
    before = busy.srvr().received, idle.srvr().received
    with busy.client() as client:
        for _ in range(100):
            client.exists("/")
        assert busy.srvr().connections == 2
    assert busy.srvr().received - before[0] >= 100
    assert idle.srvr().received - before[1] < 10


def test_the_id_of_a_session_tells_the_server_that_opened_it(zookeeper: ZooKeeperServers) -> None:
    for server in zookeeper.servers:
        with server.client() as client:
            assert client.client_id[0] >> 56 == server.server_id


def test_a_paused_leader_is_replaced_and_follows_when_resumed(zookeeper: ZooKeeperServers) -> None:
    old = zookeeper.leader()
    epoch = old.srvr().epoch
    old.pause()
    assert old.is_running
    with socket.create_connection(address(old), timeout=5):
        pass  # the kernel still accepts
    new = zookeeper.leader()
    assert new is not old
    assert new.srvr().epoch > epoch
    new.wait_until_ready()
    put(new, "/node", b"value")
    old.resume()
    zookeeper.wait_until_ready()
    assert zookeeper.leader() is new
    assert get(old, "/node") == b"value"


@pytest.mark.parametrize("how", ["kill", "terminate"])
def test_an_ended_leader_is_replaced_and_returns_with_its_data(
    zookeeper: ZooKeeperServers, how: str
) -> None:
    old = zookeeper.leader()
    put(old, "/before", b"1")
    endpoint, pid = old.endpoint, old.pid
    getattr(old, how)()
    assert not old.is_running
    assert not answers(old)
    new = zookeeper.leader()
    new.wait_until_ready()
    put(new, "/after", b"2")
    old.restart()
    assert (old.endpoint, get(old, "/before"), get(old, "/after")) == (endpoint, b"1", b"2")
    assert old.pid != pid


def test_the_leader_changes(zookeeper: ZooKeeperServers) -> None:
    old = zookeeper.leader()
    new = zookeeper.change_leader()
    assert new is not old
    assert zookeeper.leader() is new
    assert old.srvr().mode == "follower"


def test_without_a_quorum_nobody_serves(fresh_zookeeper: ZooKeeperServers) -> None:
    first, *others = fresh_zookeeper.servers
    for server in others:
        server.kill()

    def serves_nobody() -> bool:
        try:
            first.srvr()
        except NotServingError:
            return True
        return False

    wait_until(serves_nobody, "it has given up")
    with pytest.raises(RuntimeError, match="leads"):
        fresh_zookeeper.leader(timeout=0.1)
    assert not first.serves_clients()
    for server in others:
        server.restart(wait=False)
    fresh_zookeeper.wait_until_ready()


def test_five_servers_survive_two(start_zookeeper: Starter) -> None:
    zookeeper = start_zookeeper(servers=5)
    leader = zookeeper.leader()
    for server in zookeeper.followers[:2]:
        server.kill()
    assert zookeeper.leader() is leader
    put(leader, "/node", b"value")


def test_observers_follow_and_have_no_vote(start_zookeeper: Starter) -> None:
    zookeeper = start_zookeeper(servers=1, observers=1)
    [observer] = zookeeper.observers
    assert observer.srvr().mode == "observer"
    assert zookeeper.voters == [zookeeper.leader()]
    assert observer.endpoint in zookeeper.endpoints
    put(observer, "/node", b"value")
    observer.kill()
    assert get(zookeeper.leader(), "/node") == b"value"


def test_a_leader_may_serve_nobody(start_zookeeper: Starter) -> None:
    """It does not say by four-letter word that it leads, either."""
    zookeeper = start_zookeeper(leader_serves=False)
    leader = zookeeper.leader()
    with pytest.raises(NotServingError, match="not currently serving"):
        leader.srvr()
    assert not opens_sessions(address(leader))
    assert [server.srvr().mode for server in zookeeper.followers] == ["follower"] * 2
    put(zookeeper.followers[0], "/node", b"value")
    zookeeper.clear()
    old_followers = zookeeper.followers
    assert zookeeper.change_leader() in old_followers


def test_srvr_is_answered_whatever_the_whitelist_says(start_zookeeper: Starter) -> None:
    zookeeper = start_zookeeper(
        servers=1, options={"4lw.commands.whitelist": "ruok"}, admin_server=True
    )
    leader = zookeeper.leader()
    assert leader.ask("ruok") == "imok"
    assert "not in the whitelist" in leader.ask("mntr")
    assert leader.srvr().is_leader
    with urllib.request.urlopen(f"http://{leader.admin_endpoint}/commands/leader") as response:
        assert b'"is_leader" : true' in response.read()


def test_by_default_there_is_neither_another_word_nor_an_admin_server(
    zookeeper: ZooKeeperServers,
) -> None:
    assert "not in the whitelist" in zookeeper.leader().ask("ruok")
    with pytest.raises(RuntimeError, match="admin_server"):
        _ = zookeeper.leader().admin_endpoint


def test_a_single_server(start_zookeeper: Starter) -> None:
    zookeeper = start_zookeeper(servers=1, options={"standaloneEnabled": "true"})
    assert zookeeper.leader().srvr().mode == "standalone"
    put(zookeeper.leader(), "/node", b"value")
    zookeeper.leader().restart()
    assert get(zookeeper.leader(), "/node") == b"value"


def test_every_fault_is_repaired(linked: ZooKeeperServers) -> None:
    paused, ended, cut = linked.servers
    paused.pause()
    ended.kill()
    cut.cut()
    linked.repair()
    assert all(opens_sessions(address(server)) for server in linked.servers)
    assert len(linked.statuses()) == 3


def test_links_add_the_round_trips_asked_for_and_tell_what_they_added(
    start_zookeeper: Starter,
) -> None:
    zookeeper = start_zookeeper(client_rtt=0.010, peer_rtt=0.020)
    follower = zookeeper.followers[0]
    # A call opens its connection first; TCP's handshake ends at the proxy and is not delayed.
    assert seconds(lambda: through_link(follower)) >= 0.010
    with zookeeper.leader().client() as client:
        client.create("/node")
        assert seconds(lambda: client.set("/node", b"value")) >= 0.020
    with follower.client() as client:
        # There and back, and the same again within the leader's own round.
        assert seconds(lambda: client.set("/node", b"value")) >= 0.040
    client_rtt, peer_rtt = zookeeper.round_trips_given()
    assert client_rtt >= 0.010
    assert peer_rtt >= 0.020
    given = follower.delays_given()
    assert given.client_request.count >= 20
    assert given.client_reply.median >= 0.005
    assert given.peer_sent.count >= 20
    assert given.peer_received.p99 >= given.peer_received.median >= 0.010


def test_links_without_delay_hold_nothing_back(start_zookeeper: Starter) -> None:
    zookeeper = start_zookeeper(client_rtt=0.0, peer_rtt=0.0)
    assert all(opens_sessions(address(server)) for server in zookeeper.servers)
    assert zookeeper.round_trips_given() == (0.0, 0.0)


@pytest.mark.parametrize("leads", [False, True])
def test_one_server_is_slowed_down(linked: ZooKeeperServers, leads: bool) -> None:
    """Followers dial the leader, so the two kinds are slowed down in opposite directions."""
    slow = linked.leader() if leads else linked.followers[0]
    other = linked.followers[-1]
    with slow.client() as client:
        client.ensure_path("/node")

        def write() -> None:
            client.set("/node", b"value")

        quick = seconds(write)
        slow.slow_down(0.030, jitter=0.010)
        try:
            by_client = seconds(lambda: through_link(slow))
            assert by_client >= 0.020
            by_peers = seconds(write)
            assert by_peers >= 0.020
            assert seconds(lambda: through_link(other)) < by_client / 2
            assert slow.delays_given().client_reply.count >= 20
            slow.slow_down(0.030, client=False)
            assert seconds(lambda: through_link(slow)) < by_client / 2
            assert seconds(write) >= 0.030
        finally:
            slow.heal()
        assert quick < by_peers / 2
        assert seconds(write) < by_peers / 2
        given = slow.delays_given().client_reply.mean
        assert given >= 0.020
        assert max(linked.round_trips_given()) < given / 2


def test_a_leader_cut_off_from_the_others_is_replaced(linked: ZooKeeperServers) -> None:
    """The ways to elect it again are cut too; clients still reach it."""
    old = linked.leader()
    old.cut(client=False)
    try:
        wait_until(lambda: linked.leader() is not old, "another leads")
        new = linked.leader()
        new.wait_until_ready()
        put(new, "/cut", b"value")
        assert answers(old)
        wait_until(lambda: not old.serves_clients(), "it has given up")
        assert linked.leader() is new
    finally:
        old.heal()
    linked.wait_until_ready()
    assert get(old, "/cut") == b"value"


def test_a_server_restarted_while_cut_off_stays_so(linked: ZooKeeperServers) -> None:
    server = linked.followers[0]
    server.cut()
    server.restart(wait=False)
    wait_until(lambda: _tells_nothing(server), "it runs")
    time.sleep(1.0)
    assert not answers(server)
    assert _tells_nothing(server)
    server.heal()
    linked.wait_until_ready()


def test_a_server_cut_off_from_clients_still_leads(linked: ZooKeeperServers) -> None:
    leader = linked.leader()
    leader.cut(peer=False)
    try:
        assert not answers(leader)
        assert linked.leader() is leader
    finally:
        leader.heal()
    assert answers(leader)


def test_without_links_there_is_nothing_to_slow_down(zookeeper: ZooKeeperServers) -> None:
    with pytest.raises(RuntimeError, match="client_rtt"):
        zookeeper.servers[0].slow_down(0.1)
    with pytest.raises(RuntimeError, match="client_rtt"):
        zookeeper.servers[0].delays_given()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_no_process_outlives_an_interrupted_run(number: signal.Signals, tmp_path: Path) -> None:
    """SIGKILL leaves files behind, hence the directory."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER],
        cwd=ROOT,
        env=os.environ | {"TMPDIR": str(tmp_path)},
        # What starts the tests in the background has them ignore it, and so their children.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        stdout=subprocess.PIPE,
        text=True,
    ) as holder:
        assert holder.stdout is not None
        pids = [int(pid) for pid in holder.stdout.readline().split()]
        assert len(pids) == 2
        assert all(Path(f"/proc/{pid}").exists() for pid in pids)
        os.kill(holder.pid, number)
        holder.wait(timeout=10)
        wait_until(lambda: not any(_runs(pid) for pid in pids), "all have ended")
    assert (list(tmp_path.iterdir()) == []) is (number != signal.SIGKILL)


def test_a_server_that_cannot_start_is_an_error_with_its_log() -> None:
    servers = ZooKeeperServers(servers=1, options={"tickTime": "often"})
    with pytest.raises(RuntimeError, match=r"ended(.|\n)*often"), servers:
        pass


def _tells_nothing(server: ZooKeeperServer) -> bool:
    try:
        server.srvr()
    except NotServingError:
        return True
    except OSError:
        return False
    return False


def _runs(pid: int) -> bool:
    """Return whether a process exists and is no zombie, which only waits for its parent."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
