"""One RPC on its way, and what is sent along with it."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeAlias

import grpc

from lb_strategies import FailureKind, Operation, OperationClass

from ._errors import failure_kind

if TYPE_CHECKING:
    from ._routed import Routed

Metadata: TypeAlias = tuple[tuple[str, str | bytes], ...]

_HAS_LEADER: Final = "hasleader"
_TOKEN: Final = "token"


@dataclass(slots=True)
class Call:
    """What the caller of a routed callable asked for; not to be changed.

    Attributes:
        stub: What it was called on.
        operation: What it needs of the store.
        message: The request.
        metadata: The caller's own.
        credentials: The caller's; sent over secure channels only.
        compression: The caller's.
        with_call: Whether the caller wants to see the RPC itself, too.
    """

    stub: Routed
    operation: Operation
    message: object
    metadata: Metadata | None = None
    credentials: grpc.CallCredentials | None = None
    compression: grpc.Compression | None = None
    with_call: bool = False

    @property
    def asks_for_leader(self) -> bool:
        """Whether a member is to refuse it at once if it knows no leader.

        Then nothing has been proposed, so that even a write may be sent elsewhere. A read may be
        anyway: it goes without, as the member's look at this costs it a fifteenth of a read.
        """
        return self.operation.kind in _LEADERS

    def sent_metadata(self, token: str | None) -> Metadata | None:
        """Return what goes along with it, to a member that gave `token`."""
        added = LEADER_METADATA if self.operation.kind in _LEADERS else None
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


def as_metadata(metadata: Iterable[tuple[str, str | bytes]] | None) -> Metadata | None:
    """Return the caller's metadata in a form that can be read more than once."""
    return None if metadata is None else tuple((name, value) for name, value in metadata)
