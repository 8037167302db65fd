"""How to measure on a machine that has other things to do as well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, TypeVar

import pytest

from . import library

T = TypeVar("T")


async def at_best(
    measure: Callable[[], Awaitable[T]], holds: Callable[[T], bool], *, attempts: int = 3
) -> T:
    """Measure until the result holds, and return the last one.

    For what only a machine without a free CPU can spoil. Each attempt must start from scratch, and
    the fault that is looked for must show in every one, so that it fails them all.
    """
    for _ in range(attempts - 1):
        found = await measure()
        if holds(found):
            return found
    return await measure()


@contextmanager
def sleeping() -> Iterator[list[float]]:
    """Collect how long the client library sleeps inside the block, in seconds of each pause.

    Counted as it asks for them: how long a read takes depends on the machine, this does not.
    """
    pauses: list[float] = []
    sleep, asynchronous = time.sleep, asyncio.sleep

    def noted(seconds: float) -> None:
        pauses.append(seconds)
        sleep(seconds)

    async def noted_by_loop(delay: float, result: Any = None) -> Any:
        pauses.append(delay)
        return await asynchronous(delay, result)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(time, "sleep", noted)
        patch.setattr(asyncio, "sleep", noted_by_loop)
        # These have taken it by name.
        patch.setattr(import_module(f"{library.NAME}.retry"), "sleep", noted)
        patch.setattr(import_module(f"{library.NAME}.asyncio.retry"), "sleep", noted_by_loop)
        yield pauses
