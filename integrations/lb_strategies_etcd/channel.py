"""A `grpc.Channel` over all members of an etcd cluster."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, TypeVar

import grpc

from lb_strategies import (
    ConsensusOptions,
    ConsensusRoutingMixin,
    EndpointPolicy,
    LoadBalancingStrategy,
    MemberStatus,
    OperationClass,
    Policy,
)
from lb_strategies.membership import Endpoint

from ._auth import Tokens
from ._call import Call
from ._connectivity import Connectivity
from ._discovery import LIST_TIMEOUT
from ._links import Links
from ._resumption import resumption_of
from ._routing import Reply, Routing
from ._settings import ChannelOptions, Settings
from ._streams import OpenStreams, RoutedStream
from ._stubs import RoutedStreamStream, RoutedStreamUnary, RoutedUnaryStream, RoutedUnaryUnary
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


class RoutingChannel(Routing, ConsensusRoutingMixin[Call, Reply], grpc.Channel):
    """Sends each RPC of etcd to the member it belongs to.

    Any client or generated stub works over it as over a plain channel. Writes go to the leader,
    linearizable reads are spread over the healthy voters; learners are skipped. What cannot have
    been executed is tried again on other members, within the caller's time-out.

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
        rng: source of randomness; a new one if None.

    Raises:
        ValueError: an endpoint, the strategy or an option is out of range.
        TypeError: an argument is of another type.
    """

    _links: Links

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
        self._authenticating = threading.Lock()
        self._resume_watches = resume_watches
        self._links = Links(self._settings)
        self._streams = OpenStreams()
        self._connectivity = Connectivity()
        self._member_list = self.unary_unary(
            MEMBER_LIST.path, MEMBER_LIST.serialize, MEMBER_LIST.parse
        )
        self._start_discovery(rng)
        self._start_routing(strategy, options=options, rng=rng)

    def __repr__(self) -> str:
        return f"<RoutingChannel to {', '.join(self._settings.members)}>"

    # -- grpc.Channel -----------------------------------------------------------------------

    def unary_unary(
        self,
        method: str,
        request_serializer: Callable[[Any], bytes] | None = None,
        response_deserializer: Callable[[bytes], Any] | None = None,
        _registered_method: bool = False,
    ) -> RoutedUnaryUnary:
        """Return the callable of a method with one request and one response."""
        return RoutedUnaryUnary(
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
    ) -> RoutedUnaryStream:
        """Return the callable of a method with one request and a stream of responses."""
        return RoutedUnaryStream(
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
    ) -> RoutedStreamUnary:
        """Return the callable of a method with a stream of requests and one response."""
        return RoutedStreamUnary(
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
    ) -> RoutedStreamStream:
        """Return the callable of a method with streams of requests and responses."""
        return RoutedStreamStream(
            self,
            self._links,
            method,
            lambda channel: channel.stream_stream(
                method, request_serializer, response_deserializer, _registered_method
            ),
        )

    def subscribe(
        self,
        callback: Callable[[grpc.ChannelConnectivity], None],
        try_to_connect: bool | None = False,
    ) -> None:
        """Have `callback` told of the state of the best connection to any member."""
        channels = [
            self._links.get(str(member)).channels[0] for member in self._router.tracker.members
        ]
        self._connectivity.subscribe(callback, channels, bool(try_to_connect))

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell `callback` no more."""
        self._connectivity.unsubscribe(callback)

    def close(self) -> None:
        """Close every connection, for good; what is in flight is cancelled."""
        self._links.is_closed = True  # first, or a request could have polls begin again
        self._stop_routing()
        self._links.close()

    def __enter__(self) -> RoutingChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_closed(self) -> bool:
        """Whether it has been closed, for good."""
        return self._links.is_closed

    # -- for the callables ------------------------------------------------------------------

    unary = ConsensusRoutingMixin[Call, Reply]._route
    """Send a call where it belongs and return the reply."""

    def begin(self, call: Call, member: str, timeout: float | None) -> Any:
        """Send `call` to `member` and return grpc's future."""
        token = self._token(member, timeout)
        return call.stub.on(member).future(
            call.message,
            timeout,
            call.sent_metadata(token),
            self._call_credentials(call, member),
            None,
            call.compression,
        )

    def stream(
        self, call: Call, timeout: float | None, requests: Iterator[Any] | None = None
    ) -> RoutedStream:
        """Open a stream on the member it belongs to."""
        resumption = resumption_of(
            call.operation,
            resume_watches=self._resume_watches,
            has_user=self._tokens.user is not None,
        )
        stream = RoutedStream(self, call, resumption, timeout, requests)
        self._streams.add(stream)
        return stream

    def open(self, call: Call, member: str, message: Any, timeout: float | None) -> Any:
        """Open the stream of `call` on `member` and return grpc's own."""
        if call.operation.kind is OperationClass.STICKY_STREAM:
            # A watch with an old token does not fail, it is cancelled for want of permission.
            self._authenticate(member, self.retry_for if timeout is None else timeout)
        token = self._token(member, timeout)
        return call.stub.on(member)(
            message,
            timeout,
            call.sent_metadata(token),
            self._call_credentials(call, member),
            None,
            call.compression,
        )

    def authenticate(self, member: str, timeout: float | None) -> None:
        """Get a new token from `member`."""
        self._authenticate(member, timeout)

    # -- hooks of the mixin -----------------------------------------------------------------

    def _send_to(self, member: Endpoint, request: Call, timeout: float | None) -> Reply:
        name, is_write = str(member), request.operation.kind is OperationClass.WRITE
        began = perf_counter() if is_write else 0.0
        token = None if self._tokens.user is None else self._token(name, timeout)
        metadata = None
        if is_write or token is not None or request.metadata:
            is_vouched = is_write and self._is_vouched(name, began)
            metadata = request.sent_metadata(token, is_vouched=is_vouched)
        plain = request.stub.on(name)
        arguments = (
            request.message,
            timeout,
            metadata,
            None if request.credentials is None else self._call_credentials(request, name),
            None,
            request.compression,
        )
        reply = plain.with_call(*arguments) if request.with_call else (plain(*arguments), None)
        if is_write:
            self._vouched = name, began
        return reply

    def _probe_member(self, member: Endpoint, timeout: float) -> MemberStatus:
        name = str(member)
        try:
            status = self._ask(STATUS, StatusRequest(), name, timeout)
        except grpc.RpcError as error:
            raise self._refusal(error) from error
        return self._status(member, status)

    def _authenticate(self, member: Endpoint, timeout: float | None) -> None:
        name = str(member)
        user, password = self._tokens.user, self._tokens.password
        if user is None or password is None:
            return  # the caller's own token is the caller's to renew: it hears of it next
        before = self._tokens.get(name)
        with self._authenticating:
            if self._tokens.get(name) is before:
                answer = self._ask(AUTHENTICATE, AuthenticateRequest(user, password), name, timeout)
                self._tokens.set(name, answer.token)

    def _poll(self, member: Endpoint) -> None:
        super()._poll(member)
        self._streams.follow(self._router.tracker.leader, self._router.tracker.answering)
        self._discover(member)

    def _discover(self, polled: Endpoint) -> None:
        """Ask for the members if it is time for that, and do without those that left."""
        discovery = self._begin_discovery(polled)
        if discovery is None:
            return
        before = discovery.members
        try:
            answer = self._member_list(MemberListRequest(), timeout=LIST_TIMEOUT)
        except Exception as error:
            discovery.failed(error)
            return
        has_changed = discovery.listed(answer, now=perf_counter())
        # What was in use until now goes on until the next list, for calls may be in flight.
        self._links.keep((*before, *discovery.members))
        self._tokens.keep((*before, *discovery.members))
        if has_changed:
            self._update_members()
        self._mark_learners(discovery)

    def _keep_polling(self) -> None:
        if not self._polls.is_running:
            self._links.check()
            super()._keep_polling()
            if self._links.is_closed:  # meanwhile, and polls would go on for ever
                self._stop_routing()

    # -- the rest ---------------------------------------------------------------------------

    def _token(self, member: str, timeout: float | None) -> str | None:
        """Return the token for `member`, which is asked for one first if need be."""
        if self._tokens.is_missing(member):
            self._authenticate(member, timeout)
        return self._tokens.get(member)

    def _ask(
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
        response: _ResponseT = stub(request, timeout, metadata)
        return response
