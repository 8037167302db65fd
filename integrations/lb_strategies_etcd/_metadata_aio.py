"""Metadata in the form that `grpc.aio` would make of it for each call."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import grpc.aio

from ._call import LEADER_METADATA


class FixedMetadata(grpc.aio.Metadata):
    """What most calls are sent with. gRPC copies it into the call, and makes none of its own.

    Not for interceptors, which may add to the metadata of a call.

    Args:
        pairs: names and values.
    """

    def __init__(self, *pairs: tuple[str, str | bytes]) -> None:
        super().__init__(*pairs)
        self._pairs = pairs

    def __bool__(self) -> bool:
        return True  # or gRPC would make another one in the place of an empty one

    def __len__(self) -> int:
        return len(self._pairs)

    def __iter__(self) -> Iterator[tuple[str, str | bytes]]:
        return iter(self._pairs)


NONE: Final = FixedMetadata()
LEADER: Final = FixedMetadata(*LEADER_METADATA)
