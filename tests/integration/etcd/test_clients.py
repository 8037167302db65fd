"""What people do with etcd3 and aetcd, over all members: one suite for every library."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator

import grpc
import pytest

from bench.servers.etcd import EtcdServers

from .libraries import ALL, ETCD3, Library, imported, running_loop

pytestmark = pytest.mark.integration

TOKEN_TTL = 3


@pytest.fixture(scope="module", params=ALL)
def _library(request: pytest.FixtureRequest) -> Iterator[Library]:
    name = request.param
    if name == "aetcd":
        with running_loop() as loop:
            yield Library(name, loop)
    else:
        with imported(name):
            yield Library(name, None)


@pytest.fixture
def library(_library: Library) -> Iterator[Library]:
    with _library.opened:
        yield _library


@pytest.fixture(scope="module")
def auth_etcd() -> Iterator[EtcdServers]:
    with EtcdServers(members=3, password="secret", auth_token_ttl=TOKEN_TTL) as servers:
        yield servers


@pytest.fixture(scope="module")
def jwt_etcd() -> Iterator[EtcdServers]:
    with EtcdServers(members=3, password="secret", auth_token="jwt") as servers:
        yield servers


@pytest.fixture(scope="module")
def tls_etcd() -> Iterator[EtcdServers]:
    with EtcdServers(members=3, tls=True) as servers:
        yield servers


@pytest.fixture(scope="module")
def ipv6_etcd() -> Iterator[EtcdServers]:
    with EtcdServers(members=1, host="::1") as servers:
        yield servers


@pytest.fixture
def dead() -> Iterator[str]:
    """An address that refuses connections."""
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        yield f"127.0.0.1:{bound.getsockname()[1]}"


# -- ordinary use ---------------------------------------------------------------------------


def test_put_get_and_delete(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    assert client.get("key") is None
    client.put("key", "value")
    for _ in range(12):  # of every member
        assert client.get("key") == "value"
    assert client.get("key", serializable=True) in ("value", None)
    assert client.run(client.raw.delete(b"key"))
    assert client.get("key") is None
    assert client.raw.leader in etcd.endpoints
    assert client.raw.leader == etcd.leader().endpoint
    assert client.raw.leader_term >= 2
    picks = {name: stats.picks for name, stats in client.raw.endpoint_stats().items()}
    assert set(picks) == set(etcd.endpoints)
    assert min(picks.values()) >= 3
    assert client.raw.load_balancer.strategy.value == "hybrid"


def test_prefixes_and_ranges(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    pairs = [(f"range/{number}", str(number)) for number in range(5)]
    for key, value in pairs:
        client.put(key, value)
    client.put("other", "x")
    for _ in range(3):
        assert client.prefix("range/") == pairs
    assert client.range("range/1", "range/3") == pairs[1:3]
    assert client.prefix("range/", sort_order="descend", sort_target="key") == pairs[::-1]
    assert client.run(client.raw.delete_prefix(b"range/")).deleted == 5
    assert client.prefix("range/") == []


def test_transactions_and_compare_and_swap(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    client.put("key", "a")
    txn = client.raw.transactions
    done, _ = client.transact(
        [txn.value(b"key") == b"a", txn.version(b"key") > 0],
        [txn.put(b"key", b"b"), txn.get(b"key")],
        [txn.delete(b"key")],
    )
    assert done
    assert client.get("key") == "b"
    done, responses = client.transact([txn.value(b"key") == b"a"], [], [txn.get(b"key")])
    assert not done
    assert responses[0][0][0] == b"b"
    assert client.swap("key", "b", "c")
    assert not client.swap("key", "b", "d")
    assert client.get("key") == "c"


def test_leases(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    lease = client.run(client.raw.lease(30))
    client.put("key", "value", lease=lease)
    assert client.refresh(lease) == 30
    assert 0 < client.remaining(lease) <= 30
    client.run(lease.revoke())
    assert client.get("key") is None


def test_watches(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    following, cancel = client.watch("key")
    other, cancel_other = client.watch("other")
    for number in range(20):
        client.put("key", str(number))
    client.put("other", "x")
    assert [following() for _ in range(20)] == [str(number) for number in range(20)]
    assert other() == "x"
    cancel()
    cancel_other()


@pytest.mark.parametrize("_library", ETCD3, indirect=True)
def test_watches_with_a_callback(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    seen: list[bytes] = []
    is_done = threading.Event()

    def callback(response: object) -> None:
        seen.extend(event.value for event in response.events)  # type: ignore[attr-defined]
        if len(seen) == 10:
            is_done.set()

    watch = client.raw.add_watch_callback("key", callback)
    for number in range(10):
        client.put("key", str(number))
    assert is_done.wait(10)
    client.raw.cancel_watch(watch)
    assert seen == [b"%d" % number for number in range(10)]


def test_locks(library: Library, etcd: EtcdServers) -> None:
    first, second = library.connect(etcd.endpoints), library.connect(etcd.endpoints)
    lock = first.lock("lock", 30)
    assert first.run(lock.acquire())
    assert first.run(lock.is_acquired())
    other = second.lock("lock", 30)
    if library.name != "etcd3":  # which cannot wait with today's tenacity
        assert not second.run(other.acquire(timeout=1))
    if library.is_asyncio:
        first.run(lock.refresh())
    else:
        lock.refresh()
    assert first.run(lock.release())
    assert second.run(other.acquire(timeout=5))
    assert second.run(other.release())


def test_status_and_members(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    for _ in range(3):
        status = client.run(client.raw.status())
        assert status.leader.id == etcd.leader().member_id
    members = client.members()
    assert {member.id for member in members} == {member.member_id for member in etcd.members}
    assert {url for member in members for url in member.client_urls} == {
        member.client_url for member in etcd.members
    }


def test_compaction(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    for number in range(5):
        client.put("key", str(number))
    revision = etcd.leader().status().revision
    client.run(client.raw.compact(revision))
    assert client.get("key") == "4"
    with pytest.raises(library.error("RevisionCompactedError")):
        client.watch("key", start_revision=1)[0]()


@pytest.mark.parametrize(
    "strategy", ["round_robin", "latency_based", "boltzmann", "random_replica"]
)
def test_every_strategy(library: Library, etcd: EtcdServers, strategy: str) -> None:
    client = library.connect(etcd.endpoints, strategy=strategy)
    for number in range(20):
        client.put("key", str(number))
        assert client.get("key") == str(number)
    assert client.raw.load_balancer.strategy.value == strategy


def test_closing_ends_the_channel(library: Library, etcd: EtcdServers) -> None:
    client = library.connect(etcd.endpoints)
    following, _ = client.watch("key")
    client.put("key", "value")
    assert following() == "value"
    channel = client.raw.channel
    client.close()
    assert channel.is_closed
    if not library.is_asyncio:
        with pytest.raises(ValueError, match="closed channel"):
            client.get("key")
    else:
        assert client.get("key") == "value"  # as aetcd has it, it connects again


# -- addresses, time-outs -------------------------------------------------------------------


def test_a_dead_first_endpoint_is_passed_over(
    library: Library, etcd: EtcdServers, dead: str
) -> None:
    """https://github.com/etcd-io/etcd/issues/8559, 11176 and 9949."""
    client = library.connect([dead, *etcd.endpoints])
    for number in range(10):
        client.put("key", str(number))
        assert client.get("key") == str(number)
    following, cancel = client.watch("key")
    client.put("key", "seen")
    assert following() == "seen"
    cancel()


def test_a_cluster_that_is_not_there(library: Library, dead: str) -> None:
    """Connecting is no error; each call is one, within its time-out."""
    client = library.connect([dead], timeout=1.0)
    started = time.monotonic()
    with pytest.raises(
        (library.error("ConnectionFailedError"), library.error("ConnectionTimeoutError"))
    ):
        client.get("key")
    assert time.monotonic() - started < 10.0


def test_members_that_start_later_are_used(library: Library, etcd: EtcdServers) -> None:
    late = etcd.followers[0]
    late.kill()
    client = library.connect(etcd.endpoints)
    for number in range(10):
        client.put("key", str(number))
        assert client.get("key") == str(number)
    late.restart()
    deadline = time.monotonic() + 20
    while not client.raw.endpoint_stats()[late.endpoint].successes:
        assert client.get("key") == "9"
        assert time.monotonic() < deadline


def test_time_outs_are_the_librarys_own(library: Library) -> None:
    """A server that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        client = library.connect([f"127.0.0.1:{silent.getsockname()[1]}"], timeout=0.5)
        calls: list[Callable[[], object]] = [
            lambda: client.get("key"),
            lambda: client.put("key", "value"),
        ]
        for call in calls:
            with pytest.raises(
                (library.error("ConnectionTimeoutError"), library.error("ConnectionFailedError"))
            ):
                call()


@pytest.mark.parametrize("form", ["{}", "http://{}", "http://{}/", "dns:///{}"])
def test_one_member_on_ipv6(library: Library, ipv6_etcd: EtcdServers, form: str) -> None:
    client = library.connect([form.format(ipv6_etcd.endpoints[0])])
    client.put("key", form)
    assert client.get("key") == form
    assert list(client.raw.endpoint_stats()) == ipv6_etcd.endpoints


# -- users ----------------------------------------------------------------------------------


def test_users_over_plain_text(library: Library, auth_etcd: EtcdServers) -> None:
    """https://github.com/kragniz/python-etcd3/issues/282."""
    client = library.connect(auth_etcd.endpoints, user="root", password="secret")
    for number in range(10):
        client.put("key", str(number))
        assert client.get("key") == str(number)


def test_no_call_fails_when_tokens_expire(library: Library, auth_etcd: EtcdServers) -> None:
    """Tokens expire on each member by themselves; locks, leases and watches need them, too.

    python-etcd3 580, 1315 and 2301, etcd 13413 and 12615.
    """
    client = library.connect(
        auth_etcd.endpoints, user="root", password="secret", resume_watches=True
    )
    lock = client.lock("lock", 60)
    assert client.run(lock.acquire())
    lease = client.run(client.raw.lease(60))
    following, cancel = client.watch("key")
    client.put("key", "before")
    assert following() == "before"
    other = library.connect(auth_etcd.endpoints, user="root", password="secret")
    other.put("key", "other")
    assert following() == "other"
    time.sleep(1.5 * TOKEN_TTL)
    assert client.run(lock.release())
    assert client.refresh(lease) == 60
    later, cancel_later = other.watch("key")
    for number in range(12):
        client.put("key", str(number))
        assert client.get("key") == str(number)
    for watch in (following, later):
        assert [watch() for _ in range(12)] == [str(number) for number in range(12)]
    further, cancel_further = client.watch("further")  # on the stream that there is
    client.put("further", "seen")
    client.put("key", "seen too")
    assert further() == "seen"
    assert following() == "seen too"
    cancel()
    cancel_later()
    cancel_further()
    client.run(lease.revoke())
    assert len(client.members()) == 3


def test_changes_of_users_make_jwt_invalid(library: Library, jwt_etcd: EtcdServers) -> None:
    """https://github.com/api7/aisix/issues/1136."""
    client = library.connect(jwt_etcd.endpoints, user="root", password="secret")
    for round_number in range(2):
        for number in range(6):
            client.put("key", str(number))
            assert client.get("key") == str(number)
        name = f"{library.name}-{round_number}"
        jwt_etcd.leader().call("auth/user/add", {"name": name, "password": "other"})


def test_wrong_credentials(
    library: Library, auth_etcd: EtcdServers, caplog: pytest.LogCaptureFixture
) -> None:
    client = library.connect(auth_etcd.endpoints, user="root", password="mistaken")
    expected = library.error("InvalidArgumentError") if library.is_asyncio else grpc.RpcError
    for _ in range(2):
        with pytest.raises(expected, match="authentication failed") as raised:
            client.get("key")
        assert "mistaken" not in str(raised.value)
    assert "mistaken" not in caplog.text


def test_no_credentials(library: Library, auth_etcd: EtcdServers) -> None:
    client = library.connect(auth_etcd.endpoints)
    expected = library.error("InvalidArgumentError") if library.is_asyncio else grpc.RpcError
    with pytest.raises(expected, match="user name is empty"):
        client.get("key")


# -- TLS ------------------------------------------------------------------------------------


def test_each_member_is_checked_for_its_own_name(library: Library, tls_etcd: EtcdServers) -> None:
    """https://github.com/etcd-io/etcd/issues/11180 and 5871."""
    endpoints = [f"https://{endpoint}" for endpoint in tls_etcd.endpoints]
    client = library.connect(endpoints, ca_cert=tls_etcd.authority)
    client.put("key", "value")
    for _ in range(12):
        assert client.get("key") == "value"
    for stats in client.raw.endpoint_stats().values():
        assert stats.successes
        assert not stats.failures


def test_a_member_of_another_name_is_refused(library: Library, tls_etcd: EtcdServers) -> None:
    first, *others = tls_etcd.endpoints
    alias = f"localhost:{first.rpartition(':')[2]}"
    client = library.connect([alias, *others], ca_cert=tls_etcd.authority)
    client.put("key", "value")
    for _ in range(12):
        assert client.get("key") == "value"
    assert not client.raw.endpoint_stats()[alias].successes
    alone = library.connect([alias], ca_cert=tls_etcd.authority, timeout=1.0)
    with pytest.raises(
        (library.error("ConnectionFailedError"), library.error("ConnectionTimeoutError"))
    ):
        alone.get("key")
