"""The client for event loops, used by a test that waits: what the one for threads is asked.

So that one test tells whether both behave alike.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import threading
from collections.abc import Callable
from typing import Any

from kazoo.handlers.threading import KazooTimeoutError

from lb_strategies_zookeeper import AsyncKazooClient

LIMIT = 60.0
"""Seconds that anything may take."""


class Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="event loop")
        self._thread.start()

    def submit(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Submitted:
        """Call `function` in the loop, and await what it returns if it can be awaited."""

        async def call() -> Any:
            value = function(*args, **kwargs)
            return await value if inspect.isawaitable(value) else value

        return Submitted(asyncio.run_coroutine_threadsafe(call(), self._loop))

    def close(self) -> None:
        """End the thread."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(LIMIT)
        self._loop.close()


class Submitted:
    """What is being done in the loop; stands for a result of kazoo's."""

    def __init__(self, future: concurrent.futures.Future[Any]) -> None:
        self._future = future

    def get(self, timeout: float = LIMIT) -> Any:
        """Wait for it."""
        try:
            return self._future.result(timeout)
        except concurrent.futures.TimeoutError:
            if self._future.done():
                raise
            raise KazooTimeoutError() from None


class BlockingClient:
    """Waits for what `AsyncKazooClient` does; ``*_async`` does not wait, as with kazoo."""

    def __init__(self, client: Any, loop: Loop) -> None:
        self._async_client = client
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        client = self._async_client
        if name.startswith("_"):
            return getattr(client.sync_client, name)
        if name.endswith("_async"):
            method = getattr(client, name.removesuffix("_async"))
            return lambda *args, **kwargs: self._loop.submit(method, *args, **kwargs)
        value = getattr(client, name)
        if not callable(value):
            return value
        return lambda *args, **kwargs: self._loop.submit(value, *args, **kwargs).get()

    def with_options(self, **options: Any) -> BlockingClient:
        """Return such a view of a view."""
        return BlockingClient(self._async_client.with_options(**options), self._loop)


def connect(hosts: str, loop: Loop, **options: Any) -> BlockingClient:
    """Start a client in `loop`."""
    client = BlockingClient(AsyncKazooClient(hosts, **options), loop)
    client.start(timeout=20.0)
    return client
