"""One server of a cluster that keeps a quorum, and the faults that can befall it and its links."""

from __future__ import annotations

from abc import ABC, abstractmethod

from bench.servers.links import HasTrouble, Trouble
from bench.servers.process import Process, wait_until


class Member(ABC):
    """A server with links to clients and to other members, if the cluster has links.

    Faults: ``pause`` / ``resume``, ``kill`` or ``terminate`` / ``restart`` and, on links,
    ``slow_down`` and ``cut`` / ``heal``. A subclass calls ``_launch`` once it has what the hooks
    need.
    """

    name: str
    """For messages."""
    is_paused = False
    was_slowed_down = False
    """Whether its links have ever been."""

    # -- hooks ------------------------------------------------------------------------------

    @abstractmethod
    def is_ready(self) -> bool:
        """Return whether it does its part in the cluster.

        Raises:
            RuntimeError: It ended.
        """

    @abstractmethod
    def _start(self) -> Process:
        """Start the server."""

    @abstractmethod
    def _own_links(self) -> HasTrouble | None:
        """Return its links, if there are any."""

    @abstractmethod
    def _apply_links(self) -> None:
        """Bring every link of the cluster into the state that the members' troubles ask for."""

    # -- its process ------------------------------------------------------------------------

    def _launch(self) -> None:
        self._process = self._start()

    @property
    def pid(self) -> int:
        """The process id of the running server."""
        return self._process.pid

    @property
    def is_running(self) -> bool:
        """Whether the process has not ended yet; a paused one is running."""
        return self._process.is_running

    @property
    def is_reachable(self) -> bool:
        """Whether it can answer the launcher, whose own connection passes no link."""
        return self.is_running and not self.is_paused

    def pause(self) -> None:
        """Freeze the server (SIGSTOP): connections stay open, nothing answers."""
        self._process.pause()
        self.is_paused = True

    def resume(self) -> None:
        """Undo ``pause``."""
        self._process.resume()
        self.is_paused = False

    def kill(self) -> None:
        """End the server at once; new connections are refused. Idempotent."""
        self._process.kill()
        self.is_paused = False

    def terminate(self) -> None:
        """End the server in order (SIGTERM): a leader of etcd hands over first. Idempotent."""
        self.resume()
        self._process.terminate()

    def restart(self, *, wait: bool = True) -> None:
        """Start an ended server again, with its data and ports.

        Args:
            wait: Return when it is ready, which without a quorum it never is.
        """
        self.kill()
        self._launch()
        self._apply_links()  # they may go by its pid
        if wait:
            self.wait_until_ready()

    def wait_until_ready(self, timeout: float = 30.0) -> None:
        """Return when the server is ready.

        Raises:
            RuntimeError: It ended, or is not within ``timeout`` seconds; the message holds the
                end of its log.
        """
        try:
            wait_until(self.is_ready, f"{self.name} is ready", timeout=timeout)
        except RuntimeError as error:
            raise RuntimeError(f"{error}; end of its log:\n{self._process.log_tail()}") from error

    # -- its links --------------------------------------------------------------------------

    @property
    def is_in_trouble(self) -> bool:
        """Whether its links are slowed down or cut."""
        links = self._own_links()
        return links is not None and links.trouble != Trouble()

    def slow_down(
        self, seconds: float, *, jitter: float = 0.0, client: bool = True, peer: bool = True
    ) -> None:
        """Add ``seconds`` +- ``jitter`` (uniform) to all that the server sends.

        Args:
            seconds: Added to each round trip with it; replaces what was added before.
            jitter: At most ``seconds``.
            client: To clients.
            peer: To other members.

        Raises:
            RuntimeError: The cluster has no links; also from ``cut`` and ``heal``.
        """
        trouble = self._links().trouble
        self.was_slowed_down = True
        trouble.client_delay, trouble.client_jitter = (seconds * client, jitter * client)
        trouble.peer_delay, trouble.peer_jitter = (seconds * peer, jitter * peer)
        self._apply_links()

    def cut(self, *, client: bool = True, peer: bool = True) -> None:
        """Reset its connections, in both directions, and refuse new ones."""
        trouble = self._links().trouble
        trouble.is_client_cut, trouble.is_peer_cut = client, peer
        self._apply_links()

    def heal(self) -> None:
        """Undo ``slow_down`` and ``cut``."""
        self._links().trouble = Trouble()
        self._apply_links()

    def _links(self) -> HasTrouble:
        links = self._own_links()
        if links is None:
            raise RuntimeError("links need client_rtt or peer_rtt, which may be 0")
        return links
