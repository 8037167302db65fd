"""Moving the session that writes: to the leader, and away from a server that hangs.

A session is not bound to a server. When its connection breaks, kazoo connects to the next server
in the list and takes the session along, with its ephemeral nodes; so the list is kept in the order
of preference, and the connection is broken when another server is preferred. Requests that are on
their way then fail, and it is not known whether they were executed. So, if the server still
answers, new ones are held back and those on the way are waited for first.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from typing import Final

import kazoo.client

from lb_strategies.consensus import ConsensusRouter

from ._gate import Gate
from ._hosts import Directory, lookup
from ._sessions import break_connection

_LOGGER: Final = logging.getLogger("lb_strategies")

_DRAIN: Final = 1.0
"""Seconds to wait for requests on the way, before a move is put off."""
_CONNECT: Final = 2.0
"""Seconds that requests are held back at most until the session is connected again."""
_STEP: Final = 0.001
_PUT_OFF: Final = 10.0
"""Seconds before a move that did not lead where it should is tried again."""


class Mover:
    """Keeps the session of `client` where `router` wants it.

    Args:
        client: whose session it is.
        gate: stands before its queue.
        router: knows the leader, and who can be reached.
        set_hosts: tells kazoo the order in which to connect.
    """

    def __init__(
        self,
        client: kazoo.client.KazooClient,
        gate: Gate,
        router: ConsensusRouter,
        set_hosts: Callable[[tuple[str, ...]], None],
    ) -> None:
        self._client = client
        self._gate = gate
        self._router = router
        self._set_hosts = set_hosts
        self._directory = Directory()
        self._busy = threading.Lock()
        self._order: tuple[str, ...] = ()
        self._put_off: dict[str, float] = {}
        """Until when not to try again to move to a server, monotonic seconds."""

    @property
    def member(self) -> str | None:
        """The server that the session is on, or is connecting to; None if there is none."""
        connection = self._client._connection._socket
        try:
            address = connection.getpeername()[:2]
        except (AttributeError, OSError):
            return None
        return self._directory.find(address, self._members())

    def reset(self) -> None:
        """Forget what kazoo was told: it was told something else meanwhile."""
        self._order = ()
        self._put_off.clear()

    def follow(self) -> None:
        """Look whether the session is where it should be, and see to it if not; does not wait."""
        if not self._busy.acquire(blocking=False):
            return
        is_moving = False
        try:
            self._prefer()
            member = self.member
            if member is None:
                return
            if member not in self._router.tracker.reachable:
                _LOGGER.warning("the session leaves %s, which does not answer", member)
                self._leave(self._order[0])
            elif self._client.connected and self._should_lead(member):
                is_moving = True
                target = self._order[0]
                threading.Thread(
                    target=self._move, args=(member, target), name="lb-move", daemon=True
                ).start()
        finally:
            if not is_moving:
                self._busy.release()

    def _prefer(self) -> None:
        """Tell kazoo the order in which to connect, if it has changed."""
        tracker = self._router.tracker
        leader = tracker.leader if self._router.is_pinned else None
        order = tuple(str(m) for m in tracker.voters if m != leader)
        if leader is not None:
            order = (str(leader), *order)
        if order != self._order:
            self._order = order
            self._set_hosts(order)

    def _should_lead(self, member: str) -> bool:
        leader = self._router.tracker.leader
        if leader is None or leader == member or not self._router.is_pinned:
            return False
        return time.monotonic() >= self._put_off.get(str(leader), 0.0)

    def _move(self, member: str, target: str) -> None:
        """Take the session from `member` to `target`."""
        client = self._client
        try:
            self._gate.close()
            if not self._drain():
                self._put_off[target] = time.monotonic() + _PUT_OFF
                return
            if client._stopped.is_set() or self.member != member:
                return  # it has gone by itself
            before = client._connection._socket
            self._leave(target)
            _wait(lambda: client._connection._socket is not before and client.connected, _CONNECT)
            if self.member == target:
                _LOGGER.info("the session has moved from %s to %s, which leads", member, target)
            else:
                self._put_off[target] = time.monotonic() + _PUT_OFF
                _LOGGER.warning(
                    "%s leads, but does not take the session of a client; it is on %s",
                    target,
                    self.member,
                )
        finally:
            self._gate.open()
            self._busy.release()

    def _leave(self, target: str) -> None:
        """Break the connection, and have the next one be to `target`."""
        self._client.handler.go_to(lookup(target))
        break_connection(self._client)

    def _drain(self) -> bool:
        """Wait until nothing is on its way; return whether that is so."""

        def is_idle() -> bool:
            return not self._client._queue and not self._client._pending

        if not _wait(is_idle, _DRAIN):
            return False
        time.sleep(_STEP)  # kazoo takes a request from one queue before it is in the other
        return _wait(is_idle, _DRAIN)

    def _members(self) -> tuple[str, ...]:
        return tuple(str(member) for member in self._router.tracker.members)


def _wait(condition: Callable[[], bool], timeout: float) -> bool:
    deadline = time.monotonic() + timeout
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(_STEP)
    return True
