"""kazoo's recipes on our client: they work as before, and all that they do is on one session."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from kazoo.recipe.cache import TreeCache, TreeEvent
from kazoo.recipe.lock import Lock

from bench.servers.zookeeper import ZooKeeperServers
from lb_strategies_zookeeper import KazooClient
from tests.integration.zookeeper.conftest import Connector

pytestmark = pytest.mark.integration

Clients = tuple[KazooClient, KazooClient]


@pytest.fixture
def clients(zookeeper: ZooKeeperServers, connect: Connector) -> Iterator[Clients]:
    """Two clients, whose reads must not have left their own sessions at the end."""
    both = connect(zookeeper.hosts, timeout=20.0), connect(zookeeper.hosts, timeout=20.0)
    deadline = time.monotonic() + 20.0
    for client in both:
        while not client._routing.sessions.are_ready:  # type: ignore[union-attr]
            assert time.monotonic() < deadline
            time.sleep(0.01)
    yield both
    for client in both:
        assert sum(stats.picks for stats in client.endpoint_stats().values()) == 0


def run(*functions: Callable[[], object]) -> None:
    """Run functions in threads, and raise what one of them raises."""
    errors: list[BaseException] = []

    def call(function: Callable[[], object]) -> None:
        try:
            function()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=call, args=(function,)) for function in functions]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(40.0)
        assert not thread.is_alive()
    for error in errors:
        raise error


def wait_until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def test_a_lock_is_held_by_one_at_a_time(clients: Clients) -> None:
    holders: list[int] = []
    most: list[int] = []

    def work(client: KazooClient, number: int, lock: Any) -> None:
        for _ in range(10):
            with lock:
                holders.append(number)
                most.append(len(holders))
                holders.remove(number)

    one, two = clients
    run(
        lambda: work(one, 1, one.Lock("/lock", "one")),
        lambda: work(two, 2, two.Lock("/lock", "two")),
        lambda: work(two, 3, Lock(two, "/lock", "three")),  # not by the client's own attribute
    )
    assert most == [1] * 30
    assert one.Lock("/lock").contenders() == []


def test_locks_for_reading_and_writing(clients: Clients) -> None:
    one, two = clients
    with one.ReadLock("/shared"), two.ReadLock("/shared"):
        assert not one.WriteLock("/shared").acquire(blocking=False)
    with two.WriteLock("/shared"):
        assert not one.ReadLock("/shared").acquire(blocking=False)


def test_an_election_has_one_winner_after_the_other(clients: Clients) -> None:
    leaders: list[int] = []
    elections = [client.Election("/election", str(n)) for n, client in enumerate(clients)]
    run(*(partial(e.run, leaders.append, n) for n, e in enumerate(elections)))
    assert sorted(leaders) == [0, 1]


def test_a_semaphore_lets_so_many_in(clients: Clients) -> None:
    one, two = clients
    first, second = one.Semaphore("/semaphore", max_leases=2), two.Semaphore("/semaphore", "x", 2)
    third = one.Semaphore("/semaphore", max_leases=2)
    assert first.acquire()
    assert second.acquire()
    assert not third.acquire(blocking=False)
    first.release()
    assert third.acquire(timeout=10.0)
    assert len(third.lease_holders()) == 2


def test_queues_give_each_item_once(clients: Clients) -> None:
    one, two = clients
    queue = one.Queue("/queue")
    for item in range(20):
        queue.put(str(item).encode())
    assert len(two.Queue("/queue")) == 20
    taken: list[bytes] = []

    def take(client: KazooClient) -> None:
        own = client.Queue("/queue")
        while (item := own.get()) is not None:
            taken.append(item)

    run(lambda: take(one), lambda: take(two))
    assert sorted(taken, key=int) == [str(item).encode() for item in range(20)]

    locking = one.LockingQueue("/locking")
    locking.put_all([b"a", b"b"])
    other = two.LockingQueue("/locking")
    assert other.get(timeout=10.0) == b"a"
    assert other.holds_lock()
    assert other.consume()
    assert locking.get(timeout=10.0) == b"b"
    assert locking.consume()
    assert len(locking) == 0


def test_a_counter_loses_no_count(clients: Clients) -> None:
    def count(client: KazooClient) -> None:
        counter = client.Counter("/counter")
        for _ in range(15):
            counter += 1

    run(*(partial(count, client) for client in clients))
    assert clients[0].Counter("/counter").value == 30


def test_barriers_hold_everybody_back(clients: Clients) -> None:
    one, two = clients
    barrier = one.Barrier("/barrier")
    barrier.create()
    assert not two.Barrier("/barrier").wait(0.05)
    timer = threading.Timer(0.1, barrier.remove)
    timer.start()
    assert two.Barrier("/barrier").wait(10.0)
    timer.join()

    inside: list[int] = []

    def enter(client: KazooClient) -> None:
        double = client.DoubleBarrier("/double", 2)
        double.enter()
        inside.append(1)
        double.leave()

    run(*(partial(enter, client) for client in clients))
    assert inside == [1, 1]


def test_a_party_knows_who_is_there(clients: Clients) -> None:
    one, two = clients
    first, second = one.Party("/party", "one"), two.Party("/party", "two")
    first.join()
    second.join()
    assert sorted(first) == ["one", "two"]
    assert len(second) == 2
    second.leave()
    assert list(first) == ["one"]
    shallow = two.ShallowParty("/shallow", "three")
    shallow.join()
    assert list(one.ShallowParty("/shallow")) == ["three"]


def test_watches_see_every_state_they_should(clients: Clients) -> None:
    one, two = clients
    one.create("/data", b"0")
    one.create("/parent")
    data: list[bytes] = []
    children: list[list[str]] = []
    two.sync("/data")

    def see_data(value: bytes | None, stat: object) -> None:
        if value is not None:
            data.append(value)

    def see_children(names: list[str]) -> None:
        children.append(sorted(names))

    two.DataWatch("/data", see_data)
    two.ChildrenWatch("/parent", see_children)

    def has_seen(count: int) -> bool:
        return data[-1] == str(count).encode() and len(children[-1]) == count

    for count in range(1, 6):
        one.set("/data", str(count).encode())
        one.create(f"/parent/{count}")
        wait_until(partial(has_seen, count))
    assert data == [str(count).encode() for count in range(6)]


def test_a_tree_cache_follows_its_tree(clients: Clients) -> None:
    one, two = clients
    one.create("/tree/a", b"1", makepath=True)
    two.sync("/tree")
    cache = TreeCache(two, "/tree")
    ready = threading.Event()
    cache.listen(lambda event: ready.set() if event.event_type == TreeEvent.INITIALIZED else None)
    cache.start()
    assert ready.wait(20.0)
    assert cache.get_data("/tree/a").data == b"1"
    one.set("/tree/a", b"2")
    one.create("/tree/b", b"3")
    wait_until(lambda: cache.get_data("/tree/a").data == b"2")
    wait_until(lambda: cache.get_children("/tree") == frozenset("ab"))
    cache.close()


def test_a_lease_and_a_partition(clients: Clients) -> None:
    one, two = clients
    assert one.NonBlockingLease("/lease", timedelta(seconds=60))
    assert not two.NonBlockingLease("/lease", timedelta(seconds=60), identifier="other")
    parts: list[set[int]] = []

    def divide(client: KazooClient, name: str) -> None:
        own = client.SetPartitioner("/parts", set=range(4), identifier=name, time_boundary=0.2)
        deadline = time.monotonic() + 20.0
        while not (own.acquired and len(list(own)) == 2):
            assert time.monotonic() < deadline
            if own.release:
                own.release_set()
            elif own.acquired:
                time.sleep(0.01)
            else:
                own.wait_for_acquire(0.5)
        parts.append(set(own))
        wait_until(lambda: len(parts) == 2)
        own.finish()

    run(lambda: divide(one, "one"), lambda: divide(two, "two"))
    assert parts[0] | parts[1] == set(range(4))


def test_retries_of_a_recipe_stay_there_and_those_of_the_user_do_not(
    zookeeper: ZooKeeperServers, connect: Connector
) -> None:
    client = connect(zookeeper.hosts, timeout=20.0)
    wait_until(lambda: client._routing.sessions.are_ready)  # type: ignore[union-attr]
    client.Party("/party", "one").join()
    assert len(client.Party("/party")) == 1  # client.retry(client.get_children, ...)
    assert sum(stats.picks for stats in client.endpoint_stats().values()) == 0
    assert len(client.retry(client.get_children, "/party")) == 1
    assert sum(stats.picks for stats in client.endpoint_stats().values()) >= 1
