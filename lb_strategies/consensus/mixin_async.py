"""What turns the client of a leader-based store into one that routes: asyncio tasks."""

from __future__ import annotations

import asyncio
import random
import time
from abc import ABC, abstractmethod
from collections.abc import Hashable, Iterable
from typing import Final, Generic, TypeVar

from ..balancer import LoadBalancer
from ..endpoint import EndpointStats
from ..membership import Endpoint
from ..pick import Outcome, Pick
from ..policy import Policy
from ..strategy import LoadBalancingStrategy
from .drivers import drive_async
from .leadership import MemberStatus
from .operation import FailureKind, Operation
from .options import ConsensusOptions
from .plan import Authenticate, Failure, Plan, Reply, Send
from .polling import PollTasks
from .router import ConsensusRouter

RequestT = TypeVar("RequestT")
ReplyT = TypeVar("ReplyT")

_clock: Final = time.perf_counter


class AsyncConsensusRoutingMixin(ABC, Generic[RequestT, ReplyT]):
    """Sends writes to the leader and spreads reads, in a client that is used from tasks.

    A subclass implements the hooks, calls `_start_routing` once, and then `_route` for each
    request. The members are polled by a task each, from the first request on, in its event loop.
    See ``docs/your-own-store.md`` for a complete client.
    """

    # -- hooks ------------------------------------------------------------------------------

    @abstractmethod
    def _list_members(self) -> Iterable[Endpoint]:
        """Return the members, at least one; asked when routing starts and by `_update_members`."""

    @abstractmethod
    def _classify(self, request: RequestT) -> Operation:
        """Say what `request` needs of the store. Must not wait."""

    @abstractmethod
    def _classify_error(self, error: Exception, request: RequestT) -> FailureKind:
        """Say what an exception of `_send_to` means. In doubt: `FailureKind.INTERRUPTED`."""

    @abstractmethod
    def _read_term(self, reply: ReplyT) -> tuple[int | None, Hashable | None]:
        """Return the term and the leader's identity in `reply`; None for what it does not tell."""

    @abstractmethod
    async def _probe_member(self, member: Endpoint, timeout: float) -> MemberStatus:
        """Ask `member` for its status, within `timeout` seconds.

        Raises:
            StatusRefusedError: it answered, but does not tell.
            Exception: it did not answer.
        """

    @abstractmethod
    async def _send_to(self, member: Endpoint, request: RequestT, timeout: float | None) -> ReplyT:
        """Send `request` to `member` once, within `timeout` seconds or without end."""

    async def _authenticate(self, member: Endpoint, timeout: float | None) -> None:
        """Get a new token; needed only if `_classify_error` returns UNAUTHENTICATED."""
        raise NotImplementedError(f"{type(self).__name__} cannot authenticate at {member}")

    # -- for the subclass -------------------------------------------------------------------

    def _start_routing(
        self,
        strategy: LoadBalancingStrategy | Policy | str,
        *,
        options: ConsensusOptions | None = None,
        rng: random.Random | None = None,
    ) -> None:
        """Set everything up; nothing is sent yet. Errors as for `ConsensusRouter`."""
        rng = rng if rng is not None else random.Random()
        options = options if options is not None else ConsensusOptions()
        self._polls = PollTasks(self._poll, options, rng)
        self._router = ConsensusRouter(
            self._list_members(), strategy, options=options, rng=rng, refresh=self._polls.refresh
        )

    async def _route(self, request: RequestT, timeout: float | None = None) -> ReplyT:
        """Send `request` where it belongs, again if that can do no harm; return the reply.

        Args:
            request: whatever the hooks understand.
            timeout: seconds in all; None to wait without end.

        Raises:
            Exception: the store client's own, as `_send_to` raised it.
        """
        self._keep_polling()
        operation = self._classify(request)
        router, began = self._router, _clock()
        pick = router.acquire(operation, now=began)
        try:
            limit = router.limit(operation, pick, timeout)
            value = await self._send_to(pick.state.endpoint, request, limit)
            term, leader = self._read_term(value)
        except BaseException as error:
            first = self._first_failure(pick, error, request)
        else:
            router.succeeded(pick, operation, now=_clock(), term=term, leader=leader)
            return value
        plan: Plan[ReplyT] = router.plan(operation, now=began, timeout=timeout, first=pick)
        return await self._retry(plan, request, first)

    def _first_failure(self, pick: Pick, error: BaseException, request: RequestT) -> Failure:
        """Say what the failure of a first attempt means; a hook that fails keeps no pick."""
        kind = FailureKind.CANCELLED
        try:
            if isinstance(error, Exception):
                kind = self._classify_error(error, request)
        except BaseException:
            pick.done(Outcome.CANCELLED, now=_clock())
            raise
        return Failure(error, kind, _clock())

    async def _retry(self, plan: Plan[ReplyT], request: RequestT, first: Failure) -> ReplyT:
        """Do what `plan` says about `request` after its `first` attempt has failed."""

        async def send(step: Send) -> Reply[ReplyT] | Failure:
            try:
                value = await self._send_to(step.endpoint, request, step.timeout)
                term, leader = self._read_term(value)
            except Exception as error:
                return Failure(error, self._classify_error(error, request), _clock())
            return Reply(value, _clock(), term, leader)

        async def authenticate(step: Authenticate) -> None:
            await self._authenticate(step.endpoint, step.timeout)

        return await drive_async(plan, send, authenticate, first=first, clock=_clock)

    def _keep_polling(self) -> None:
        """See to it that the members are polled; to be called whenever something is sent."""
        if not self._polls.is_running:
            self._polls.watch(self._router.tracker.members)

    def _update_members(self) -> None:
        """Ask `_list_members` again; what is known of those that stay is kept."""
        self._router.update(self._list_members())
        if self._polls.is_running:
            self._polls.watch(self._router.tracker.members)

    async def _stop_routing(self) -> None:
        """End the polls; a later request starts them again."""
        await self._polls.stop()

    async def _poll(self, member: Endpoint) -> None:
        try:
            status = await self._probe_member(member, self._router.options.poll_timeout)
        except Exception as error:
            self._router.poll_failed(member, error)
        else:
            self._router.tracker.status(member, status)

    # -- for the user -----------------------------------------------------------------------

    @property
    def leader(self) -> Endpoint | None:
        """The member that writes go to; None while it is not known."""
        return self._router.tracker.leader

    @property
    def leader_term(self) -> int:
        """The highest term seen, >= 0; -1 before there was any."""
        return self._router.tracker.term

    @property
    def load_balancer(self) -> LoadBalancer:
        """What chooses among the members."""
        return self._router.balancer

    def endpoint_stats(self) -> dict[Endpoint, EndpointStats]:
        """Return what is known of every member now."""
        return self._router.balancer.snapshot(now=_clock())

    async def wait_for_leader(self, timeout: float = 5.0) -> Endpoint | None:
        """Wait until the leader is known, at most `timeout` seconds; return it, or None."""
        self._keep_polling()
        deadline = _clock() + timeout
        while self.leader is None and _clock() < deadline:  # noqa: ASYNC110  # as its sibling does
            await asyncio.sleep(0.005)
        return self.leader
