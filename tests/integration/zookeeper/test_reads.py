"""Where reads go, and how fresh they are."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import pytest
from kazoo.exceptions import ConnectionClosedError, ConnectionLoss, NoAuthError, NoNodeError
from kazoo.protocol.states import WatchedEvent
from kazoo.security import make_digest_acl

from bench.servers.zookeeper import ZooKeeperServer, ZooKeeperServers
from lb_strategies_zookeeper import KazooClient
from tests.integration.zookeeper.conftest import Connector, PlainConnector, Starter, both_kinds

pytestmark = pytest.mark.integration


def packets(servers: ZooKeeperServers) -> dict[str, int]:
    """Return how many packets each server has got from clients."""
    return {server.endpoint: server.srvr().received for server in servers.servers}


def wait_for_sessions(client: KazooClient) -> None:
    """Wait until every follower has been read from."""
    deadline = time.monotonic() + 20.0
    while not all(s.picks for m, s in client.endpoint_stats().items() if m != client.leader):
        assert time.monotonic() < deadline
        client.exists("/")


@both_kinds
def test_reads_are_spread_and_writes_go_to_the_leader(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    client = connect(zookeeper.hosts, timeout=20.0)
    leader = zookeeper.leader().endpoint
    assert client.leader == leader == client.session_endpoint
    assert client.leader_term == zookeeper.leader().srvr().epoch
    client.create("/node", b"value")
    wait_for_sessions(client)
    before = packets(zookeeper)
    for _ in range(300):
        assert client.get("/node")[0] == b"value"
    reads = {server: count - before[server] for server, count in packets(zookeeper).items()}
    assert all(60 <= count <= 140 for count in reads.values()), reads
    before = packets(zookeeper)
    began = time.monotonic()
    for _ in range(100):
        client.set("/node", b"value")
    writes = {server: count - before[server] for server, count in packets(zookeeper).items()}
    assert writes.pop(leader) >= 100
    polls = 5.0 * (time.monotonic() - began)  # a busy machine takes seconds
    assert all(count < 20 + polls for count in writes.values()), writes


@both_kinds
def test_every_read_answers_what_kazoo_answers(
    zookeeper: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    ours = connect(f"{zookeeper.hosts}", timeout=20.0)
    stock = plain(zookeeper.leader().endpoint)
    stock.create("/app/one", b"1", makepath=True)
    stock.create("/app/two", b"2")
    wait_for_sessions(ours)
    ours.sync("/")
    calls: list[tuple[str, tuple[Any, ...]]] = [
        ("get", ("/app/one",)),
        ("exists", ("/app/one",)),
        ("exists", ("/app/none",)),
        ("get_children", ("/app", None, True)),
        ("get_acls", ("/app",)),
    ]
    for name, arguments in calls:
        expected = getattr(stock, name)(*arguments)
        for _ in range(4):
            assert getattr(ours, name)(*arguments) == expected
            assert getattr(ours, f"{name}_async")(*arguments).get(timeout=10.0) == expected
    for _ in range(4):
        assert sorted(ours.get_children("/app")) == ["one", "two"]
        assert sorted(ours.get_children_async("/app").get(timeout=10.0)) == ["one", "two"]
        for name in ("get", "get_children", "get_acls"):
            with pytest.raises(NoNodeError):
                getattr(ours, name)("/app/none")
            with pytest.raises(NoNodeError):
                getattr(ours, f"{name}_async")("/app/none").get(timeout=10.0)
    for wrong in (b"/app", None, 3):
        with pytest.raises(TypeError):
            ours.get(wrong)  # type: ignore[arg-type]
    assert all(stats.in_flight == 0 for stats in ours.endpoint_stats().values())


@both_kinds
def test_a_chroot_holds_for_every_session(
    zookeeper: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    plain(zookeeper.leader().endpoint).create("/app/node", b"inside", makepath=True)
    client = connect(f"{zookeeper.hosts}/app", timeout=20.0)
    wait_for_sessions(client)
    assert [client.get("/node")[0] for _ in range(6)] == [b"inside"] * 6
    assert client.get_children("/") == ["node"]


@both_kinds
def test_every_session_is_authenticated(zookeeper: ZooKeeperServers, connect: Connector) -> None:
    """kazoo#add_auth and ``auth_data=``: a read that is denied on one server is of no use."""
    acl = [make_digest_acl("somebody", "secret", all=True)]
    early = connect(zookeeper.hosts, timeout=20.0, auth_data=[("digest", "somebody:secret")])
    early.create("/secret", b"treasure", acl=acl)
    late = connect(zookeeper.hosts, timeout=20.0)
    wait_for_sessions(late)
    with pytest.raises(NoAuthError):
        late.get("/secret")
    late.add_auth("digest", "somebody:secret")
    for client in (early, late):
        wait_for_sessions(client)
        assert [client.get("/secret")[0] for _ in range(9)] == [b"treasure"] * 9


def test_a_thread_that_does_not_wait_for_its_writes_reads_them(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """A session answers in the order it was asked, and kazoo's users pipeline on that."""
    client = connect(zookeeper.hosts, timeout=20.0)
    client.create("/node", b"0")
    wait_for_sessions(client)
    for count in range(1, 200):
        client.set_async("/node", str(count).encode())
        assert client.get_async("/node").get(timeout=10.0)[0] == str(count).encode()


@pytest.fixture(scope="module")
def _lagging() -> Any:
    """An ensemble whose followers hear of each commit some milliseconds after the client does."""
    with ZooKeeperServers(client_rtt=0.0, peer_rtt=0.0) as servers:
        servers.leader().slow_down(0.008, client=False)
        yield servers


@pytest.fixture
def lagging(_lagging: ZooKeeperServers) -> ZooKeeperServers:
    """That ensemble, without nodes."""
    _lagging.clear()
    return _lagging


@pytest.mark.parametrize(
    ("strategy", "in_event_loop"),
    [("hybrid", False), ("latency_based_replicas", False), ("latency_based_replicas", True)],
    indirect=["in_event_loop"],
)
def test_no_read_is_older_than_the_sessions_own_last_write(
    lagging: ZooKeeperServers, connect: Connector, plain: PlainConnector, strategy: str
) -> None:
    """CAUSAL, on servers that lag; sessions of plain kazoo beside it show old values."""
    client = connect(lagging.hosts, strategy=strategy, timeout=20.0)
    followers = [plain(server.endpoint, timeout=20.0) for server in lagging.followers]
    client.create(f"/{strategy}", b"0")
    wait_for_sessions(client)
    old: Counter[str] = Counter()
    for count in range(1, 151):
        client.set(f"/{strategy}", str(count).encode())
        for follower in followers:
            old["plain"] += int(follower.get(f"/{strategy}")[0]) < count
        for _ in range(8):
            old["ours"] += int(client.get(f"/{strategy}")[0]) < count
    assert old["ours"] == 0
    assert old["plain"] > 50
    leader = lagging.leader().endpoint
    picks = {server: stats.picks for server, stats in client.endpoint_stats().items()}
    assert sum(count for server, count in picks.items() if server != leader) > 100, picks


@both_kinds
def test_what_has_been_read_is_never_unread(
    lagging: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    """Monotonic reads, of what somebody else writes; also that a node has gone."""
    writer = plain(lagging.leader().endpoint, timeout=20.0)
    writer.create("/monotonic", b"0")
    client = connect(lagging.hosts, strategy="round_robin", timeout=20.0)
    wait_for_sessions(client)
    done = threading.Event()

    def write() -> None:
        for count in range(1, 150):
            writer.set("/monotonic", str(count).encode())
        writer.delete("/monotonic")
        done.set()

    thread = threading.Thread(target=write)
    thread.start()
    seen: list[int] = []
    while not done.is_set() or len(seen) < 10:
        try:
            seen.append(int(client.get("/monotonic")[0]))
        except NoNodeError:
            seen.append(1_000_000)
    thread.join()
    assert seen == sorted(seen)
    assert len(set(seen)) > 20


@both_kinds
def test_a_strong_read_sees_what_others_have_written(
    lagging: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    writer = plain(lagging.leader().endpoint, timeout=20.0)
    writer.create("/strong", b"0")
    readers = {
        "causal": connect(lagging.hosts, timeout=20.0, strategy="round_robin"),
        "strong": connect(
            lagging.hosts, timeout=20.0, strategy="round_robin", read_consistency="strong"
        ),
        "fenced": connect(
            lagging.hosts,
            timeout=20.0,
            strategy="round_robin",
            read_consistency="strong",
            fence=True,
        ),
    }
    for reader in readers.values():
        wait_for_sessions(reader)
    old: Counter[str] = Counter()
    for count in range(1, 41):
        writer.set("/strong", str(count).encode())
        for name, reader in readers.items():
            old[name] += int(reader.get_async("/strong").get(timeout=10.0)[0]) < count
        writer.set("/strong", str(count).encode())
        for name in ("strong", "fenced"):
            old[name] += int(readers[name].get("/strong")[0]) < count
    assert old["strong"] == old["fenced"] == 0
    assert old["causal"] > 0


@both_kinds
def test_a_relaxed_read_may_be_old_and_never_waits(
    lagging: ZooKeeperServers, connect: Connector
) -> None:
    client = connect(
        lagging.hosts,
        timeout=20.0,
        strategy="latency_based_replicas",
        read_consistency="relaxed",
    )
    client.create("/relaxed", b"0")
    wait_for_sessions(client)
    client.sync("/relaxed")
    time.sleep(0.1)
    old = 0
    for count in range(1, 51):
        client.set("/relaxed", str(count).encode())
        old += int(client.get("/relaxed")[0]) < count
    assert old > 0


@both_kinds
def test_what_a_watch_told_of_can_be_read(
    lagging: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    """The event comes from the leader and has no zxid; the read goes to a server that lags."""
    writer = plain(lagging.leader().endpoint, timeout=20.0)
    writer.create("/watched", b"0")
    client = connect(lagging.hosts, strategy="latency_based_replicas", timeout=20.0)
    wait_for_sessions(client)
    events: list[WatchedEvent] = []
    fired = threading.Event()

    def watch(event: WatchedEvent) -> None:
        events.append(event)
        fired.set()

    client.sync("/watched")
    for count in range(1, 41):
        assert client.get("/watched", watch)[0] == str(count - 1).encode()
        writer.set("/watched", str(count).encode())
        assert fired.wait(10.0)
        fired.clear()
        assert int(client.get("/watched")[0]) >= count
    assert len(events) == 40


@both_kinds
def test_one_read_may_be_fresher_than_the_others(
    lagging: ZooKeeperServers, connect: Connector, plain: PlainConnector
) -> None:
    """Also before the sessions that read are connected, and in the midst of a pipeline."""
    writer = plain(lagging.leader().endpoint, timeout=20.0)
    writer.create("/view/child", b"0", makepath=True)
    client = connect(lagging.hosts, timeout=20.0, strategy="round_robin")
    strong = client.with_options(read_consistency="strong")
    relaxed = client.with_options(read_consistency="relaxed")
    for count in range(1, 31):
        writer.set("/view/child", str(count).encode())
        assert int(strong.get("/view/child")[0]) == count
        writer.set("/view/child", str(count).encode())
        client.exists_async("/view")
        result = strong.get_async("/view/child")
        assert int(result.get(timeout=10.0)[0]) == count
        assert relaxed.exists("/view/child") is not None
    wait_for_sessions(client)
    for view in (strong, relaxed):
        assert view.get_children("/view") == ["child"]
        assert view.get_children("/view", include_data=True)[0] == ["child"]
        assert view.get_children_async("/view").get(timeout=10.0) == ["child"]
        assert view.exists_async("/view").get(timeout=10.0) == view.exists("/view")
        assert view.get_acls_async("/view").get(timeout=10.0) == view.get_acls("/view")
        assert view.leader == client.leader  # and all else is the client's
        with pytest.raises(NoNodeError):
            view.get("/view/none")
        with pytest.raises(NoNodeError):
            view.get_async("/view/none").get(timeout=10.0)


def test_observers_serve_reads_and_never_lead(start_zookeeper: Starter, connect: Connector) -> None:
    servers = start_zookeeper(servers=3, observers=1)
    client = connect(servers.hosts, timeout=20.0)
    assert client.leader == servers.leader().endpoint
    client.create("/node", b"value")
    wait_for_sessions(client)
    observer: ZooKeeperServer = servers.observers[0]
    before = observer.srvr().received
    for _ in range(80):
        assert client.get("/node")[0] == b"value"
    assert observer.srvr().received - before >= 8


@both_kinds
def test_reads_go_on_when_their_server_dies(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    client = connect(zookeeper.hosts)
    client.create("/node", b"value")
    wait_for_sessions(client)
    results = [client.get_async("/node") for _ in range(300)]
    zookeeper.followers[0].kill()
    results += [client.get_async("/node") for _ in range(300)]
    assert {result.get(timeout=20.0)[0] for result in results} == {b"value"}
    for _ in range(100):
        assert client.get("/node")[0] == b"value"


def test_reads_in_flight_leave_a_server_that_hangs(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """Sync and async, long before the session would time out; and stopping waits for nobody."""
    client = connect(zookeeper.hosts, timeout=20.0)
    client.create("/node", b"value")
    wait_for_sessions(client)
    hung = zookeeper.followers[0]
    hung.pause()
    began = time.monotonic()
    results = [client.get_async("/node") for _ in range(60)]
    for _ in range(6):
        assert client.get("/node")[0] == b"value"
    assert {result.get(timeout=15.0)[0] for result in results} == {b"value"}
    in_reads = time.monotonic() - began
    began = time.monotonic()
    client.stop()
    client.close()
    in_stop = time.monotonic() - began
    assert in_reads < 6.0, "they waited for the session's time-out"
    assert in_stop < 5.0
    assert threading.active_count() < 40


def test_reads_outlast_the_loss_of_the_quorum(
    fresh_zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    """Nobody can answer for a moment: reads wait for it, and none is left in flight."""
    client = connect(fresh_zookeeper.hosts, timeout=20.0)
    client.create("/node", b"value")
    wait_for_sessions(client)
    results = [client.get_async("/node") for _ in range(300)]
    dead = fresh_zookeeper.followers
    for server in dead:
        server.kill()
    results += [client.get_async("/node") for _ in range(100)]
    for server in dead:
        server.restart(wait=False)
    outcomes: Counter[object] = Counter()
    for result in results:
        try:
            outcomes[result.get(timeout=20.0)[0]] += 1
        except ConnectionLoss:
            outcomes["lost"] += 1
    assert outcomes[b"value"] >= 300, outcomes
    assert set(outcomes) <= {b"value", "lost"}
    assert all(stats.in_flight == 0 for stats in client.endpoint_stats().values())


@both_kinds
def test_a_stopped_client_answers_nothing(zookeeper: ZooKeeperServers, connect: Connector) -> None:
    client = connect(zookeeper.hosts)
    wait_for_sessions(client)
    client.stop()
    with pytest.raises(ConnectionClosedError):
        client.get("/")
    with pytest.raises(ConnectionClosedError):
        client.get_async("/").get(timeout=10.0)
    client.start()
    wait_for_sessions(client)
    client.restart()
    wait_for_sessions(client)
    assert client.get_children("/") == ["zookeeper"]
