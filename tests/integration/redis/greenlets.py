"""Greenlets on a patched standard library; run by `test_greenlets.py` in a Python of its own."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from typing import Any

import gevent
from gevent import monkey
from gevent.pool import Pool

from lb_strategies_redis._attempt import current

from . import library
from .nodes import KEYS

GREENLETS = 50
PAUSE = 0.02
"""Seconds between a greenlet's reads: without it they wait for the processor, not for servers."""


def total(client: Any, counter: str) -> int:
    return sum(getattr(stats, counter) for stats in client.endpoint_stats().values())


def main(host: str, port: str, pid: str, sick: str) -> dict[str, Any]:
    """Read while the process `pid`, which serves the endpoint `sick`, is frozen and resumed."""
    report: dict[str, Any] = {"wrong": 0, "errors": [], "left behind": 0, "reads": 0}
    report["patched"] = monkey.is_module_patched("socket")
    client: Any = library.OURS["sync"](
        host=host,
        port=int(port),
        load_balancing_strategy="latency_based",
        decode_responses=True,
        socket_timeout=1,
    )

    def read(end: float, worker: int) -> None:
        turn = worker
        while time.monotonic() < end:
            turn += 1
            key = KEYS[turn % len(KEYS)]
            try:
                if turn % 5:
                    values = [client.get(key)]
                else:
                    with client.pipeline() as pipe:
                        pipe.get(key)
                        values = pipe.execute()
                report["wrong"] += values != [key]
                report["reads"] += 1
            except Exception as error:
                report["errors"].append(repr(error))
            report["left behind"] += current.get() is not None
            gevent.sleep(PAUSE)

    def everybody(seconds: float) -> None:
        end = time.monotonic() + seconds
        pool = Pool(GREENLETS)
        for worker in range(GREENLETS):
            pool.spawn(read, end, worker)
        pool.join(timeout=30)
        report["left behind"] += len(pool)

    def freeze(number: signal.Signals) -> None:
        os.kill(int(pid), number)

    everybody(0.5)
    try:
        freeze(signal.SIGSTOP)
        everybody(1.5)
        report["ejections"] = client.endpoint_stats()[sick].ejections
        reads = report["reads"]
        everybody(0.5)
        report["reads beside the frozen one"] = report["reads"] - reads
    finally:
        freeze(signal.SIGCONT)

    # Given up in the middle of a command, by gevent's own means.
    given_up = 0
    try:
        freeze(signal.SIGSTOP)
        [node] = [node for node in client.get_nodes() if node.name == sick]
        for _ in range(3):
            with gevent.Timeout(0.05, False):
                client.execute_command("GET", "key:0", target_nodes=node)
                given_up -= 1
            given_up += 1
        killed = gevent.spawn(client.execute_command, "GET", "key:0", target_nodes=node)
        gevent.sleep(0.05)
        report["in flight in the killed one"] = total(client, "in_flight")
        killed.kill()
    finally:
        freeze(signal.SIGCONT)
    report["given up"] = given_up
    report["cancelled"] = total(client, "cancellations")
    everybody(0.5)
    report["in flight"] = total(client, "in_flight")
    client.close()
    client.disconnect_connection_pools()
    return report


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(*sys.argv[1:])))
