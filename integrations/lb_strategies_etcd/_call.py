"""One RPC on its way, and what is sent along with it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc

from lb_strategies import FailureKind, OperationClass

from ._errors import failure_kind

if TYPE_CHECKING:
    from ._routed import Routed

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

_HAS_LEADER: Final = "hasleader"
_TOKEN: Final = "token"


class Call:
    """What the caller of a routed callable asked for.

    Args:
        stub: what it was called on.
        message: the request.
        metadata: the caller's own.
        credentials: the caller's; sent over secure channels only.
        compression: the caller's.
        with_call: whether the caller wants to see the RPC itself, too.
    """

    __slots__ = (
        "asks_for_leader",
        "compression",
        "credentials",
        "message",
        "metadata",
        "operation",
        "stub",
        "with_call",
    )

    def __init__(
        self,
        stub: Routed,
        message: object,
        metadata: Iterable[tuple[str, str | bytes]] | None,
        credentials: grpc.CallCredentials | None,
        compression: grpc.Compression | None,
        with_call: bool = False,
    ) -> None:
        self.stub = stub
        self.operation = stub.operation or stub.classify(message)
        """What it needs of the store."""
        self.message = message
        # In a form that can be read more than once.
        self.metadata: Metadata | None = None if metadata is None else _as_metadata(metadata)
        self.credentials = credentials
        self.compression = compression
        self.with_call = with_call
        self.asks_for_leader = False
        """Whether the present attempt is to be refused at once by a member without a leader."""

    def sent_metadata(self, token: str | None, *, is_vouched: bool = False) -> Metadata | None:
        """Return what goes along with the next attempt.

        It asks the member to refuse at once if it knows no leader: then nothing has been
        proposed, so that even a write may be sent elsewhere. A read may be anyway, and goes
        without: this costs a fifteenth of a read.

        Args:
            token: that the member gave.
            is_vouched: whether the member has just shown that it knows a leader.
        """
        self.asks_for_leader = asks = not is_vouched and self.operation.kind in _LEADERS
        added = LEADER_METADATA if asks else None
        if token is None and not self.metadata:
            return added
        added = added or ()
        if token is not None:
            added = ((_TOKEN, token), *added)
        if not self.metadata:
            return added
        names = {name for name, _ in added}
        # The caller's own token is for the case that this channel has no user of its own.
        return (*(pair for pair in self.metadata if pair[0] not in names), *added)

    def failure_kind(self, error: Exception) -> FailureKind:
        """Say what the failure of an attempt means."""
        if isinstance(error, grpc.RpcError) and hasattr(error, "code"):
            return failure_kind(error.code(), error.details(), hasleader_sent=self.asks_for_leader)
        return FailureKind.ANSWER  # a mistake of the caller's, such as a channel that is closed


_LEADERS: Final = (
    OperationClass.WRITE,
    OperationClass.LEADER_STREAM,
    OperationClass.STICKY_STREAM,
)
LEADER_METADATA: Final[Metadata] = ((_HAS_LEADER, "true"),)


def _as_metadata(metadata: Iterable[tuple[str, str | bytes]]) -> Metadata:
    return tuple((name, value) for name, value in metadata)
