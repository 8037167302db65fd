"""The callables that stubs get from a routing channel: threads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import grpc

from ._call import Call
from ._future import RoutedFuture
from ._routed import Metadata, Routed

if TYPE_CHECKING:
    from .channel import RoutingChannel


class _Routed(Routed):
    _channel: RoutingChannel


class RoutedUnaryUnary(_Routed, grpc.UnaryUnaryMultiCallable):
    """A call that goes where its operation belongs, and again if that can do no harm.

    `wait_for_ready` changes nothing: what could not be sent is tried on the other members, until
    the time-out or for the channel's ``retry_for`` seconds.
    """

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the response; see the class."""
        call = Call(self, request, metadata, credentials, compression)
        return self._channel.unary(call, timeout)[0]

    def with_call(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> tuple[Any, Any]:
        """Return the response and the RPC that brought it."""
        call = Call(self, request, metadata, credentials, compression, with_call=True)
        return self._channel.unary(call, timeout)

    def future(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> RoutedFuture:
        """Return at once; the future has the response."""
        call = Call(self, request, metadata, credentials, compression)
        return RoutedFuture(self._channel, call, timeout)


class RoutedUnaryStream(_Routed, grpc.UnaryStreamMultiCallable):
    """A stream of responses from one member."""

    def __call__(
        self,
        request: Any,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return an iterator of the responses."""
        call = Call(self, request, metadata, credentials, compression)
        return self._channel.stream(call, timeout)


class RoutedStreamUnary(_Routed, grpc.StreamUnaryMultiCallable):
    """A stream of requests to one member; etcd has none, so none is ever opened again."""

    def __call__(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the response."""
        call = Call(self, None, metadata, credentials, compression)
        return self._channel.open(call, self._channel.assign(call), request_iterator, timeout)

    def with_call(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: Metadata = None,
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
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the member's own future."""
        call = Call(self, request_iterator, metadata, credentials, compression)
        return self._channel.begin(call, self._channel.assign(call), timeout)


class RoutedStreamStream(_Routed, grpc.StreamStreamMultiCallable):
    """A stream of requests and responses with one member."""

    def __call__(
        self,
        request_iterator: Iterator[Any],
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return an iterator of the responses, which is the RPC as well."""
        call = Call(self, None, metadata, credentials, compression)
        return self._channel.stream(call, timeout, request_iterator)
