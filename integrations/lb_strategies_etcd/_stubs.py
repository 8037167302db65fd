"""The callables that stubs get from a routing channel: threads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any

import grpc

from ._call import Call, as_metadata
from ._future import RoutedFuture
from ._methods import classify

if TYPE_CHECKING:
    from .channel import RoutingChannel

_Metadata = Iterable[tuple[str, str | bytes]] | None


class _Routed:
    """What all four kinds have in common.

    Args:
        channel: the routing channel.
        method: path of the RPC.
        make: makes the plain callable on a member's channel.
    """

    def __init__(
        self, channel: RoutingChannel, method: str, make: Callable[[grpc.Channel], Any]
    ) -> None:
        self._channel = channel
        self._method = method
        self._make = make

    def on(self, member: str) -> Any:
        """Return the plain callable on `member`."""
        return self._channel.link(member).stub(self, self._make)

    def _call(
        self,
        message: object,
        metadata: _Metadata,
        credentials: grpc.CallCredentials | None,
        compression: grpc.Compression | None,
        *,
        with_call: bool = False,
    ) -> Call:
        return Call(
            self,
            classify(self._method, message),
            message,
            as_metadata(metadata),
            credentials,
            compression,
            with_call,
        )


class RoutedUnaryUnary(_Routed, grpc.UnaryUnaryMultiCallable):
    """A call that goes where its operation belongs, and again if that can do no harm.

    `wait_for_ready` changes nothing: what could not be sent is tried on the other members, until
    the time-out or for the channel's ``retry_for`` seconds.
    """

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the response; see the class."""
        call = self._call(request, metadata, credentials, compression)
        return self._channel.unary(call, timeout)[0]

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, Any]:
        """Return the response and the RPC that brought it."""
        call = self._call(request, metadata, credentials, compression, with_call=True)
        return self._channel.unary(call, timeout)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> RoutedFuture:
        """Return at once; the future has the response."""
        call = self._call(request, metadata, credentials, compression)
        return RoutedFuture(self._channel, call, timeout)


class RoutedUnaryStream(_Routed, grpc.UnaryStreamMultiCallable):
    """A stream of responses from one member."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return an iterator of the responses."""
        call = self._call(request, metadata, credentials, compression)
        return self._channel.stream(call, timeout)


class RoutedStreamUnary(_Routed, grpc.StreamUnaryMultiCallable):
    """A stream of requests to one member; etcd has none, so none is ever opened again."""

    def __call__(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the response."""
        call = self._call(None, metadata, credentials, compression)
        return self._channel.open(call, self._channel.assign(call), request_iterator, timeout)

    def with_call(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, Any]:
        """Return the response and the RPC that brought it."""
        future = self.future(request_iterator, timeout, metadata, credentials, None, compression)
        return future.result(), future

    def future(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the member's own future."""
        call = self._call(request_iterator, metadata, credentials, compression)
        return self._channel.begin(call, self._channel.assign(call), timeout)


class RoutedStreamStream(_Routed, grpc.StreamStreamMultiCallable):
    """A stream of requests and responses with one member."""

    def __call__(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: _Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return an iterator of the responses, which is the RPC as well."""
        call = self._call(None, metadata, credentials, compression)
        return self._channel.stream(call, timeout, request_iterator)
