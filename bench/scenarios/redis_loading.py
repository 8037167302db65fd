"""Does the user see the errors of a replica that is up but cannot serve?

One primary and two replicas; one replica is loading its data set (LOADING), and after that has
lost its primary and may not serve stale data (MASTERDOWN). Both answer at once, with an error.
A closed loop of one worker.

Expected: redis-py retries such a read on the same node or not at all, so errors reach the user.
Ours tries another endpoint at once: no error. `ideal` leaves the node out by hand.

LOADING: the replica gets keys of its own, is told to load them slowly, and reloads. MASTERDOWN: it
gets wrong credentials for its primary, which stays healthy, and loses the link.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Iterator, Sequence

import redis

from bench.contenders import IDEAL, Contender, named
from bench.counters import calls_between
from bench.record import Recorder, bar
from bench.scenario import Outcome, Settings, Steps
from bench.servers.process import wait_until
from bench.servers.redis import RedisNode
from bench.testbed import Testbed, reads

CONTENDERS = [
    *named("round_robin_replicas", "random_replica"),
    *named("latency_based", "latency_based_replicas", "hybrid"),
    IDEAL,
]
JUDGED = ("latency_based", "latency_based_replicas")
FAULTS = ("LOADING", "MASTERDOWN")
READS = 40
KEYS_TO_LOAD = 30_000
# Microseconds that the server waits per key; it is set to 0 when the measurement is done.
DELAY_PER_KEY = 500

ERRORS = 0.0


def run(settings: Settings, steps: Steps, contenders: Sequence[Contender] = CONTENDERS) -> Outcome:
    """Measure; see the module's docstring."""
    seconds = settings.seconds or 10.0
    operations = list(reads().operations)
    recorders = {
        (fault, contender.name): Recorder(f"{contender.name} ({fault})")
        for fault in FAULTS
        for contender in contenders
    }
    with Testbed(replicas=2, seed=settings.seed, mode=settings.mode) as testbed:
        sick = testbed.servers.replicas[0]
        sick.ask("DEBUG", "POPULATE", KEYS_TO_LOAD, "populated", 100)
        steps.expect(len(recorders))
        for fault, breaking in zip(FAULTS, (loading, master_down), strict=True):
            for contender in contenders:
                steps.begin(f"{fault}: {contender.name}")
                with testbed.driving(contender, degraded=[sick.endpoint]) as driver:
                    driver.closed_loop(operations, seconds=5, limit=READS)
                    before = testbed.counter.read()
                    with breaking(sick):
                        samples = driver.closed_loop(operations, seconds=seconds, limit=READS)
                calls = calls_between(before, testbed.counter.read())
                busy = sum(sample.latency for sample in samples)
                recorders[fault, contender.name].add_round(samples, seconds=busy, calls=calls)
        steps.finish()
        results = {
            key: recorder.result(degraded=[sick.endpoint]) for key, recorder in recorders.items()
        }
        return Outcome(
            parameters={
                "workers": 1,
                "reads": READS,
                "degraded_endpoint": sick.endpoint,
                "primaries": len(testbed.servers.primaries),
                "replicas": len(testbed.servers.replicas),
            },
            contenders=list(results.values()),
            bars=[
                bar(f"errors, {name}, {fault}", results[fault, name]["errors"], "<=", ERRORS)
                for fault in FAULTS
                for name in JUDGED
                if (fault, name) in results
            ],
            redis_server=testbed.servers.binary.version,
        )


@contextlib.contextmanager
def loading(node: RedisNode) -> Iterator[None]:
    """Keep ``node`` answering LOADING inside; return when it serves again.

    Raises:
        RuntimeError: It finished loading before the block did, so the block measured nothing.
    """
    node.ask("CONFIG", "SET", "key-load-delay", DELAY_PER_KEY)
    node.ask("CONFIG", "SET", "loading-process-events-interval-bytes", 1024)
    with socket.create_connection((node.host, node.port), timeout=60) as connection:
        # Answered only when the load has ended, so nobody waits for it.
        connection.sendall(b"DEBUG RELOAD\r\n")
        wait_until(lambda: _is_loading(node), f"{node.endpoint} is loading")
        try:
            yield
            if not _is_loading(node):
                raise RuntimeError(f"{node.endpoint} had loaded before the reads were done")
        finally:
            node.ask("CONFIG", "SET", "key-load-delay", 0)
            wait_until(lambda: not _is_loading(node), f"{node.endpoint} has loaded", timeout=60)


@contextlib.contextmanager
def master_down(node: RedisNode) -> Iterator[None]:
    """Keep ``node`` answering MASTERDOWN inside; return when it is in step again."""
    node.ask("CONFIG", "SET", "replica-serve-stale-data", "no")
    node.ask("CONFIG", "SET", "masteruser", "nobody", "masterauth", "wrong")
    try:
        node.ask("CLIENT", "KILL", "TYPE", "master")
        wait_until(lambda: not _is_linked(node), f"{node.endpoint} has lost its primary")
        yield
        if _is_linked(node):
            raise RuntimeError(f"{node.endpoint} found its primary before the reads were done")
    finally:
        node.ask("CONFIG", "SET", "masteruser", "", "masterauth", "")
        node.ask("CONFIG", "SET", "replica-serve-stale-data", "yes")
        wait_until(lambda: _is_linked(node), f"{node.endpoint} follows its primary", timeout=60)


def _is_loading(node: RedisNode) -> bool:
    try:
        return "loading:1" in _info(node, "persistence")
    except redis.TimeoutError:
        return True


def _is_linked(node: RedisNode) -> bool:
    return "master_link_status:up" in _info(node, "replication")


def _info(node: RedisNode, section: str) -> str:
    """Return the raw text; redis-py's PING on connecting is refused while loading, INFO is not."""
    with socket.create_connection((node.host, node.port), timeout=5) as connection:
        connection.sendall(f"INFO {section}\r\n".encode())
        return connection.recv(65536).decode()
