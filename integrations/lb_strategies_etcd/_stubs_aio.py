"""The callables that stubs get from a routing channel: asyncio."""

from __future__ import annotations

from collections.abc import AsyncIterable, Iterable
from typing import TYPE_CHECKING, Any, TypeAlias

import grpc.aio

from ._call import Call
from ._future_aio import AsyncRoutedCall
from ._routed import Metadata, Routed
from ._streams_aio import AsyncRoutedStreamStreamCall, AsyncRoutedUnaryStreamCall

if TYPE_CHECKING:
    from .aio_channel import AsyncRoutingChannel

_Requests: TypeAlias = AsyncIterable[Any] | Iterable[Any] | None


class _Routed(Routed):
    _channel: AsyncRoutingChannel


class AsyncRoutedUnaryUnary(_Routed, grpc.aio.UnaryUnaryMultiCallable):
    """A call that goes where its operation belongs, and again if that can do no harm.

    `wait_for_ready` changes nothing: what could not be sent is tried on the other members, until
    the time-out or for the channel's ``retry_for`` seconds.
    """

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> AsyncRoutedCall:
        """Send it, and return the call, to be awaited for the response."""
        call = Call(self, request, metadata, credentials, compression)
        return AsyncRoutedCall(self._channel, call, timeout)


class AsyncRoutedUnaryStream(_Routed, grpc.aio.UnaryStreamMultiCallable):
    """A stream of responses from one member."""

    def __call__(
        self,
        request: Any,
        *,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> AsyncRoutedUnaryStreamCall:
        """Open the stream and return it, to be iterated over."""
        call = Call(self, request, metadata, credentials, compression)
        return self._channel.follow(AsyncRoutedUnaryStreamCall(self._channel, call, timeout))


class AsyncRoutedStreamUnary(_Routed, grpc.aio.StreamUnaryMultiCallable):
    """A stream of requests to one member; etcd has none, so none is ever opened again."""

    def __call__(
        self,
        request_iterator: _Requests = None,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> Any:
        """Return the member's own call. It takes the token that is there, if there is one."""
        call = Call(self, request_iterator, metadata, credentials, compression)
        return self._channel.begin(call, self._channel.assign(call), timeout)


class AsyncRoutedStreamStream(_Routed, grpc.aio.StreamStreamMultiCallable):
    """A stream of requests and responses with one member."""

    def __call__(
        self,
        request_iterator: _Requests = None,
        timeout: float | None = None,
        metadata: Metadata = None,
        credentials: grpc.CallCredentials | None = None,
        wait_for_ready: bool | None = None,
        compression: grpc.Compression | None = None,
    ) -> AsyncRoutedStreamStreamCall:
        """Open the stream and return it, to be iterated over."""
        call = Call(self, None, metadata, credentials, compression)
        return self._channel.follow(
            AsyncRoutedStreamStreamCall(self._channel, call, timeout, request_iterator)
        )
