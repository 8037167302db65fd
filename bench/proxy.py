"""A TCP proxy that makes one endpoint slow, silent or unreachable, in a process of its own.

::

    with FaultProxy(node.host, node.port) as proxy:
        proxy.delay(0.008, jitter=0.002)   # 8 +- 2 ms more per round trip, uniform
        proxy.undo()

By default the whole delay is put on the reply path: the server executes a request at once, and a
reply leaves ``delay`` seconds, drawn uniformly from ``delay - jitter .. delay + jitter``, after it
arrived, but never before an earlier one of its connection; requests can have a delay of their own.
Many links can share one ``ProxyProcess``. A control message is one line of JSON, on the standard
input of the process, and is answered by one on its standard output.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import subprocess
import sys
from collections.abc import Collection
from pathlib import Path
from types import TracebackType
from typing import Self, cast

from bench.forwarder import Forwarder, Order, ProxyStats
from bench.servers.process import prepare_child
from bench.timers import Alarm, wake_precisely

ROOT = Path(__file__).resolve().parents[1]


class ProxyProcess:
    """A process that forwards any number of links; a context manager that always ends it.

    Not thread-safe.

    Args:
        cpus: CPUs that the process may use; all when None.
    """

    def __init__(self, *, cpus: Collection[int] | None = None) -> None:
        self._count = 0
        self._popen = subprocess.Popen(
            [sys.executable, "-m", "bench.proxy"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            preexec_fn=prepare_child(cpus),
        )

    @property
    def pid(self) -> int:
        """The process id."""
        return self._popen.pid

    def open(
        self,
        host: str,
        port: int,
        *,
        listen_on: int = 0,
        listen_host: str | None = None,
        seed: int = 0,
        patience: float = 0.0,
    ) -> Link:
        """Return a new link to the server at ``host``, ``port``, which need not run yet.

        Args:
            host: The server's host.
            port: The server's port.
            listen_on: The link's own port; any free one when 0.
            listen_host: The link's own host; that of the server when None.
            seed: Decides the jitter.
            patience: Seconds for which to go on trying to connect to a server that refuses, before
                the accepted connection is reset.

        Raises:
            RuntimeError: It cannot listen there; the process has ended.
        """
        number, self._count = self._count, self._count + 1
        own = listen_host or host
        order: Order = {
            "do": "open",
            "upstream": (host, port),
            "host": own,
            "port": listen_on,
            "seed": seed,
            "patience": patience,
        }
        return Link(self, number, own, self.order(number, order)["port"])

    def order(self, link: int, order: Order) -> ProxyStats:
        """Have a link obey ``order``."""
        assert self._popen.stdin is not None
        assert self._popen.stdout is not None
        self._popen.stdin.write(json.dumps({**order, "link": link}) + "\n")
        self._popen.stdin.flush()
        line = self._popen.stdout.readline()
        if not line:
            raise RuntimeError(f"the proxy process ended with code {self._popen.wait(10)}")
        return cast(ProxyStats, json.loads(line))

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


class Link:
    """One listening port and the server behind it; ``ProxyProcess.open`` makes it."""

    def __init__(self, process: ProxyProcess, number: int, host: str, port: int) -> None:
        self._process = process
        self._number = number
        self.host = host
        self.port = port

    @property
    def endpoint(self) -> str:
        """``"host:port"`` of the listening side."""
        return f"{self.host}:{self.port}"

    def delay(
        self,
        seconds: float,
        *,
        jitter: float = 0.0,
        request: float = 0.0,
        request_jitter: float = 0.0,
    ) -> None:
        """Hold back each reply, and each request; replaces any other fault.

        Args:
            seconds: For replies.
            jitter: At most ``seconds``: uniformly so much more or less.
            request: Seconds for requests.
            request_jitter: At most ``request``.
        """
        if not (0 <= jitter <= seconds and 0 <= request_jitter <= request):
            raise ValueError(
                f"need 0 <= jitter <= delay, got jitter={jitter}, delay={seconds} for replies, "
                f"jitter={request_jitter}, delay={request} for requests"
            )
        self._order(
            {
                "do": "delay",
                "delay": seconds,
                "jitter": jitter,
                "request_delay": request,
                "request_jitter": request_jitter,
            }
        )

    def stall(self) -> None:
        """Forward nothing any more; connections stay open and new ones are accepted."""
        self._order({"do": "stall"})

    def cut(self) -> None:
        """Reset every connection and refuse new ones."""
        self._order({"do": "cut"})

    def refuse(self, pids: Collection[int]) -> None:
        """Reset connections from these processes, now and later; replaces those refused before."""
        self._order({"do": "refuse", "pids": list(pids)})

    def undo(self) -> None:
        """Forward at once again; what a stall held back is delivered now."""
        self._order({"do": "none"})

    def stats(self) -> ProxyStats:
        """Return what was forwarded, and how late, since the start."""
        return self._order({"do": "stats"})

    def _order(self, order: Order) -> ProxyStats:
        return self._process.order(self._number, order)


class FaultProxy(Link):
    """One link in a process of its own; a context manager that always ends it.

    Args:
        host: The upstream server's host.
        port: The upstream server's port.
        seed: Decides the jitter.
        cpus: CPUs that the process may use; all when None.
    """

    def __init__(
        self, host: str, port: int, *, seed: int = 0, cpus: Collection[int] | None = None
    ) -> None:
        process = ProxyProcess(cpus=cpus)
        try:
            link = process.open(host, port, seed=seed)
        except BaseException:
            process.close()
            raise
        super().__init__(process, 0, link.host, link.port)

    def close(self) -> None:
        """End the process. Idempotent."""
        self._process.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()


async def _serve() -> None:
    """Serve until the standard input ends, which it does when the parent dies."""
    wake_precisely()
    loop = asyncio.get_running_loop()
    alarm = Alarm(loop)
    forwarders: list[Forwarder] = []
    orders = asyncio.StreamReader()
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(orders), sys.stdin)
    while line := await orders.readline():
        order: Order = json.loads(line)
        if order["do"] == "open":
            host, port = order["upstream"]
            forwarders.append(
                Forwarder(
                    (host, port),
                    alarm,
                    host=order["host"],
                    port=order["port"],
                    seed=order["seed"],
                    patience=order["patience"],
                )
            )
        print(json.dumps(await forwarders[order["link"]].obey(order)), flush=True)


def _new_loop() -> asyncio.AbstractEventLoop:
    """Return uvloop's loop where it is installed: it forwards three times as much."""
    try:
        import uvloop
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


def main() -> None:
    """Run the proxy process."""
    with asyncio.Runner(loop_factory=_new_loop) as runner:
        runner.run(_serve())


if __name__ == "__main__":
    main()
