"""One Redis server of a cluster, and the faults that can befall it."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path
from typing import Literal, cast

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from bench.servers.binaries import Binary
from bench.servers.process import Process, wait_until

HOST = "127.0.0.1"

Role = Literal["primary", "replica"]


class RedisNode:
    """One server of the cluster. Faults: ``pause`` / ``resume``, ``kill`` / ``restart``."""

    def __init__(
        self, binary: Binary, config: Path, *, port: int, role: Role, cpus: Collection[int] | None
    ) -> None:
        self.host = HOST
        self.port = port
        self.tls_port: int | None = None
        """Where clients connect with TLS; None if they cannot."""
        self.role: Role = role
        self._binary = binary
        self._config = config
        self._cpus = cpus
        self._process = self._start()

    @property
    def endpoint(self) -> str:
        """``"host:port"``, the name that clients give to this server."""
        return f"{self.host}:{self.port}"

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._process.pid

    def client(self, *, timeout: float = 5.0) -> redis.Redis:
        """Return a new plain client of this one server, without retries; the caller closes it.

        Args:
            timeout: Seconds to wait for a connection and for an answer.
        """
        return redis.Redis(
            host=self.host,
            port=self.port,
            socket_timeout=timeout,
            decode_responses=True,
            # By default redis-py hides a refusal behind ten seconds of attempts.
            retry=Retry(NoBackoff(), 0),
        )

    def ask(self, *command: object) -> object:
        """Run one command on a connection of its own and return the answer."""
        with self.client() as client:
            return client.execute_command(*command)

    def command_calls(self, command: str) -> int:
        """Return how often this server has executed ``command`` since it started."""
        with self.client() as client:
            stats = cast("dict[str, dict[str, int]]", client.info("commandstats"))
        return stats.get(f"cmdstat_{command.lower()}", {}).get("calls", 0)

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, nothing answers."""
        self._process.pause()

    def resume(self) -> None:
        """Undo ``pause``."""
        self._process.resume()

    def kill(self) -> None:
        """End the server at once; new connections are refused. Idempotent."""
        self._process.kill()

    def restart(self) -> None:
        """Start a killed server again on the same port and wait until it answers."""
        self._process.kill()
        self._process = self._start()
        self.wait_until_answering()

    def wait_until_answering(self, timeout: float = 15.0) -> None:
        """Return when the server answers PING.

        Raises:
            RuntimeError: It ended, or did not answer within ``timeout`` seconds; the message holds
                the end of its log.
        """
        try:
            wait_until(self._answers, f"{self.endpoint} answers", timeout=timeout)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; end of its log:\n{self._process.log_tail()}") from error

    def _answers(self) -> bool:
        if not self._process.is_running:
            raise RuntimeError(f"redis-server for {self.endpoint} ended")
        try:
            return bool(self.ask("PING"))
        except redis.ResponseError:
            return True  # MASTERDOWN is an answer too; LOADING is of another kind
        except redis.ConnectionError:
            return False

    def _start(self) -> Process:
        log = self._config.with_suffix(".log")
        return Process([self._binary.path, self._config], log=log, cpus=self._cpus)
