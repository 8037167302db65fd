"""Stand-ins for the messages of a client, with the fields that classifying looks at."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Range:
    range_end: bytes = b""
    limit: int = 0
    serializable: bool = False
    keys_only: bool = False
    count_only: bool = False


@dataclass
class Op:
    """One operation of a transaction: a range, a transaction, or the name of another kind."""

    of: Range | Txn | str

    def WhichOneof(self, group: str) -> str:
        assert group == "request"
        if isinstance(self.of, str):
            return self.of
        return "request_range" if isinstance(self.of, Range) else "request_txn"

    @property
    def request_range(self) -> Range:
        assert isinstance(self.of, Range)
        return self.of


@dataclass
class Txn:
    success: list[Op] = field(default_factory=list)
    failure: list[Op] = field(default_factory=list)


@dataclass
class MemberListRequest:
    linearizable: bool = False
