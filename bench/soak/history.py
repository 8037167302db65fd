"""Which values have ever been written to each key."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from typing import Literal

Verdict = Literal["right", "missing", "wrong"]


class History:
    """Makes the values that are written, and knows a value that never was.

    The values of a key are numbered and each follows from its number, so the number of the last
    one is all that must be remembered, and a run of any length takes the same memory. Each key has
    one writer; anybody may read, and may get an older value, because replicas lag.

    Args:
        keys: All keys; the first value of each is written before the run.
        seed: Makes the values of one run differ from those of another.
    """

    def __init__(self, keys: Iterable[str], *, seed: int) -> None:
        self._seed = seed
        self._last = dict.fromkeys(keys, 0)

    def first(self, key: str) -> str:
        """Return the value that a key begins with."""
        return self._value(key, 0)

    def next(self, key: str) -> str:
        """Return the value to write now; it counts as written from here on, whatever happens."""
        self._last[key] += 1
        return self._value(key, self._last[key])

    def verdict(self, key: str, value: object) -> Verdict:
        """Say whether `value` was ever written to `key`; None is the answer "no such key"."""
        if value is None:
            return "missing"
        if isinstance(value, bytes):
            value = value.decode(errors="replace")
        if not isinstance(value, str):
            return "wrong"
        number = value.partition("=")[2].partition("-")[0]
        if not number.isdecimal() or int(number) > self._last[key]:
            return "wrong"
        return "right" if value == self._value(key, int(number)) else "wrong"

    def _value(self, key: str, number: int) -> str:
        return f"{key}={number}-{zlib.crc32(f'{self._seed} {key} {number}'.encode()):08x}"
