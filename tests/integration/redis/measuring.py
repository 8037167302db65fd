"""How to see that nobody waits, on a machine that has other things to do as well."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

import pytest

from . import library


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
