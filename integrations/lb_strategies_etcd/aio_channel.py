"""A `grpc.aio.Channel` over all members of an etcd cluster."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakSet

import grpc.aio

from lb_strategies import (
    AsyncConsensusRoutingMixin,
    ConsensusOptions,
    EndpointPolicy,
    FailureKind,
    LoadBalancingStrategy,
    MemberStatus,
    OperationClass,
    Pick,
    Policy,
)
from lb_strategies.membership import Endpoint

from ._auth import Tokens
from ._call import LEADER_METADATA, Call
from ._connectivity import best
from ._discovery import LIST_TIMEOUT
from ._links_aio import AsyncLinks
from ._metadata_aio import LEADER, NONE
from ._resumption import Resumption, resumption_of
from ._routing import Reply, Routing
from ._settings import ChannelOptions, Settings
from ._streams_aio import AsyncRoutedStream
from ._stubs_aio import (
    AsyncRoutedStreamStream,
    AsyncRoutedStreamUnary,
    AsyncRoutedUnaryStream,
    AsyncRoutedUnaryUnary,
)
from ._wire import (
    AUTHENTICATE,
    MEMBER_LIST,
    STATUS,
    AuthenticateRequest,
    MemberListRequest,
    Rpc,
    StatusRequest,
)

_RequestT = TypeVar("_RequestT")
_ResponseT = TypeVar("_ResponseT")
_StreamT = TypeVar("_StreamT", bound=AsyncRoutedStream)

_UNSET: Final = object()


class AsyncRoutingChannel(Routing, AsyncConsensusRoutingMixin[Call, Reply], grpc.aio.Channel):
    """Sends each RPC of etcd to the member it belongs to.

    Any client or generated stub works over it as over a plain channel. Writes go to the leader,
    linearizable reads are spread over the healthy voters; learners are skipped. What cannot have
    been executed is tried again on other members, within the caller's time-out.

    It may be made anywhere, and works in the event loop that it is first used in. A loop that
    comes after that one gets connections of its own (two ``asyncio.run``, one after the other);
    while the first is still running, another one gets a ``RuntimeError``.

    Args:
        endpoints: the members, as ``host:port`` or URLs.
        strategy: how reads are spread, and whether writes are pinned.
        options: tunables; the defaults if None.
        credentials: for TLS. Each member's certificate is checked for its own name.
        channel_options: for the plain channels to the members.
        channels_per_member: connections to each member, 1 to 64.
        user: name to authenticate with, if the cluster wants that; tokens are renewed.
        password: of that user.
        resume_watches: whether a watch whose member fails goes on at another one, with nothing
            lost and nothing twice.
        endpoint_policy: which of the addresses that members advertise may be dialled; with it,
            members that join and leave are followed, without it `endpoints` are all there is.
        interceptors: of the plain channels to the members, for ``grpc.aio`` has no other way to
            intercept: they see each attempt, and the polls too.
        rng: source of randomness; a new one if None.

    Raises:
        ValueError: an endpoint, the strategy or an option is out of range.
        TypeError: an argument is of another type.
    """

    _links: AsyncLinks

    def __init__(
        self,
        endpoints: Iterable[str],
        *,
        strategy: LoadBalancingStrategy | Policy | str = LoadBalancingStrategy.HYBRID,
        options: ConsensusOptions | None = None,
        credentials: grpc.ChannelCredentials | None = None,
        channel_options: ChannelOptions | None = None,
        channels_per_member: int = 1,
        user: str | None = None,
        password: str | None = None,
        resume_watches: bool = False,
        endpoint_policy: EndpointPolicy | None = None,
        interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
        rng: random.Random | None = None,
    ) -> None:
        self._settings = Settings(
            endpoints,
            credentials=credentials,
            channel_options=channel_options,
            channels_per_member=channels_per_member,
            user=user,
            password=password,
            endpoint_policy=endpoint_policy,
        )
        self._tokens = Tokens(user, password)
        self._authenticating = asyncio.Lock()
        self._resume_watches = resume_watches
        self._are_intercepted = bool(interceptors)
        self._links = AsyncLinks(self._settings, tuple(interceptors or ()))
        self._streams: WeakSet[AsyncRoutedStream] = WeakSet()
        self._tasks: set[asyncio.Task[None]] = set()
        self._member_list = self.unary_unary(
            MEMBER_LIST.path, MEMBER_LIST.serialize, MEMBER_LIST.parse
        )
        self._start_discovery(rng)
        self._start_routing(strategy, options=options, rng=rng)

    def __repr__(self) -> str:
        return f"<AsyncRoutingChannel to {', '.join(self._settings.members)}>"

    # -- grpc.aio.Channel -------------------------------------------------------------------

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool = False,
    ) -> AsyncRoutedUnaryUnary:
        """Return the callable of a method with one request and one response."""
        return AsyncRoutedUnaryUnary(
            self,
            self._links,
            method,
            lambda channel: channel.unary_unary(
                method, request_serializer, response_deserializer, _registered_method
            ),
        )

    def unary_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool = False,
    ) -> AsyncRoutedUnaryStream:
        """Return the callable of a method with one request and a stream of responses."""
        return AsyncRoutedUnaryStream(
            self,
            self._links,
            method,
            lambda channel: channel.unary_stream(
                method, request_serializer, response_deserializer, _registered_method
            ),
        )

    def stream_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool = False,
    ) -> AsyncRoutedStreamUnary:
        """Return the callable of a method with a stream of requests and one response."""
        return AsyncRoutedStreamUnary(
            self,
            self._links,
            method,
            lambda channel: channel.stream_unary(
                method, request_serializer, response_deserializer, _registered_method
            ),
        )

    def stream_stream(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool = False,
    ) -> AsyncRoutedStreamStream:
        """Return the callable of a method with streams of requests and responses."""
        return AsyncRoutedStreamStream(
            self,
            self._links,
            method,
            lambda channel: channel.stream_stream(
                method, request_serializer, response_deserializer, _registered_method
            ),
        )

    def get_state(self, try_to_connect: bool = False) -> grpc.ChannelConnectivity:
        """Return the state of the best connection to any member."""
        if self._links.is_closed:
            return grpc.ChannelConnectivity.SHUTDOWN
        return best([channel.get_state(try_to_connect) for channel in self._channels()])

    async def wait_for_state_change(self, last_observed_state: grpc.ChannelConnectivity) -> None:
        """Wait until `get_state` returns something else than `last_observed_state`."""
        while self.get_state() is last_observed_state:
            changes = [
                asyncio.ensure_future(channel.wait_for_state_change(channel.get_state()))
                for channel in self._channels()
            ]
            try:
                await asyncio.wait(changes, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for change in changes:
                    change.cancel()

    async def channel_ready(self) -> None:
        """Wait until any member is connected."""
        while (state := self.get_state(True)) is not grpc.ChannelConnectivity.READY:
            await self.wait_for_state_change(state)

    async def close(self, grace: float | None = None) -> None:
        """Close every connection, for good.

        Args:
            grace: seconds that what is in flight is given to end; then it is cancelled.
        """
        self._links.is_closed = True  # first, or a request could have polls begin again
        await self._stop_routing()
        await self._links.close(grace)
        for task in tuple(self._tasks):
            task.cancel()

    async def __aenter__(self) -> AsyncRoutingChannel:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed, for good."""
        return self._links.is_closed

    # -- for the callables ------------------------------------------------------------------

    def start(self, call: Call, timeout: float | None) -> tuple[Pick, Any]:
        """Choose the member for `call` and send it there, within `timeout` seconds.

        Returns:
            The pick, and gRPC's own call: None if it cannot begin without waiting for a token, or
            would not tell of its own end.
        """
        if self._links.is_closed or not self._polls.is_running:
            self._keep_polling()
        router, operation = self._router, call.operation
        pick = router.acquire(operation, now=perf_counter())
        try:
            member = str(pick.state.endpoint)
            if self._are_intercepted or (
                self._tokens.user is not None and self._tokens.is_missing(member)
            ):
                return pick, None
            return pick, self.begin(call, member, router.limit(operation, pick, timeout))
        except BaseException:
            self.failed(call, pick, FailureKind.CANCELLED)
            raise

    def begin(
        self, call: Call, member: str, timeout: float | None, message: object = _UNSET
    ) -> Any:
        """Send `call` to `member` and return gRPC's own call; `message` in the place of its own."""
        tokens = self._tokens
        metadata: Any = call.sent_metadata(
            None if tokens.user is None else tokens.get(member),
            is_vouched=call.operation.kind is OperationClass.WRITE
            and self._is_vouched(member, perf_counter()),
        )
        if not self._are_intercepted:
            if metadata is None:
                metadata = NONE
            elif metadata is LEADER_METADATA:
                metadata = LEADER
        return call.stub.on(member)(
            call.message if message is _UNSET else message,
            timeout=timeout,
            metadata=metadata,
            credentials=None if call.credentials is None else self._call_credentials(call, member),
            compression=call.compression,
        )

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Have `work` done in a task, which ends with the channel."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    @property
    def authenticates(self) -> bool:
        """Whether this channel has a user of its own."""
        return self._tokens.user is not None

    def has_to_authenticate(self, member: str, *, anew: bool) -> bool:
        """Whether a token has to be got from `member` first, even if there is one if `anew`."""
        return self._tokens.is_missing(member) or (anew and self.authenticates)

    async def prepare(self, member: str, timeout: float | None) -> None:
        """See to it that there is a token for `member`, if one is needed."""
        if self._tokens.is_missing(member):
            await self._authenticate(member, timeout)

    async def authenticate(self, member: str, timeout: float | None) -> None:
        """Get a new token from `member`."""
        await self._authenticate(member, timeout)

    def resumption_of(self, call: Call) -> Resumption:
        """Return what to do when the member of a stream fails."""
        return resumption_of(
            call.operation,
            resume_watches=self._resume_watches,
            has_user=self._tokens.user is not None,
        )

    def follow(self, stream: _StreamT) -> _StreamT:
        """Have `stream` told whenever more is known of the members; return it."""
        self._streams.add(stream)
        return stream

    # -- hooks of the mixin -----------------------------------------------------------------

    async def _send_to(self, member: Endpoint, request: Call, timeout: float | None) -> Reply:
        name = str(member)
        await self.prepare(name, timeout)
        inner = self.begin(request, name, timeout)
        return await inner, inner

    async def _probe_member(self, member: Endpoint, timeout: float) -> MemberStatus:
        try:
            status = await self._ask(STATUS, StatusRequest(), str(member), timeout)
        except grpc.RpcError as error:
            raise self._refusal(error) from error
        return self._status(member, status)

    async def _authenticate(self, member: Endpoint, timeout: float | None) -> None:
        name = str(member)
        user, password = self._tokens.user, self._tokens.password
        if user is None or password is None:
            return  # the caller's own token is the caller's to renew: it hears of it next
        before = self._tokens.get(name)
        async with self._authenticating:
            if self._tokens.get(name) is before:
                request = AuthenticateRequest(user, password)
                answer = await self._ask(AUTHENTICATE, request, name, timeout)
                self._tokens.set(name, answer.token)

    async def _poll(self, member: Endpoint) -> None:
        await super()._poll(member)
        leader, answering = self._router.tracker.leader, self._router.tracker.answering
        for stream in list(self._streams):
            stream.follow(leader, answering)
        await self._discover(member)

    async def _discover(self, polled: Endpoint) -> None:
        """Ask for the members if it is time for that, and do without those that left."""
        discovery = self._begin_discovery(polled)
        if discovery is None:
            return
        before = discovery.members
        try:
            answer = await self._member_list(MemberListRequest(), timeout=LIST_TIMEOUT)
        except Exception as error:
            discovery.failed(error)
            return
        has_changed = discovery.listed(answer, now=perf_counter())
        # What was in use until now goes on until the next list, for calls may be in flight.
        await self._links.keep((*before, *discovery.members))
        self._tokens.keep((*before, *discovery.members))
        if has_changed:
            self._update_members()
        self._mark_learners(discovery)

    def _keep_polling(self) -> None:
        self._bind()
        super()._keep_polling()

    # -- the rest ---------------------------------------------------------------------------

    def _bind(self) -> None:
        if self._links.bind():
            self._authenticating = asyncio.Lock()
            self._streams.clear()
            self._tasks.clear()

    def _channels(self) -> list[Any]:
        """Return one channel to each member."""
        self._bind()
        return [self._links.get(str(member)).channels[0] for member in self._router.tracker.members]

    async def _ask(
        self,
        rpc: Rpc[_RequestT, _ResponseT],
        request: _RequestT,
        member: str,
        timeout: float | None,
    ) -> _ResponseT:
        """Ask `member` something of our own."""
        stub = self._links.get(member).stub(
            rpc, lambda channel: channel.unary_unary(rpc.path, rpc.serialize, rpc.parse)
        )
        token = self._tokens.get(member)
        metadata = None if token is None or rpc is AUTHENTICATE else (("token", token),)
        response: _ResponseT = await stub(request, timeout=timeout, metadata=metadata)
        return response
