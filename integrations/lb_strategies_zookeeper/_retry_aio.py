"""kazoo's retries, in an event loop."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Awaitable, Callable
from typing import ParamSpec, TypeVar

from kazoo.exceptions import ConnectionClosedError
from kazoo.retry import InterruptedError as RetryInterruptedError
from kazoo.retry import KazooRetry, RetryFailedError

_P = ParamSpec("_P")
_R = TypeVar("_R")


async def retry(
    rules: KazooRetry,
    function: Callable[_P, Awaitable[_R]],
    /,
    *args: _P.args,
    **kwargs: _P.kwargs,
) -> _R:
    """Await ``function(*args, **kwargs)`` until it fails with nothing that `rules` retry.

    Raises:
        RetryFailedError: there were as many attempts as there may be, or the deadline has come.
        Exception: what `function` raised, if it is nothing to be retried.
    """
    deadline = None if rules.deadline is None else time.monotonic() + rules.deadline
    delay = rules.delay
    attempts = 0
    while True:
        try:
            return await function(*args, **kwargs)
        except ConnectionClosedError:
            raise
        except rules.retry_exceptions as error:
            attempts += 1
            if attempts == rules.max_tries:
                raise RetryFailedError("Too many retry attempts") from error
            seconds = delay * random.uniform(1.0 - rules.max_jitter, 1.0 + rules.max_jitter)
            if deadline is not None and time.monotonic() + seconds >= deadline:
                raise RetryFailedError("Exceeded retry deadline") from error
        await asyncio.sleep(seconds)
        if rules.interrupt is not None and rules.interrupt():
            raise RetryInterruptedError()
        delay = min(seconds * rules.backoff, rules.max_delay)
