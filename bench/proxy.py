"""A TCP proxy that makes one endpoint slow, silent or unreachable, in a process of its own.

::

    with FaultProxy(node.host, node.port) as proxy:
        proxy.delay(0.008, jitter=0.002)   # 8 +- 2 ms more per round trip, uniform
        proxy.undo()

The whole delay is put on the reply path: the server executes a request at once, and a reply leaves
``delay`` seconds, drawn uniformly from ``delay - jitter .. delay + jitter``, after it arrived, but
never before an earlier one of its connection. A control message is one line of JSON, on the
standard input of the process, and is answered by one on its standard output.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from bench.forwarder import HOST, Forwarder, Order, ProxyStats
from bench.servers.process import prepare_child
from bench.timers import wake_precisely

ROOT = Path(__file__).resolve().parents[1]


class FaultProxy:
    """Runs the proxy process; a context manager that always ends it. Not thread-safe.

    Args:
        host: The upstream server's host.
        port: The upstream server's port.
        seed: Decides the jitter.
        cpus: CPUs that the process may use; all when None.
    """

    def __init__(
        self, host: str, port: int, *, seed: int = 0, cpus: Collection[int] | None = None
    ) -> None:
        command = [sys.executable, "-m", "bench.proxy", host, str(port), "--seed", str(seed)]
        self._popen = subprocess.Popen(
            command,
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=prepare_child(cpus),
        )
        self.host = HOST
        self.port = int(self._answer())

    @property
    def endpoint(self) -> str:
        """``"host:port"`` of the listening side."""
        return f"{self.host}:{self.port}"

    def delay(self, seconds: float, *, jitter: float = 0.0) -> None:
        """Add ``seconds`` +- ``jitter`` (uniform) to each round trip; replaces any other fault."""
        if not 0 <= jitter <= seconds:
            raise ValueError(f"need 0 <= jitter <= delay, got jitter={jitter}, delay={seconds}")
        self._order({"do": "delay", "delay": seconds, "jitter": jitter})

    def stall(self) -> None:
        """Forward nothing any more; connections stay open and new ones are accepted."""
        self._order({"do": "stall"})

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._order({"do": "cut"})

    def undo(self) -> None:
        """Forward at once again; what a stall held back is delivered now."""
        self._order({"do": "none"})

    def stats(self) -> ProxyStats:
        """Return what was forwarded, and how late, since the start."""
        return self._order({"do": "stats"})

    def close(self) -> None:
        """End the process. Idempotent."""
        for pipe in (self._popen.stdin, self._popen.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()
        self._popen.kill()
        self._popen.wait(timeout=10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _order(self, order: Order) -> ProxyStats:
        assert self._popen.stdin is not None
        self._popen.stdin.write(json.dumps(order) + "\n")
        self._popen.stdin.flush()
        return cast(ProxyStats, json.loads(self._answer()))

    def _answer(self) -> str:
        assert self._popen.stdout is not None
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"the proxy process ended with code {self._popen.wait(10)}")
        return line


async def _serve(upstream: tuple[str, int], seed: int) -> None:
    """Serve until the standard input ends, which it does when the parent dies."""
    wake_precisely()
    forwarder = Forwarder(upstream, seed=seed)
    print(await forwarder.listen(), flush=True)
    orders = asyncio.StreamReader()
    await forwarder.loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        print(json.dumps(await forwarder.obey(json.loads(line))), flush=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where it is installed: it forwards three times as much."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def main() -> None:
    """Run the proxy process."""
    parser = argparse.ArgumentParser(prog="python -m bench.proxy")
    parser.add_argument("host")
    parser.add_argument("port", type=int)
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve((arguments.host, arguments.port), arguments.seed))


if __name__ == "__main__":
    main()
