"""kazoo's transactions, with an awaitable commit."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from types import TracebackType
from typing import Any, Self

import kazoo.client
from kazoo.client import TransactionRequest
from kazoo.handlers.threading import AsyncResult


class AsyncTransactionRequest(TransactionRequest):
    """Operations that are all done or none; built as kazoo's, and committed in the event loop.

    ::

        async with client.transaction() as transaction:
            transaction.check("/node", version=3)
            transaction.create("/other")

    Args:
        client: kazoo's.
        ask: waits for what the function that it gets returns.
    """

    def __init__(
        self,
        client: kazoo.client.KazooClient,
        ask: Callable[[Callable[[], AsyncResult]], Awaitable[Any]],
    ) -> None:
        super().__init__(client)
        self._ask = ask

    async def commit(self) -> list[object]:
        """Commit; return a result for each operation, which is its error if it was not done."""
        results: list[object] = await self._ask(self.commit_async)
        return results

    def __enter__(self) -> Self:
        raise TypeError("commit takes its time in an event loop: use `async with`")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if exc_type is None:
            await self.commit()
