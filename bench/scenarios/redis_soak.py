"""Is every answer right and every error the store's own, whatever happens to the servers?

Two shards of one primary and two replicas; 16 threads with a synchronous client and 16 tasks with
an asyncio one, both `latency_based`, read, write, run pipelines and give up now and then. Every
5 s a fault begins, drawn by the seed: a server or a whole shard is paused, a replica is killed and
restarted, replies are delayed, a replica takes over, a slot moves while its keys are used.

Expected: every answer is a value that was written to that key (an older one may be: replicas lag);
every error is one that the store could not have avoided (``bench.soak.log`` says which are);
afterwards nothing is in flight and, new connections apart, Python holds no more memory than after
the warm-up. Memory is looked at four times on the way, so that growth with time can be told from
pools that fill up.
"""

from __future__ import annotations

import contextlib
import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import Any

from redis.asyncio.connection import AbstractConnection as AsyncConnection
from redis.cluster import RedisCluster
from redis.connection import AbstractConnection as SyncConnection
from redis.crc import key_slot

from bench.contenders import Mode, Target, named
from bench.load import AsyncioDriver, Driver
from bench.proxy import FaultProxy
from bench.record import Bar, ContenderResult, TextTable, bar, latency_curve, summarise
from bench.scenario import Outcome, Settings, Steps
from bench.servers.redis import RedisClusterServers
from bench.soak.faults import NODE_TIMEOUT, Faults
from bench.soak.history import History
from bench.soak.log import NO_FAULT
from bench.soak.users import OUTCOMES, Tally, User, use_tasks, use_threads

RUNS_BOTH = True

WORKERS = 16
TAGS = 40
KEYS = [f"{{soak{i % TAGS}}}:{i}" for i in range(5 * TAGS)]
SOCKET_TIMEOUT = 0.5
RETRIES = 1
"""Of redis-py itself, so few that they hide little."""
INTERVAL = 5.0
WARM_UP = 60.0
PARTS = 4
"""Looks at the memory on the way."""
CONNECTION_KB = 10.0
"""Python's part of one connection; pools grow to the most that were ever used at once."""
SLACK_KB = 1000.0
CONFIG = {
    # A replica that has just started is empty, and would say that no key exists.
    "replica-serve-stale-data": "no",
    "cluster-allow-replica-migration": "no",
}


def run(settings: Settings, steps: Steps, *, interval: float = INTERVAL) -> Outcome:
    """Measure; see the module's docstring."""
    seconds = settings.seconds or 600.0
    warm_up = min(WARM_UP, seconds / 4)
    slots = {key_slot(key.encode()): int(key_slot(key.encode()) >= 8192) for key in KEYS}
    history = History(KEYS, seed=settings.seed)
    tracemalloc.start()
    with ExitStack() as stack:
        servers = RedisClusterServers(
            primaries=2, replicas=2, node_timeout=NODE_TIMEOUT, config=CONFIG
        )
        stack.enter_context(servers)
        behind = [servers.replicas[0], servers.primaries[1]]
        proxies = [
            stack.enter_context(FaultProxy(node.host, node.port, seed=settings.seed + i))
            for i, node in enumerate(behind)
        ]
        target = Target(
            servers.host,
            servers.port,
            remap={
                (node.host, node.port): (proxy.host, proxy.port)
                for node, proxy in zip(behind, proxies, strict=True)
            },
            socket_timeout=SOCKET_TIMEOUT,
            retries=RETRIES,
        )
        _fill(servers, history)
        faults = Faults(servers, proxies, slots, seed=settings.seed)
        [contender] = named("latency_based")
        drivers: dict[Mode, Driver] = {}
        for mode in settings.modes:
            drivers[mode] = target.open(contender, mode)
            stack.callback(drivers[mode].close)
        users = _users(settings, history, faults)
        steps.expect(round(warm_up / interval) + round(seconds / interval))
        with _working(drivers, users):
            faults.run(warm_up, interval, lambda fault: steps.begin(f"warm-up: {fault}"))
        for user in (user for each in users.values() for user in each):
            user.tally = Tally()
        faults.log.begun.clear()
        tallies = {mode: Tally() for mode in users}
        memory = [_memory()]
        for _ in range(PARTS):
            with _working(drivers, users):
                faults.run(seconds / PARTS, interval, steps.begin)
            for mode, each in users.items():
                for user in each:
                    tallies[mode].add(user.tally)
                    user.tally = Tally()
            memory.append(_memory())
        growth = memory[-1][0] - memory[0][0]
        connections = memory[-1][1] - memory[0][1]
        in_flight = {mode: _in_flight(driver) for mode, driver in drivers.items()}
        steps.finish()
        version = servers.binary.version
    tracemalloc.stop()
    return Outcome(
        parameters={
            "workers": WORKERS,
            "socket_timeout_s": SOCKET_TIMEOUT,
            "retries": RETRIES,
            "seconds_per_slice": seconds,
            "interval_s": interval,
            "faults": dict(faults.log.begun),
            "memory_growth_kb": round(growth),
            "new_connections": connections,
            "memory_kb": [round(held) for held, _ in memory],
            "connections": [count for _, count in memory],
            "outcomes": {mode: _outcomes(tally) for mode, tally in tallies.items()},
            "errors": {mode: _errors(tally) for mode, tally in tallies.items()},
            "problems": [problem for tally in tallies.values() for problem in tally.problems],
        },
        contenders=[_result(mode, tally, seconds) for mode, tally in tallies.items()],
        bars=[
            *_bars(tallies, in_flight),
            bar(
                "memory growth besides new connections, kB",
                growth - connections * CONNECTION_KB,
                "<=",
                SLACK_KB,
            ),
        ],
        tables=[
            *(_table(mode, tally, faults) for mode, tally in tallies.items()),
            _memory_table(memory, seconds),
        ],
        redis_server=version,
    )


def _users(settings: Settings, history: History, faults: Faults) -> dict[Mode, list[User]]:
    """Return the users of each client; every key has one of them that writes it."""
    names = [(mode, f"{mode} {i}") for mode in settings.modes for i in range(WORKERS)]
    users: dict[Mode, list[User]] = {mode: [] for mode in settings.modes}
    for i, (mode, name) in enumerate(names):
        own = KEYS[i :: len(names)]
        users[mode].append(User(name, KEYS, own, history, faults.log, seed=settings.seed))
    return users


@contextlib.contextmanager
def _working(drivers: dict[Mode, Driver], users: dict[Mode, list[User]]) -> Iterator[None]:
    """Let all users work inside, each client's in threads of their own."""
    done = threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], object]) -> None:
        try:
            work()
        except BaseException as failure:  # a mistake of ours; the users count all others
            failures.append(failure)

    threads = [
        threading.Thread(target=guarded, args=(_work(drivers[mode], users[mode], done),))
        for mode in drivers
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        done.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def _work(driver: Driver, users: Sequence[User], done: threading.Event) -> Callable[[], object]:
    if isinstance(driver, AsyncioDriver):
        return lambda: driver.run(use_tasks(driver.client, users, done))
    return lambda: use_threads(driver.client, users, done)


def _fill(servers: RedisClusterServers, history: History) -> None:
    with RedisCluster(host=servers.host, port=servers.port) as client:
        for key in KEYS:
            client.set(key, history.first(key))
        client.disconnect_connection_pools()
    for primary in servers.primaries:
        primary.ask("WAIT", 2, 5000)


def _memory() -> tuple[float, int]:
    """Return how much Python holds, in kB, and how many connections there are.

    All that are alive count: those of a node that has left stay as long as a pipeline, in a cycle
    with itself, holds the pool.
    """
    gc.collect()
    held = tracemalloc.get_traced_memory()[0] / 1000
    kinds = (SyncConnection, AsyncConnection)
    return held, sum(isinstance(thing, kinds) for thing in gc.get_objects())


def _in_flight(driver: Driver) -> int:
    client: Any = driver.client
    return sum(stats.in_flight for stats in client.endpoint_stats().values())


def _outcomes(tally: Tally) -> dict[str, int]:
    return {outcome: tally.count(outcome) for outcome in OUTCOMES}


def _errors(tally: Tally) -> dict[str, int]:
    return {f"{outcome} {name}": n for (outcome, name), n in sorted(tally.errors.items())}


def _result(mode: Mode, tally: Tally, seconds: float) -> ContenderResult:
    latencies = [milliseconds / 1000 for milliseconds in tally.milliseconds.elements()]
    operations = tally.outcomes.total()
    return {
        "name": mode,
        "operations": operations,
        "errors": tally.errors.total(),
        "errors_by_type": {},
        "throughput_per_s": round(operations / seconds, 1),
        "read": summarise(latencies),
        "write": {"count": tally.methods["set"]},
        "by_method": {method: {"count": n} for method, n in sorted(tally.methods.items())},
        "share": {},
        "round_p99_ms": [],
        "late_p99_ms": 0.0,
        "curve": latency_curve(latencies),
        "timeline": [],
        "notes": {},
    }


def _bars(tallies: dict[Mode, Tally], in_flight: dict[Mode, int]) -> list[Bar]:
    bars: list[Bar] = []
    for mode, tally in tallies.items():
        bars += [
            bar(f"answers never written, {mode}", tally.count("wrong"), "<=", 0),
            bar(f"errors without an excuse, {mode}", tally.count("defect"), "<=", 0),
            bar(f"in flight at the end, {mode}", in_flight[mode], "<=", 0),
        ]
    return bars


def _memory_table(memory: Sequence[tuple[float, int]], seconds: float) -> TextTable:
    """Return what Python held on the way, all in all and besides the connections."""
    rows = [["after s", "kB", "connections", "kB besides"]]
    for part, (held, connections) in enumerate(memory):
        besides = held - connections * CONNECTION_KB
        rows.append(
            [f"{part * seconds / PARTS:,.0f}", f"{held:,.0f}", f"{connections}", f"{besides:,.0f}"]
        )
    return {"title": "memory on the way", "rows": rows}


def _table(mode: Mode, tally: Tally, faults: Faults) -> TextTable:
    """Return the operations by the fault that they met and by how they ended."""
    kinds = [NO_FAULT, *sorted(faults.log.begun)]
    rows = [["fault", "times", *OUTCOMES]]
    for kind in kinds:
        counts = [f"{tally.outcomes[kind, outcome]:,}" for outcome in OUTCOMES]
        rows.append([kind, str(faults.log.begun[kind]) if kind != NO_FAULT else "-", *counts])
    totals = [f"{count:,}" for count in _outcomes(tally).values()]
    rows.append(["all", str(faults.log.begun.total()), *totals])
    return {"title": f"operations by fault and outcome, {mode}", "rows": rows}
