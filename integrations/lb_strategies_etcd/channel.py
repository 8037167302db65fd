"""A `grpc.Channel` over all members of an etcd cluster."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterable, Iterator
from time import perf_counter
from typing import Any, Final, TypeVar
from weakref import WeakSet

import grpc

from lb_strategies import (
    ConsensusOptions,
    ConsensusRoutingMixin,
    FailureKind,
    LoadBalancingStrategy,
    MemberStatus,
    Operation,
    Policy,
    StatusRefusedError,
)
from lb_strategies.consensus import Plan
from lb_strategies.membership import Endpoint

from ._auth import Tokens
from ._call import Call
from ._connectivity import Connectivity
from ._links import Link, Links
from ._resumption import resumption_of
from ._settings import ChannelOptions, Settings
from ._streams import RoutedStream
from ._stubs import RoutedStreamStream, RoutedStreamUnary, RoutedUnaryStream, RoutedUnaryUnary
from ._wire import AUTHENTICATE, STATUS, AuthenticateRequest, Rpc, StatusRequest, read_header

_RequestT = TypeVar("_RequestT")
_ResponseT = TypeVar("_ResponseT")

_Reply = tuple[Any, Any]
"""A response, and the RPC that brought it if the caller asked for that."""
_REFUSALS: Final = (grpc.StatusCode.PERMISSION_DENIED, grpc.StatusCode.UNAUTHENTICATED)
"""etcd 3.6 wants the root role for a status, later ones a user."""


class RoutingChannel(ConsensusRoutingMixin[Call, _Reply], grpc.Channel):
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
        rng: source of randomness; a new one if None.

    Raises:
        ValueError: an endpoint, the strategy or an option is out of range.
        TypeError: an argument is of another type.
    """

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
        rng: random.Random | None = None,
    ) -> None:
        self._settings = Settings(
            endpoints,
            credentials=credentials,
            channel_options=channel_options,
            channels_per_member=channels_per_member,
            user=user,
            password=password,
        )
        self._tokens = Tokens(user, password)
        self._authenticating = threading.Lock()
        self._resume_watches = resume_watches
        self._links = Links(self._settings)
        self._streams: WeakSet[RoutedStream] = WeakSet()
        self._connectivity = Connectivity()
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
            method,
            lambda channel: channel.unary_unary(method, request_serializer, response_deserializer),
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
            method,
            lambda channel: channel.unary_stream(method, request_serializer, response_deserializer),
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
            method,
            lambda channel: channel.stream_unary(method, request_serializer, response_deserializer),
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
            method,
            lambda channel: channel.stream_stream(
                method, request_serializer, response_deserializer
            ),
        )

    def subscribe(
        self,
        callback: Callable[[grpc.ChannelConnectivity], None],
        try_to_connect: bool | None = False,
    ) -> None:
        """Have `callback` told of the state of the best connection to any member."""
        channels = [self._links.get(member).channels[0] for member in self._settings.members]
        self._connectivity.subscribe(callback, channels, bool(try_to_connect))

    def unsubscribe(self, callback: Callable[[grpc.ChannelConnectivity], None]) -> None:
        """Tell `callback` no more."""
        self._connectivity.unsubscribe(callback)

    def close(self) -> None:
        """Close every connection, for good; what is in flight is cancelled."""
        self._stop_routing()
        self._links.close()

    def __enter__(self) -> RoutingChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- for the callables ------------------------------------------------------------------

    def link(self, member: str) -> Link:
        """Return the connections to `member`."""
        return self._links.get(member)

    def unary(self, call: Call, timeout: float | None) -> _Reply:
        """Send `call` where it belongs and return the reply."""
        return self._route(call, timeout)

    def plan(self, call: Call, timeout: float | None) -> Plan[_Reply]:
        """Return the plan of `call`, for whoever does not wait in a thread."""
        self._keep_polling()
        return self._router.plan(call.operation, now=perf_counter(), timeout=timeout)

    def begin(self, call: Call, member: str, timeout: float | None) -> Any:
        """Send `call` to `member` and return grpc's future."""
        return self._stub(call, member, timeout).future(
            call.message,
            timeout,
            call.sent_metadata(self._tokens.get(member)),
            self._call_credentials(call, member),
            None,
            call.compression,
        )

    def stream(
        self, call: Call, timeout: float | None, requests: Iterator[Any] | None = None
    ) -> RoutedStream:
        """Open a stream on the member it belongs to."""
        resumption = resumption_of(call.operation, resume_watches=self._resume_watches)
        stream = RoutedStream(self, call, resumption, timeout, requests)
        self._streams.add(stream)
        return stream

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

    def open(self, call: Call, member: str, message: Any, timeout: float | None) -> Any:
        """Open the stream of `call` on `member` and return grpc's own."""
        if self._tokens.user is not None:
            # A watch with an old token does not fail, it is cancelled for want of permission.
            self._authenticate(member, timeout)
        return self._stub(call, member, timeout)(
            message,
            timeout,
            call.sent_metadata(self._tokens.get(member)),
            self._call_credentials(call, member),
            None,
            call.compression,
        )

    def authenticate(self, member: str, timeout: float | None) -> None:
        """Get a new token from `member`."""
        self._authenticate(member, timeout)

    # -- hooks of the mixin -----------------------------------------------------------------

    def _list_members(self) -> Iterable[str]:
        return tuple(self._settings.members)

    def _classify(self, request: Call) -> Operation:
        return request.operation

    def _classify_error(self, error: Exception, request: Call) -> FailureKind:
        return request.failure_kind(error)

    def _read_term(self, reply: _Reply) -> tuple[int | None, int | None]:
        return self.term_of(reply[0])

    def term_of(self, response: object) -> tuple[int | None, int | None]:
        """Return the term and the hint at the leader in the header of a response."""
        header = read_header(response)
        return (
            (None, None) if header is None else (header.raft_term or None, header.leader_id or None)
        )

    def _send_to(self, member: Endpoint, request: Call, timeout: float | None) -> _Reply:
        name = str(member)
        stub = self._stub(request, name, timeout)
        arguments = (
            request.message,
            timeout,
            request.sent_metadata(self._tokens.get(name)),
            self._call_credentials(request, name),
            None,
            request.compression,
        )
        return stub.with_call(*arguments) if request.with_call else (stub(*arguments), None)

    def _probe_member(self, member: Endpoint, timeout: float) -> MemberStatus:
        name = str(member)
        try:
            status = self._ask(STATUS, StatusRequest(), name, timeout)
        except grpc.RpcError as error:
            if error.code() in _REFUSALS:
                raise StatusRefusedError(error.details()) from error
            raise
        return MemberStatus(
            status.raft_term, status.leader_id or None, status.header.member_id, status.is_learner
        )

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
        leader, reachable = self._router.tracker.leader, self._router.tracker.reachable
        for stream in list(self._streams):
            stream.follow(leader, reachable)

    def _keep_polling(self) -> None:
        self._links.check()
        super()._keep_polling()

    # -- the rest ---------------------------------------------------------------------------

    def _stub(self, call: Call, member: str, timeout: float | None) -> Any:
        """Return the plain callable on `member`, to which there is a token if one is needed."""
        if self._tokens.is_missing(member):
            self._authenticate(member, timeout)
        routed: Any = call.stub
        return routed.on(member)

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

    def _call_credentials(self, call: Call, member: str) -> grpc.CallCredentials | None:
        """Return the caller's, for TLS only: gRPC refuses them on a plain connection.

        etcd3 passes its token both ways.
        """
        return call.credentials if self._settings.is_secure(member) else None

    def stream_failed(self, call: Call, member: str, kind: FailureKind) -> None:
        """Take in how a stream ended, for the leadership."""
        self._router.stream_failed(member, call.operation, kind)
