"""From kazoo's threads to the event loop of whoever asked, and from there to threads."""

from __future__ import annotations

import asyncio
import inspect
import logging
import threading
from collections.abc import Awaitable, Callable
from contextvars import Context, copy_context
from typing import Any, Final, ParamSpec, TypeVar

from kazoo.handlers.threading import AsyncResult

_LOGGER: Final = logging.getLogger("lb_strategies")

_P = ParamSpec("_P")
_R = TypeVar("_R")

_tasks: Final[set[asyncio.Future[Any]]] = set()
"""What runs by itself: an event loop alone does not keep its tasks alive."""


def deliver(
    loop: asyncio.AbstractEventLoop,
    function: Callable[..., object],
    *args: Any,
    context: Context | None = None,
) -> None:
    """Have `function` called in `loop`; not at all if that is closed, for nobody waits there."""
    try:
        loop.call_soon_threadsafe(function, *args, context=context)
    except RuntimeError:
        if not loop.is_closed():
            raise


def settle(future: asyncio.Future[Any], value: object, error: BaseException | None) -> None:
    """Set `future`, in its loop, unless its task was cancelled meanwhile."""
    if future.done():
        return
    if error is None:
        future.set_result(value)
    else:
        future.set_exception(error)


async def outcome_of(future: asyncio.Future[_R]) -> _R:
    """Wait for `future`; an error that comes together with a cancellation is nobody's."""
    try:
        return await future
    except asyncio.CancelledError:
        if future.done() and not future.cancelled():
            future.exception()  # or asyncio would complain that nobody looked at it
        raise


async def in_thread(function: Callable[_P, _R], *args: _P.args, **kwargs: _P.kwargs) -> _R:
    """Call `function` in a thread of its own; if cancelled, it goes on there.

    The loop's executor has few threads, all of which may be waiting for locks.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[_R] = loop.create_future()

    def work() -> None:
        try:
            value = function(*args, **kwargs)
        except BaseException as error:
            deliver(loop, settle, future, None, error)
        else:
            deliver(loop, settle, future, value, None)

    threading.Thread(target=work, name="lb-zookeeper", daemon=True).start()
    return await outcome_of(future)


def in_background(work: Awaitable[_R]) -> asyncio.Future[_R]:
    """Have `work` done, also if nobody waits for it."""
    task = asyncio.ensure_future(work)
    _tasks.add(task)
    task.add_done_callback(_tasks.discard)
    return task


class Waiter:
    """A future of an event loop that gets what a result of kazoo's gets.

    Args:
        result: of kazoo's.
        done: called with this waiter in one of kazoo's threads, when the result is there.
    """

    def __init__(self, result: AsyncResult, done: Callable[[Waiter], None]) -> None:
        self.result = result
        self.loop = asyncio.get_running_loop()
        self.future: asyncio.Future[Any] = self.loop.create_future()
        self._done = done

    def wait(self) -> None:
        """Begin to wait."""
        self.result.rawlink(self._take)

    def give_up(self, error: BaseException) -> None:
        """Take the result as it is, or `error` if there is none; kazoo will not call any more."""
        if self.result.ready():
            self._take(self.result)
        else:
            deliver(self.loop, settle, self.future, None, error)

    def _take(self, result: AsyncResult) -> None:
        self._done(self)
        deliver(self.loop, settle, self.future, result.value, result.exception)


class LoopCallback:
    """Stands for a watch or listener: kazoo calls it in a thread, and it calls in the loop.

    Equal to another one for the same function and loop, so that kazoo knows it again.

    Args:
        function: of the user's, a plain one or one that returns an awaitable.
        remove: called in the loop when `function` returns True, or its awaitable does.
    """

    def __init__(
        self, function: Callable[[Any], object], remove: Callable[[], None] | None = None
    ) -> None:
        self._function = function
        self._loop = asyncio.get_running_loop()
        self._context = copy_context()
        self._remove = remove

    def __call__(self, value: object) -> None:
        deliver(self._loop, self._tell, value, context=self._context)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, LoopCallback)
            and self._function == other._function
            and self._loop is other._loop
        )

    def __hash__(self) -> int:
        return hash((self._function, id(self._loop)))

    def _tell(self, value: object) -> None:
        try:
            outcome = self._function(value)
        except Exception:
            _LOGGER.exception("a callback failed")
            return
        if inspect.isawaitable(outcome):
            in_background(self._finish(outcome))
        else:
            self._end(outcome)

    async def _finish(self, outcome: Awaitable[object]) -> None:
        try:
            self._end(await outcome)
        except Exception:
            _LOGGER.exception("a callback failed")

    def _end(self, outcome: object) -> None:
        if outcome is True and self._remove is not None:
            self._remove()
