"""The routing of one client: who leads, where reads go, and where the session that writes is."""

from __future__ import annotations

import random
import uuid
from collections.abc import Hashable, Iterable
from time import perf_counter
from typing import Any, Final

import kazoo.client
from kazoo.exceptions import ConnectionClosedError
from kazoo.handlers.threading import AsyncResult, KazooTimeoutError
from kazoo.protocol.states import KazooState

from lb_strategies import (
    ConsensusOptions,
    ConsensusRoutingMixin,
    FailureKind,
    LoadBalancingStrategy,
    MemberStatus,
    Operation,
    Policy,
    ReadConsistency,
)
from lb_strategies.consensus import Plan
from lb_strategies.membership import Endpoint

from ._gate import Gate
from ._here import fenced_read, read_here
from ._hosts import expand
from ._moves import Mover
from ._probes import Probe
from ._progress import Progress
from ._reads import Answer, Method, Read, Sending, failure_kind
from ._results import RoutedRead
from ._sessions import Connect, ReadSessions
from ._ticker import Ticker

_LOOK_UP: Final = 30.0
"""Seconds after which a name that stood for several servers is looked up again."""


class Routing(ConsensusRoutingMixin[Read, Answer]):
    """Routes the reads of `client`, and keeps its session where it belongs.

    Args:
        client: the one that writes.
        members: the servers, as endpoints.
        strategy: how reads are spread, and whether the session stays with the leader.
        options: tunables; the defaults if None.
        progress: how far the client's session has seen.
        probe: asks a server for its status.
        connect: makes the sessions that read.
        consistency: of reads that do not say otherwise.
        fence: whether a strong read is preceded by a write that changes nothing.
        expands: whether a name of several addresses stands for several servers.
        rng: source of randomness; a new one if None.
    """

    def __init__(
        self,
        client: kazoo.client.KazooClient,
        members: tuple[str, ...],
        strategy: LoadBalancingStrategy | Policy | str,
        *,
        options: ConsensusOptions | None,
        progress: Progress,
        probe: Probe,
        connect: Connect,
        consistency: ReadConsistency,
        fence: bool,
        expands: bool,
        rng: random.Random | None = None,
    ) -> None:
        self.consistency = consistency
        self.progress = progress
        self.ticker = Ticker()
        self.client = client
        self._names = self._members = members
        self._looked_up_at = 0.0
        self._probe = probe
        self.fence = f"/lb-strategies-fence-{uuid.uuid4()}" if fence else None
        self._expands = expands
        self.is_started = False
        self.sessions = ReadSessions(connect, self.ticker)
        self.gate = Gate(client._call, lambda: not client._queue and not client._pending)
        self._start_routing(strategy, options=options, rng=rng)
        self.mover = Mover(client, self.gate, self._router, self._tell_hosts)

    # -- life -------------------------------------------------------------------------------

    def start(self) -> None:
        """Begin to ask the servers, and to connect to them; does not wait for their answers."""
        if self.is_started:
            return
        self.is_started = True
        self.ticker.start()
        if self._expands:
            self._look_up(perf_counter())
        self.mover.reset()
        self._keep_polling()
        self._keep_sessions()

    def stop(self) -> None:
        """End all that is done in the background."""
        if not self.is_started:
            return
        self.is_started = False
        self._stop_routing()
        for member in set(self._router.tracker.members) - set(self._router.tracker.reachable):
            self.sessions.drop(str(member))
        self.sessions.keep(())
        self.ticker.stop()

    def use_members(self, members: tuple[str, ...]) -> None:
        """Make `members`, or what their names stand for, all the servers there are."""
        self._names = self._members = members
        if self._expands and self.is_started:
            self._members = expand(members)
        self._members_changed()

    def _look_up(self, now: float) -> None:
        """Look whether the names stand for other servers by now."""
        self._looked_up_at = now
        members = expand(self._names)
        if members != self._members:
            self._members = members
            self._members_changed()

    def _members_changed(self) -> None:
        self._update_members()
        self.mover.reset()
        if self.is_started:
            self._keep_sessions()

    def _keep_sessions(self) -> None:
        self.sessions.keep(str(member) for member in self._router.tracker.members)

    def _keep_polling(self) -> None:
        if self.is_started:
            super()._keep_polling()

    def _tell_hosts(self, order: tuple[str, ...]) -> None:
        kazoo.client.KazooClient.set_hosts(
            self.client, ",".join(order) + self.client.chroot, randomize_hosts=False
        )

    # -- reads ------------------------------------------------------------------------------

    def read(
        self, method: Method, path: object, consistency: ReadConsistency | None = None
    ) -> Read | None:
        """Return the read to be done; None if kazoo's own does.

        It goes where writes go while no other session is connected, and if the calling thread or
        task has asked for something that was not answered yet: a session answers in the order in
        which it was asked, and kazoo's users pipeline on that.
        """
        if not isinstance(path, str) or not self.is_started:
            return None  # kazoo knows best how to complain
        is_here = self.gate.is_awaited or not self.sessions.are_ready
        consistency = consistency if consistency is not None else self.consistency
        if consistency is ReadConsistency.RELAXED:
            return None if is_here else Read(self, method, path)
        progress = self.progress
        is_strong = consistency is ReadConsistency.STRONG
        if not is_strong and not progress.is_unsettled:
            return Read(self, method, path, progress.zxid, is_here=is_here)
        events = progress.events  # first: what is covered then is not more than that
        return Read(
            self,
            method,
            path,
            progress.zxid,
            events,
            syncs=True,
            is_fenced=is_strong and self.fence is not None,
            is_here=is_here,
        )

    def fetch(self, read: Read) -> Any:
        """Do `read` and return its value."""
        if read.is_fenced or read.is_here:
            return self.fetch_async(read).get()
        return read.method.finish(self._route(read).value)

    def fetch_async(self, read: Read) -> AsyncResult:
        """Do `read`; return kazoo's result at once."""
        self._keep_polling()
        result = AsyncResult(self.client.handler)
        if read.is_fenced:
            fenced_read(self, read, result)
        else:
            self.begin(read, result)
        return result

    def begin(self, read: Read, result: AsyncResult) -> None:
        """Do `read` where it belongs, and set `result` at its end."""
        if read.is_here:
            read_here(self, read, result)
        else:
            RoutedRead(self, read, result)

    def answer(self, sending: Sending, read: Read) -> Answer:
        """Return the answer, which the session has seen now. Errors as for `Sending.answer`."""
        try:
            answer = sending.answer(read)
        except Exception as error:
            if failure_kind(error) is FailureKind.ANSWER:  # that there is no node is one, too
                self._has_seen(read, None, sending.result.zxid)
            raise
        self._has_seen(read, answer.value, answer.zxid)
        return answer

    def _has_seen(self, read: Read, value: Any, zxid: int) -> None:
        if read.events is not None:
            self.progress.settle(zxid, read.events)
        self.progress.saw(zxid if value is None else read.method.position(value, zxid))

    def plan(self, read: Read) -> Plan[Answer]:
        """Return the plan of `read`."""
        return self._router.plan(read.method.operation, now=perf_counter())

    def session(self, member: Endpoint) -> kazoo.client.KazooClient:
        """Return the session that reads from `member`.

        Raises:
            ConnectionClosedError: the client was stopped.
            NotConnectedError: there is no connection now.
        """
        if not self.is_started:
            raise ConnectionClosedError("Connection has been closed")
        return self.sessions.get(member)

    def failure_kind(self, error: BaseException) -> FailureKind:
        """Say what an error means for a read; after `stop` it is no server's fault."""
        return failure_kind(error) if self.is_started else FailureKind.ANSWER

    # -- what the session that writes tells ---------------------------------------------------

    def learn_zxid(self, zxid: int) -> None:
        """Take in that the session was answered, at `zxid`: its epoch may be a new one."""
        self.gate.answered()
        if self._router.tracker.reply(zxid >> 32):
            self._polls.refresh()

    def state_changed(self, state: KazooState) -> None:
        """Take in the state of the session that writes."""
        if state != KazooState.SUSPENDED:
            self.gate.connected()
        if state != KazooState.CONNECTED:
            self._polls.refresh()

    # -- hooks of the mixin -----------------------------------------------------------------

    def _list_members(self) -> Iterable[Endpoint]:
        return self._members

    def _classify(self, request: Read) -> Operation:
        return request.method.operation

    def _classify_error(self, error: Exception, request: Read) -> FailureKind:
        return self.failure_kind(error)

    def _read_term(self, reply: Answer) -> tuple[int | None, Hashable | None]:
        return reply.zxid >> 32, None

    def _probe_member(self, member: Endpoint, timeout: float) -> MemberStatus:
        return self._probe.ask(str(member), timeout)

    def _send_to(self, member: Endpoint, request: Read, timeout: float | None) -> Answer:
        session = self.session(member)
        deadline = None if timeout is None else perf_counter() + timeout
        sending = Sending(session, request, syncs=request.syncs)
        _await(sending.result, deadline)
        if sending.is_behind(request) and not sending.has_synced:
            sending = Sending(session, request, syncs=True)
            _await(sending.result, deadline)
        return self.answer(sending, request)

    def _poll(self, member: Endpoint) -> None:
        super()._poll(member)
        if not self.is_started:
            return
        if member not in self._router.tracker.reachable:
            self.sessions.drop(str(member))
        self.mover.follow()
        now = perf_counter()
        if self._members != self._names and now > self._looked_up_at + _LOOK_UP:
            self._look_up(now)


def _await(result: AsyncResult, deadline: float | None) -> None:
    """Wait until `result` is there.

    Raises:
        KazooTimeoutError: it is not at the deadline.
    """
    if not result.wait(None if deadline is None else max(0.0, deadline - perf_counter())):
        raise KazooTimeoutError("took too long")
