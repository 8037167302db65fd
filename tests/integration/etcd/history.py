"""Writers whose every attempt can be found again in the store's own history.

Each writer has a key of its own and counts: no value is ever meant to be written twice. What the
store did is read from a watch that begins before the first write, over a plain connection.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field

import aetcd.rpc as rpc
import grpc

PREFIX = b"history/"
_END = b"history0"


@dataclass(slots=True)
class Writer:
    """One writer's own view.

    Attributes:
        key: Nobody else writes it.
        compares: Whether it swaps by comparing with its last value, instead of putting.
        acknowledged: The counts whose write was answered.
        uncertain: Those whose write failed in a way that leaves open whether it happened.
        refused: Those that a comparison refused, although nobody else writes the key.
    """

    key: bytes
    compares: bool
    acknowledged: list[int] = field(default_factory=list)
    uncertain: list[int] = field(default_factory=list)
    refused: list[int] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    count: int = 0
    last: int = 0
    """The count that the key holds, as far as is known; 0 for no key."""

    def next_put(self) -> rpc.PutRequest:
        """Return the next write."""
        self.count += 1
        return rpc.PutRequest(key=self.key, value=str(self.count).encode())

    def next_swap(self) -> rpc.TxnRequest:
        """Return the next write, which only applies if the key still holds `last`."""
        put = rpc.RequestOp(request_put=self.next_put())
        if self.last:
            holds = rpc.Compare(
                result=rpc.Compare.EQUAL,
                target=rpc.Compare.VALUE,
                key=self.key,
                value=str(self.last).encode(),
            )
        else:
            holds = rpc.Compare(
                result=rpc.Compare.EQUAL, target=rpc.Compare.VERSION, key=self.key, version=0
            )
        return rpc.TxnRequest(compare=[holds], success=[put])

    def answered(self, *, applied: bool) -> None:
        """Take in an answer to the last write."""
        if applied:
            self.acknowledged.append(self.count)
            self.last = self.count
        else:
            self.refused.append(self.count)

    def failed(self, error: grpc.RpcError) -> None:
        """Take in an error of the last write."""
        self.uncertain.append(self.count)
        self.errors[f"{error.code().name}: {error.details()}"] += 1

    def found(self, value: bytes | None) -> None:
        """Take in what the key holds after an error, for the next comparison."""
        self.last = 0 if value is None else int(value)


class History:
    """What the store did to the keys of all writers, from now on.

    Args:
        endpoint: any member that stays well, as ``host:port``.
    """

    def __init__(self, endpoint: str) -> None:
        self._channel = grpc.insecure_channel(endpoint)
        self._stub = rpc.KVStub(self._channel)
        first = self._stub.Range(rpc.RangeRequest(key=PREFIX, range_end=_END))
        self._from = first.header.revision + 1

    def close(self) -> None:
        """Close the connection."""
        self._channel.close()

    def values(self) -> dict[bytes, list[int]]:
        """Return every value that each key has had, in the order of the store."""
        # A last write of our own tells where the history ends.
        end = self._stub.Put(rpc.PutRequest(key=PREFIX, value=b"0")).header.revision
        create = rpc.WatchCreateRequest(
            key=PREFIX, range_end=_END, start_revision=self._from, prev_kv=False
        )
        read = threading.Event()

        def requests() -> Iterator[rpc.WatchRequest]:
            yield rpc.WatchRequest(create_request=create)
            read.wait(20.0)

        values: dict[bytes, list[int]] = {}
        stream = rpc.WatchStub(self._channel).Watch(requests(), timeout=20.0)
        try:
            for answer in stream:
                for event in answer.events:
                    if event.kv.mod_revision == end:
                        return values
                    values.setdefault(event.kv.key, []).append(int(event.kv.value))
        finally:
            read.set()
            stream.cancel()
        raise AssertionError("the history has no end")


def check(writers: list[Writer], values: dict[bytes, list[int]]) -> None:
    """Compare each writer's view with the store's.

    Every acknowledged write is there exactly once and in order; none is there twice, whether it
    was answered or not; what was refused is not there.
    """
    for writer in writers:
        seen = values.get(writer.key, [])
        counts = Counter(seen)
        twice = [count for count, times in counts.items() if times > 1]
        missing = [count for count in writer.acknowledged if count not in counts]
        assert not twice, f"{writer.key!r} was given twice: {twice} ({writer.errors})"
        assert not missing, f"{writer.key!r} has lost what was answered: {missing}"
        assert not set(writer.refused) & set(counts), f"{writer.key!r}: refused, and yet done"
        # A write whose caller has given up may still come, and spoil the next comparison.
        spoilt = {count + 1 for count in writer.uncertain}
        lost = [count for count in writer.refused if count not in spoilt]
        assert not lost, f"{writer.key!r} lost comparisons with itself, so was sent twice: {lost}"
        answered = set(writer.acknowledged)
        order = [count for count in seen if count in answered]
        assert order == writer.acknowledged, f"{writer.key!r} was written out of order"
        known = {*writer.acknowledged, *writer.uncertain}
        assert set(counts) <= known, f"{writer.key!r} has what nobody wrote"
