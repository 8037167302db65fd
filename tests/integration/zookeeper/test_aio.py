"""What is special about the client for event loops: tasks, cancellation, loops, callbacks."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from typing import Any, Protocol

import pytest
import pytest_asyncio
from kazoo.exceptions import (
    AuthFailedError,
    CancelledError,
    ConnectionClosedError,
    ConnectionLoss,
    LockTimeout,
    NoNodeError,
    RolledBackError,
)
from kazoo.handlers.threading import KazooTimeoutError
from kazoo.protocol.states import KazooState, WatchedEvent
from kazoo.retry import KazooRetry, RetryFailedError
from kazoo.security import make_digest_acl

from bench.servers.zookeeper import ZooKeeperServers
from lb_strategies_zookeeper import AsyncKazooClient
from tests.integration.zookeeper.conftest import PlainConnector, Starter

pytestmark = pytest.mark.integration


class AsyncConnector(Protocol):
    async def __call__(self, hosts: str, **options: Any) -> AsyncKazooClient: ...


@pytest_asyncio.fixture
async def connect_async() -> AsyncIterator[AsyncConnector]:
    """Start clients, which are ended, and must leave no thread behind."""
    before = set(threading.enumerate())
    clients: list[AsyncKazooClient] = []

    async def start(hosts: str, **options: Any) -> AsyncKazooClient:
        client = AsyncKazooClient(hosts, **{"timeout": 20.0, **options})
        clients.append(client)
        await client.start(timeout=20.0)
        return client

    yield start
    for client in clients:
        await client.stop()
        await client.close()

    def left() -> list[threading.Thread]:
        others = (t for t in threading.enumerate() if not t.name.startswith("asyncio_"))
        return [thread for thread in others if thread not in before]

    deadline = time.monotonic() + 10.0
    while left():
        assert time.monotonic() < deadline, left()
        await asyncio.sleep(0.01)


async def until(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + 20.0
    while not condition():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.005)


async def wait_for_sessions(client: AsyncKazooClient) -> None:
    """Wait until every follower has been read from."""
    deadline = time.monotonic() + 20.0
    while not all(s.picks for m, s in client.endpoint_stats().items() if m != client.leader):
        assert time.monotonic() < deadline
        await client.exists("/")


def in_flight(client: AsyncKazooClient) -> int:
    return sum(stats.in_flight for stats in client.endpoint_stats().values())


async def test_every_operation(zookeeper: ZooKeeperServers, connect_async: AsyncConnector) -> None:
    client = await connect_async(zookeeper.hosts)
    assert await client.create("/node", b"0") == "/node"
    path, stat = await client.create("/a/b/n-", sequence=True, makepath=True, include_data=True)
    assert path.startswith("/a/b/n-0")
    assert stat.version == 0
    assert await client.ensure_path("/a/b") is True
    assert await client.ensure_path("/x/y") == "/x/y"
    assert (await client.set("/node", b"1", version=0)).version == 1
    assert (await client.get("/node"))[0] == b"1"
    assert sorted(await client.get_children("/")) == ["a", "node", "x", "zookeeper"]
    assert (await client.get_children("/a", include_data=True))[0] == ["b"]
    assert (await client.exists("/node")) is not None
    assert await client.exists("/none") is None
    assert await client.sync("/node") == "/node"
    acl = [make_digest_acl("somebody", "secret", all=True)]
    await client.set_acls("/node", acl)
    assert await client.add_auth("digest", "somebody:secret")
    assert (await client.get_acls("/node"))[0] == acl
    transaction = client.transaction()
    transaction.check("/node", version=1)
    transaction.set_data("/node", b"2")
    transaction.create("/made")
    checked, set_, made = await transaction.commit()
    for consistency in ("strong", "relaxed"):
        view = client.with_options(read_consistency=consistency)
        assert await view.exists("/none") is None
        assert (await view.get_acls("/node"))[0] == acl
        assert await view.get_children("/a") == ["b"]
        assert (await view.get("/node"))[0]
        assert view.connected
    assert (checked, set_.version, made) == (True, 2, "/made")  # type: ignore[attr-defined]
    async with client.transaction() as transaction:
        transaction.delete("/made")
        transaction.delete("/none")
    assert await client.exists("/made") is not None
    results = await _committed(client)
    assert isinstance(results[0], RolledBackError)
    with pytest.raises(TypeError, match="async with"), client.transaction():
        pass
    assert await client.delete("/node", version=2)
    assert await client.delete("/a", recursive=True)
    assert await client.delete("/a", recursive=True)
    with pytest.raises(NoNodeError):
        await client.delete("/a")
    assert await client.command(b"srvr")
    assert client.unchroot("/a") == "/a"
    assert client.connected
    assert client.state == KazooState.CONNECTED
    assert client.client_state == "CONNECTED"
    assert client.client_id is not None
    assert len(client.hosts) == 3
    assert client.chroot == ""
    assert client.default_acl is None
    for wrong in (b"/node", None, 3):
        with pytest.raises(TypeError):
            await client.get(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            await client.create(wrong)  # type: ignore[call-overload]
    with pytest.raises(TypeError):
        await client.delete("/node", recursive=1)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        await client.get("/node", watch=1)  # type: ignore[arg-type]


async def test_members_are_changed(start_zookeeper: Starter, connect_async: AsyncConnector) -> None:
    servers = start_zookeeper(options={"reconfigEnabled": "true", "skipACL": "yes"})
    client = await connect_async(servers.hosts)
    leaving = servers.followers[0].server_id
    configuration, _ = await client.reconfig(None, str(leaving), None)
    assert configuration.count(b"server.") == 2
    assert f"server.{leaving}=".encode() not in configuration


async def _committed(client: AsyncKazooClient) -> list[object]:
    transaction = client.transaction()
    transaction.delete("/made")
    transaction.delete("/none")
    return await transaction.commit()


async def test_reads_are_spread_while_other_tasks_write(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    """All tasks share a thread; what one waits for must not bind the reads of another."""
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"0")
    await wait_for_sessions(client)
    before = {member: stats.picks for member, stats in client.endpoint_stats().items()}
    done = asyncio.Event()

    async def write() -> None:
        while not done.is_set():
            await client.set("/node", b"x")

    async def read() -> None:
        for _ in range(40):
            await client.get("/node")

    writers = [asyncio.create_task(write()) for _ in range(4)]
    await asyncio.gather(*(read() for _ in range(10)))
    done.set()
    await asyncio.gather(*writers)
    picks = {m: s.picks - before[m] for m, s in client.endpoint_stats().items()}
    assert sum(picks.values()) >= 400, picks
    assert in_flight(client) == 0


async def test_a_task_reads_what_it_has_written(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    await wait_for_sessions(client)

    async def work(number: int) -> None:
        await client.create(f"/node{number}", b"0")
        for count in range(1, 30):
            await client.set(f"/node{number}", str(count).encode())
            assert (await client.get(f"/node{number}"))[0] == str(count).encode()

    await asyncio.gather(*(work(number) for number in range(10)))


async def test_a_cancelled_task_leaves_nothing_in_flight(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"0")
    await wait_for_sessions(client)
    for delay in (0.0, 0.0002, 0.001) * 10:
        tasks: list[asyncio.Task[Any]] = []
        tasks += [asyncio.create_task(client.get("/node")) for _ in range(5)]
        tasks += [asyncio.create_task(client.create("/n-", sequence=True)) for _ in range(5)]
        await asyncio.sleep(delay)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            assert not isinstance(outcome, Exception), outcome
    await until(lambda: in_flight(client) == 0)
    await until(lambda: not client._waiters)
    assert (await client.get("/node"))[0] == b"0"
    assert [r for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_a_read_after_a_cancelled_write_is_answered_after_it(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"0")
    await wait_for_sessions(client)
    cancelled = 0
    for count in range(1, 101):
        task = asyncio.create_task(client.set("/node", str(count).encode()))
        await asyncio.sleep(0)
        task.cancel()
        cancelled += (await asyncio.gather(task, return_exceptions=True))[0].__class__ is (
            asyncio.CancelledError
        )
        assert (await client.get("/node"))[0] == str(count).encode()
    assert cancelled == 100


async def test_a_time_out_of_the_callers_is_kept(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"0")
    for server in zookeeper.servers:
        server.pause()
    began = time.monotonic()
    for operation in (client.get("/node"), client.set("/node", b"1"), client.Lock("/l").acquire()):
        with pytest.raises((TimeoutError, ConnectionLoss)):
            await asyncio.wait_for(operation, 0.2)
    assert time.monotonic() - began < 5.0
    for server in zookeeper.servers:
        server.resume()
    await until(lambda: client.connected)
    assert await client.retry(client.exists, "/node")


@pytest.mark.parametrize("strategy", ["hybrid", None])
async def test_watches_call_functions_and_coroutines_in_the_loop(
    zookeeper: ZooKeeperServers,
    connect_async: AsyncConnector,
    caplog: pytest.LogCaptureFixture,
    strategy: str | None,
) -> None:
    client = await connect_async(zookeeper.hosts, strategy=strategy)
    await client.create("/node", b"0")
    told: list[tuple[str, WatchedEvent, object]] = []
    loop = asyncio.get_running_loop()

    def plain(event: WatchedEvent) -> None:
        assert asyncio.get_running_loop() is loop
        told.append(("plain", event, None))

    async def coroutine(event: WatchedEvent) -> None:
        told.append(("coroutine", event, (await client.get("/node"))[0]))

    def broken(event: WatchedEvent) -> None:
        raise ValueError("of a function")

    async def broken_coroutine(event: WatchedEvent) -> None:
        raise ValueError("of a coroutine")

    for _ in range(2):  # the second time is the same watch
        await client.get("/node", plain)
        await client.get("/node", watch=coroutine)
        await client.get("/node", broken)
        await client.exists("/node", broken_coroutine)
    await client.set("/node", b"1")
    await until(lambda: len(told) == 2)
    await client.get("/node", plain)
    await until(lambda: len(caplog.records) >= 2)
    assert sorted(kind for kind, _, _ in told) == ["coroutine", "plain"]
    assert {event.path for _, event, _ in told} == {"/node"}
    assert [value for _, _, value in told if value] == [b"1"]
    assert sum("a callback failed" in message for message in caplog.messages) == 2
    await client.get_children("/", plain)
    await client.create("/other")
    await until(lambda: len(told) == 3)


async def test_listeners_are_told_in_the_loop(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"value")
    states: list[str] = []
    once: list[str] = []
    coroutine_once: list[str] = []
    found: list[bytes] = []

    async def read(state: KazooState) -> None:
        if state == KazooState.CONNECTED:
            found.append((await client.get("/node"))[0])

    def only_once(state: KazooState) -> bool:
        once.append(state)
        return True

    async def also_once(state: KazooState) -> bool:
        coroutine_once.append(state)
        return True

    def never(state: KazooState) -> None:
        raise AssertionError("it was removed")

    for listener in (states.append, read, only_once, also_once, never):
        client.add_listener(listener)
    client.remove_listener(never)
    zookeeper.leader().kill()
    await until(lambda: found == [b"value"])
    await client.stop()
    # More than once, if the next leader is not serving yet when the session comes to it.
    assert states == ["SUSPENDED", "CONNECTED"] * (len(states) // 2) + ["LOST"]
    assert once == coroutine_once == ["SUSPENDED"]


async def test_two_loops_use_one_client(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"0")

    async def work(number: int) -> tuple[int, int]:
        loop = asyncio.get_running_loop()
        told: list[bool] = []
        fired = asyncio.Event()

        def watch(_: WatchedEvent) -> None:
            told.append(asyncio.get_running_loop() is loop)
            fired.set()

        for count in range(50):
            path = await client.create(f"/{number}-", sequence=True)
            await client.exists(path, watch)
            async with asyncio.TaskGroup() as group:
                group.create_task(client.get("/node"))
                group.create_task(client.set(path, str(count).encode()))
            await asyncio.wait_for(fired.wait(), 20.0)
            fired.clear()
            assert (await client.get(path))[0] == str(count).encode()
        async with client.Lock("/lock", str(number)):
            pass
        return len(told), sum(told)

    other = asyncio.create_task(asyncio.to_thread(lambda: asyncio.run(work(1))))
    assert await work(2) == (50, 50)
    assert await other == (50, 50)


def test_a_loop_that_was_closed_is_told_nothing(
    zookeeper: ZooKeeperServers, plain: PlainConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """Nor does it keep the next one from using the client."""
    other = plain(zookeeper.hosts)
    client = AsyncKazooClient(zookeeper.hosts, timeout=20.0)
    told: list[object] = []
    leader = zookeeper.leader()

    async def first() -> None:
        await client.start()
        await client.create("/node", b"0")
        await client.get("/node", told.append)
        client.add_listener(told.append)
        leader.pause()
        tasks: list[asyncio.Task[Any]] = [asyncio.create_task(client.set("/node", b"1"))]
        tasks += [asyncio.create_task(client.sync("/"))]
        await asyncio.sleep(0)
        assert not any(task.done() for task in tasks)  # the end of the loop cancels them

    async def second() -> None:
        leader.resume()
        await until(lambda: other.sync("/node") and other.get("/node")[0] == b"1")
        assert (await client.get("/node"))[0] == b"1"
        await client.set("/node", b"2")
        other.set("/node", b"3")
        await client.stop()
        await client.close()

    asyncio.run(first())
    asyncio.run(second())
    assert told == []
    assert in_flight(client) == 0
    assert [r.getMessage() for r in caplog.records if r.levelno >= logging.ERROR] == []


async def test_stopping_answers_whatever_is_asked(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector, caplog: pytest.LogCaptureFixture
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.create("/node", b"0")
    await wait_for_sessions(client)
    for delay in (0.0, 0.002, 0.004):
        tasks: list[asyncio.Task[Any]] = []
        for _ in range(100):
            tasks.append(asyncio.create_task(client.get("/node")))
            tasks.append(asyncio.create_task(client.create("/n-", sequence=True, makepath=True)))
        await asyncio.sleep(delay)
        await client.stop()
        tasks += [asyncio.create_task(client.get("/node")), asyncio.create_task(client.sync("/"))]
        _, pending = await asyncio.wait(tasks, timeout=20.0)
        assert not pending
        errors = [task.exception() for task in tasks]
        assert isinstance(errors[-1], ConnectionClosedError)
        assert isinstance(errors[-2], ConnectionClosedError)
        assert in_flight(client) == 0
        await client.start()
        await wait_for_sessions(client)
    await client.restart()
    assert (await client.get("/node"))[0] == b"0"
    assert [message for message in caplog.messages if "reason=errors" in message] == []


async def test_nobody_to_connect_to(zookeeper: ZooKeeperServers) -> None:
    for server in zookeeper.servers:
        server.kill()
    before = threading.active_count()
    client = AsyncKazooClient(zookeeper.hosts)
    with pytest.raises(KazooTimeoutError):
        await client.start(timeout=0.6)
    task = asyncio.create_task(client.start())
    await asyncio.sleep(0.2)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    with pytest.raises(ConnectionClosedError):
        await client.get("/")
    await until(lambda: threading.active_count() <= before)


async def test_a_context_starts_and_ends_the_client(
    zookeeper: ZooKeeperServers, plain: PlainConnector
) -> None:
    stock = plain(zookeeper.hosts)
    client = AsyncKazooClient(f"{zookeeper.hosts}/app")
    with pytest.warns(UserWarning, match="chroot"):
        await client.__aenter__()
    await client.ensure_path("/")
    await client.__aexit__(None, None, None)
    async with client as entered:
        assert entered is client
        await client.create("/ephemeral", ephemeral=True)
        assert client.chroot == "/app"
        stock.sync("/")  # its server may be a follower that is behind
        assert stock.exists("/app/ephemeral")
    stock.sync("/")
    assert not stock.exists("/app/ephemeral")
    assert not client.client_id
    with pytest.raises(ConnectionClosedError):
        await client.get("/")


async def test_other_servers_and_wrong_credentials(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    two = [zookeeper.leader().endpoint, zookeeper.followers[0].endpoint]
    client = await connect_async(",".join(two))
    await client.set_hosts(zookeeper.hosts)
    await wait_for_sessions(client)
    assert sorted(map(str, client.endpoint_stats())) == sorted(zookeeper.endpoints)
    assert client.leader == client.session_endpoint == zookeeper.leader().endpoint
    assert client.leader_term == zookeeper.leader().srvr().epoch
    assert client.load_balancer is client.sync_client.load_balancer
    with pytest.raises(AuthFailedError):
        await client.add_auth("no-such-scheme", "x")


async def test_retries_follow_the_rules_of_kazoos() -> None:
    client = AsyncKazooClient(
        "127.0.0.1:1", command_retry=KazooRetry(max_tries=3, delay=0.001, max_jitter=0.0)
    )
    attempts: list[int] = []

    async def fail(error: Exception, times: int) -> str:
        attempts.append(1)
        if len(attempts) <= times:
            raise error
        return "done"

    assert await client.retry(fail, ConnectionLoss(), times=2) == "done"
    attempts.clear()
    with pytest.raises(RetryFailedError):
        await client.retry(fail, ConnectionLoss(), times=3)
    for error in (ConnectionClosedError(), NoNodeError()):
        attempts.clear()
        with pytest.raises(type(error)):
            await client.retry(fail, error, times=1)
        assert len(attempts) == 1


# -- locks ------------------------------------------------------------------------------------


async def test_a_lock_is_held_by_one_task_at_a_time_of_any_client(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector, plain: PlainConnector
) -> None:
    """Also among those that share the object, and beside kazoo's own locks."""
    one, two = await connect_async(zookeeper.hosts), await connect_async(zookeeper.hosts)
    threads = plain(zookeeper.hosts)
    shared = one.Lock("/lock", "shared")
    holders: list[str] = []
    most: list[int] = []

    async def work(lock: Any, name: str) -> None:
        for _ in range(8):
            async with lock:
                assert lock.is_acquired
                holders.append(name)
                await asyncio.sleep(0)
                most.append(len(holders))
                holders.remove(name)

    def work_in_thread() -> None:
        lock = threads.Lock("/lock", "kazoo")
        for _ in range(8):
            with lock:
                holders.append("kazoo")
                most.append(len(holders))
                holders.remove("kazoo")

    await asyncio.gather(
        work(shared, "a"),
        work(shared, "b"),
        work(one.Lock("/lock"), "c"),
        work(two.Lock("/lock"), "d"),
        asyncio.to_thread(work_in_thread),
    )
    assert most == [1] * 40
    assert await two.get_children("/lock") == []


async def test_who_waits_for_a_lock(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    one, two = await connect_async(zookeeper.hosts), await connect_async(zookeeper.hosts)
    held, wanted = one.Lock("/lock", "one"), two.Lock("/lock", "two")
    assert await held.acquire()
    assert not await held.acquire(blocking=False)
    assert not await wanted.acquire(blocking=False)
    with pytest.raises(LockTimeout):
        await wanted.acquire(timeout=0.1)
    waiting = asyncio.create_task(wanted.acquire())
    deadline = time.monotonic() + 20.0
    while await one.Lock("/lock").contenders() != ["one", "two"]:
        assert time.monotonic() < deadline
    wanted.cancel()
    with pytest.raises(CancelledError):
        await waiting
    assert not wanted.is_acquired
    assert not await wanted.release()
    waiting = asyncio.create_task(wanted.acquire())
    while await one.Lock("/lock").contenders() != ["one", "two"]:
        assert time.monotonic() < deadline
    assert await held.release()
    assert await waiting
    assert await one.Lock("/lock").contenders() == ["two"]


async def test_a_cancelled_contender_keeps_nobody_waiting(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    await client.ensure_path("/lock")
    for step in range(30):
        tasks = [asyncio.create_task(client.Lock("/lock").acquire()) for _ in range(3)]
        await asyncio.sleep(step * 0.0003)
        for task in tasks:
            task.cancel()
        outcomes = await asyncio.gather(*tasks, return_exceptions=True)
        assert all(o is True or isinstance(o, asyncio.CancelledError) for o in outcomes)
        if True in outcomes:
            await client.delete("/lock", recursive=True)
            await client.ensure_path("/lock")
    lock = client.Lock("/lock")
    assert await lock.acquire(timeout=20.0)
    releasing = asyncio.create_task(lock.release())
    await asyncio.sleep(0)
    releasing.cancel()
    assert await client.Lock("/lock").acquire(timeout=20.0)


async def test_locks_for_reading_and_writing(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector, plain: PlainConnector
) -> None:
    client, threads = await connect_async(zookeeper.hosts), plain(zookeeper.hosts)
    async with client.ReadLock("/shared"), client.ReadLock("/shared"):
        assert not await client.WriteLock("/shared").acquire(blocking=False)
        assert not threads.WriteLock("/shared").acquire(blocking=False)
    async with client.WriteLock("/shared"):
        assert not await client.ReadLock("/shared").acquire(blocking=False)
        assert not threads.ReadLock("/shared").acquire(blocking=False)


async def test_a_lock_outlives_the_loss_of_its_server_and_waiters_too(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    one, two = await connect_async(zookeeper.hosts), await connect_async(zookeeper.hosts)
    held, wanted = one.Lock("/lock", "one"), two.Lock("/lock", "two")
    assert await held.acquire()
    waiting = asyncio.create_task(wanted.acquire())
    await asyncio.sleep(0.1)
    zookeeper.leader().kill()
    await asyncio.sleep(0.1)
    assert not waiting.done()
    await held.release()
    assert await asyncio.wait_for(waiting, 20.0)
    assert await two.retry(two.Lock("/lock").contenders) == ["two"]


async def test_a_waiter_whose_client_is_stopped(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    one, two = await connect_async(zookeeper.hosts), await connect_async(zookeeper.hosts)
    assert await one.Lock("/lock").acquire()
    waiting = asyncio.create_task(two.Lock("/lock").acquire())
    await asyncio.sleep(0.1)
    await two.stop()
    with pytest.raises(ConnectionClosedError):
        await asyncio.wait_for(waiting, 20.0)


async def test_recipes_of_kazoos_in_threads(
    zookeeper: ZooKeeperServers, connect_async: AsyncConnector
) -> None:
    client = await connect_async(zookeeper.hosts)
    counter = await asyncio.to_thread(client.sync_client.Counter, "/counter")
    await asyncio.to_thread(counter.__add__, 3)
    assert await asyncio.to_thread(lambda: counter.value) == 3
