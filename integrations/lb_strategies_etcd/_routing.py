"""What both routing channels do without any I/O: the hooks of the mixins, and tokens."""

from __future__ import annotations

import random
from collections.abc import Iterable
from time import perf_counter
from typing import Any, Final

import grpc

from lb_strategies import (
    FailureKind,
    MemberStatus,
    Operation,
    OperationClass,
    Pick,
    StatusRefusedError,
)
from lb_strategies.consensus import ConsensusRouter, Plan
from lb_strategies.membership import Endpoint

from ._auth import Tokens
from ._call import Call
from ._discovery import Discovery
from ._links import Links
from ._links_aio import AsyncLinks
from ._settings import Settings
from ._wire import MemberStatus as Status
from ._wire import read_header

Reply = tuple[Any, Any]
"""A response, and the RPC that brought it if the caller asked for that."""
_VOUCHED_FOR: Final = 0.050
"""Seconds for which a write shows, once it is carried out, that its member knows a leader.

That had the consent of a quorum just then. It steps down for want of one an election time-out
later, which is a second by default; if another one takes its place, a write waits for that.
"""
_TERM_INTERVAL: Final = 0.010
"""Seconds between two looks at the term of a reply: protobuf's messages are slow to read."""
_REFUSALS = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
"""etcd 3.6 wants the root role for a status, later ones a user."""


class Routing:
    """A part of a routing channel, which has a mixin's `_router` and `_keep_polling`."""

    _router: ConsensusRouter
    _settings: Settings
    _tokens: Tokens
    _links: Links | AsyncLinks
    _discovery: Discovery | None
    _term_due = float("-inf")
    """When a reply's term will be looked at again, while a leader is known."""
    _vouched: tuple[str, float] = "", float("-inf")
    """The member that carried out the last write, and when that was sent."""

    def _keep_polling(self) -> None:
        super()._keep_polling()  # type: ignore[misc]  # the mixin's

    # -- for the callables ------------------------------------------------------------------

    def succeeded(self, call: Call, pick: Pick, response: object = None) -> None:
        """Take in that the first attempt was answered, and the term of its `response` if given."""
        now = perf_counter()
        if call.operation.kind is OperationClass.WRITE:
            self._vouched = str(pick.state.endpoint), pick.started_at
        term, leader = (None, None) if response is None else self._read_term((response, None))
        self._router.succeeded(pick, call.operation, now=now, term=term, leader=leader)

    def failed(self, call: Call, pick: Pick, kind: FailureKind) -> None:
        """Take in that the first attempt failed and that there will be no other."""
        self._router.failed(pick, call.operation, kind, now=perf_counter())

    def plan(self, call: Call, timeout: float | None, *, first: Pick | None = None) -> Plan[Reply]:
        """Return the plan of `call`, for whoever does not wait for each step.

        Args:
            call: what the caller asked for.
            timeout: seconds in all, from the `first` pick if there is one.
            first: the pick of an attempt that has begun.
        """
        self._keep_polling()
        now = perf_counter() if first is None else first.started_at
        return self._router.plan(call.operation, now=now, timeout=timeout, first=first)

    @property
    def retry_for(self) -> float:
        """How long what may be tried again is tried, in seconds."""
        return self._router.options.retry_for

    def next_pause(self, pauses: int) -> float:
        """Return the seconds to wait after every member has been tried."""
        return self._router.backoff(pauses)

    def were_all(self, call: Call, tried: tuple[str, ...]) -> bool:
        """Whether nobody is left to try."""
        return all(member in tried for member in self._router.everybody(call.operation))

    def assign(self, call: Call, tried: tuple[str, ...] = ()) -> str:
        """Return the member that a stream is to be opened on."""
        self._keep_polling()
        return str(self._router.assign(call.operation, now=perf_counter(), exclude=tried))

    def stream_failed(self, call: Call, member: str, kind: FailureKind) -> bool:
        """Take in how a stream ended; return whether there is any use in opening it again."""
        self._router.stream_failed(member, call.operation, kind)
        if kind is FailureKind.UNAUTHENTICATED:
            return self._tokens.forget(member)
        return not self._links.is_closed

    def term_of(self, response: object) -> tuple[int | None, int | None]:
        """Return the term and, while no leader is known, the hint at one in a response's header."""
        return self._read_term((response, None))

    def _is_vouched(self, member: str, now: float) -> bool:
        """Whether `member` has just shown that it knows a leader."""
        vouched, when = self._vouched
        return now - when < _VOUCHED_FOR and vouched == member

    # -- hooks of the mixin -----------------------------------------------------------------

    def _list_members(self) -> Iterable[str]:
        return tuple(self._settings.members) if self._discovery is None else self._discovery.members

    def _classify(self, request: Call) -> Operation:
        return request.operation

    def _classify_error(self, error: Exception, request: Call) -> FailureKind:
        return request.failure_kind(error)

    def _read_term(self, reply: Reply) -> tuple[int | None, int | None]:
        response = reply[0]
        if self._router.tracker.leader is not None:  # then a hint at it is of no use
            now = perf_counter()
            if now < self._term_due:
                return None, None
            self._term_due = now + _TERM_INTERVAL
            try:
                term: int = response.header.raft_term
            except AttributeError:
                return None, None
            return term or None, None
        header = read_header(response)
        if header is None:
            return None, None
        return header.raft_term or None, header.leader_id or None

    def _status(self, member: Endpoint, status: Status) -> MemberStatus:
        """Return what the leadership has to know of a member's answer."""
        if self._discovery is not None:
            self._discovery.polled(str(member), status.header.member_id)
        return MemberStatus(
            status.raft_term, status.leader_id or None, status.header.member_id, status.is_learner
        )

    def _refusal(self, error: grpc.RpcError) -> Exception:
        """Return what it means that there is no status."""
        return StatusRefusedError(error.details()) if error.code() in _REFUSALS else error

    # -- discovery --------------------------------------------------------------------------

    def _start_discovery(self, rng: random.Random | None) -> None:
        """Follow the members if the user has a policy for their addresses."""
        settings, policy = self._settings, self._settings.endpoint_policy
        self._discovery = None
        if policy is not None:
            self._discovery = Discovery(
                settings.members,
                policy,
                has_credentials=settings.credentials is not None,
                rng=rng if rng is not None else random.Random(),
            )

    def _begin_discovery(self, polled: Endpoint) -> Discovery | None:
        """Return what waits for the list of members, after a poll; None if nothing does."""
        discovery = self._discovery
        if discovery is None:
            return None
        discovery.polled(str(polled), None)
        is_due = discovery.begin(now=perf_counter(), term=self._router.tracker.term)
        return discovery if is_due else None

    def _mark_learners(self, discovery: Discovery) -> None:
        for member in discovery.learners:
            self._router.tracker.found_learner(member)

    # -- the rest ---------------------------------------------------------------------------

    def _call_credentials(self, call: Call, member: str) -> grpc.CallCredentials | None:
        """Return the caller's, for TLS only: gRPC refuses them on a plain connection.

        etcd3 passes its token both ways.
        """
        return call.credentials if self._settings.is_secure(member) else None
