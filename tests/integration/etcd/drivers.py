"""Both routing channels behind one blocking face, so that one suite runs over both."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from queue import SimpleQueue
from typing import Any, Protocol

import grpc

from lb_strategies_etcd import AsyncRoutingChannel, RoutingChannel


class Driver(Protocol):
    """One routing channel.

    Args:
        endpoints: of the members.
        options: of the channel.
    """

    cancelled_error: type[BaseException]
    channel: Any

    def __init__(self, endpoints: Iterable[str], **options: Any) -> None: ...

    def call(self, method: Any, request: Any, **options: Any) -> Any:
        """Return the response of a method of a stub."""
        ...

    def with_call(self, method: Any, request: Any, **options: Any) -> tuple[Any, grpc.StatusCode]:
        """Return the response and how the call ended."""
        ...

    def start(self, method: Any, request: Any, **options: Any) -> Any:
        """Start a call; it has `cancel`, `cancelled` and `done`."""
        ...

    def result(self, started: Any) -> Any:
        """Wait for a call that was started."""
        ...

    def open(self, method: Any, *requests: Any) -> tuple[Any, Callable[[Any], None]]:
        """Open a stream that sends `requests`; return it, and what sends more."""
        ...

    def read(self, stream: Any) -> Any:
        """Return the next response of a stream."""
        ...

    def read_all(self, method: Any, request: Any) -> list[Any]:
        """Return all responses of a method with one request."""
        ...

    def sleep(self, seconds: float) -> None:
        """Wait, while the channel goes on in the background."""
        ...

    def wait_for_leader(self) -> str | None:
        """Return the leader's endpoint."""
        ...

    def close(self) -> None:
        """Close the channel."""
        ...

    def end(self) -> None:
        """Close the channel and what it ran in."""
        ...


class Threads:
    """The channel of threads."""

    cancelled_error: type[BaseException] = grpc.FutureCancelledError

    def __init__(self, endpoints: Iterable[str], **options: Any) -> None:
        self.channel = RoutingChannel(endpoints, **options)
        self._sources: list[SimpleQueue[Any]] = []

    def call(self, method: Any, request: Any, **options: Any) -> Any:
        return method(request, **options)

    def with_call(self, method: Any, request: Any, **options: Any) -> tuple[Any, grpc.StatusCode]:
        response, call = method.with_call(request, **options)
        return response, call.code()

    def start(self, method: Any, request: Any, **options: Any) -> Any:
        return method.future(request, **options)

    def result(self, started: Any) -> Any:
        return started.result(timeout=20)

    def open(self, method: Any, *requests: Any) -> tuple[Any, Callable[[Any], None]]:
        waiting: SimpleQueue[Any] = SimpleQueue()
        for request in requests:
            waiting.put(request)
        self._sources.append(waiting)
        return method(iter(waiting.get, None)), waiting.put

    def read(self, stream: Any) -> Any:
        return next(stream)

    def read_all(self, method: Any, request: Any) -> list[Any]:
        return list(method(request))

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def wait_for_leader(self) -> str | None:
        leader = self.channel.wait_for_leader()
        return None if leader is None else str(leader)

    def close(self) -> None:
        self.channel.close()

    def end(self) -> None:
        self.close()
        for source in self._sources:
            source.put(None)


class Tasks:
    """The channel of asyncio; its loop runs while something is asked of it."""

    cancelled_error: type[BaseException] = asyncio.CancelledError

    def __init__(self, endpoints: Iterable[str], **options: Any) -> None:
        self._runner = asyncio.Runner()
        self.channel = AsyncRoutingChannel(endpoints, **options)

    def _wait(self, work: Awaitable[Any]) -> Any:
        async def wait() -> Any:
            return await work

        return self._runner.run(wait())

    def _begin(self, method: Any, *arguments: Any, **options: Any) -> Any:
        async def begin() -> Any:
            return method(*arguments, **options)

        return self._runner.run(begin())

    def call(self, method: Any, request: Any, **options: Any) -> Any:
        async def call() -> Any:
            return await method(request, **options)

        return self._runner.run(call())

    def with_call(self, method: Any, request: Any, **options: Any) -> tuple[Any, grpc.StatusCode]:
        async def with_call() -> Any:
            call = method(request, **options)
            return await call, await call.code()

        response, code = self._runner.run(with_call())
        return response, code

    def start(self, method: Any, request: Any, **options: Any) -> Any:
        return self._begin(method, request, **options)

    def result(self, started: Any) -> Any:
        return self._wait(asyncio.wait_for(_await(started), 20))

    def open(self, method: Any, *requests: Any) -> tuple[Any, Callable[[Any], None]]:
        waiting: asyncio.Queue[Any] = asyncio.Queue()
        for request in requests:
            waiting.put_nowait(request)

        async def source() -> AsyncIterator[Any]:
            while True:
                yield await waiting.get()

        return self._begin(method, source()), waiting.put_nowait

    def read(self, stream: Any) -> Any:
        return self._wait(anext(stream))

    def read_all(self, method: Any, request: Any) -> list[Any]:
        async def read_all() -> list[Any]:
            return [response async for response in method(request)]

        responses: list[Any] = self._runner.run(read_all())
        return responses

    def sleep(self, seconds: float) -> None:
        self._wait(asyncio.sleep(seconds))

    def wait_for_leader(self) -> str | None:
        leader = self._wait(self.channel.wait_for_leader())
        return None if leader is None else str(leader)

    def close(self) -> None:
        self._wait(self.channel.close())

    def end(self) -> None:
        self.close()
        self._runner.close()


async def _await(call: Any) -> Any:
    return await call


DRIVERS: list[type[Driver]] = [Threads, Tasks]
