"""What an error of redis-py says about the node that caused it."""

from __future__ import annotations

from typing import Final

from redis.exceptions import (
    AskError,
    AuthenticationError,
    AuthenticationWrongNumberOfArgsError,
    AuthorizationError,
    BusyLoadingError,
    ClusterDownError,
    ConnectionError,
    ExternalAuthProviderError,
    InvalidResponse,
    MaxConnectionsError,
    MovedError,
    NoPermissionError,
    ResponseError,
    TimeoutError,
    TryAgainError,
)

from lb_strategies import Outcome

UNFIT: Final = (BusyLoadingError, ClusterDownError)
"""Replies that say: not this node, not now (MASTERDOWN is one). Nothing was executed."""

DENIED: Final = (AuthenticationError, AuthorizationError, NoPermissionError)
"""What a node does not allow this user. Rights are each server's own and are not replicated, so
others may allow it; only if one does is it the node's fault."""

_OURS: Final = (
    *DENIED,
    AuthenticationWrongNumberOfArgsError,
    ExternalAuthProviderError,
    MaxConnectionsError,
)
"""What the client's own credentials or limits cause."""

TRANSPORT: Final = (ConnectionError, TimeoutError)

CONNECTION_LOST: Final = (*TRANSPORT, InvalidResponse, UnicodeDecodeError)
"""After these redis-py has closed the connection that it was reading from."""


def outcome_of(error: BaseException) -> Outcome:
    """Return what `error` teaches the balancer about the node.

    What the client itself caused (credentials, an exhausted pool) says nothing; an error
    reply such as WRONGTYPE proves that the server works.
    """
    if isinstance(error, (Unfit, UnfitReply)):
        return outcome_of(error.cause)
    if isinstance(error, (MovedError, AskError, TryAgainError)):
        return Outcome.REDIRECT
    if isinstance(error, _OURS):
        return Outcome.REDIRECT
    if isinstance(error, UNFIT):
        return Outcome.FAILURE
    if isinstance(error, TimeoutError):
        return Outcome.TIMEOUT
    if isinstance(error, ConnectionError):
        return Outcome.FAILURE
    if isinstance(error, ResponseError):
        return Outcome.SUCCESS
    if isinstance(error, Exception):
        return Outcome.REDIRECT  # of the client's making; the node has no part in it
    return Outcome.CANCELLED  # CancelledError, KeyboardInterrupt, GeneratorExit


def is_node_failure(error: BaseException) -> bool:
    """Whether another node may well answer what this one did not."""
    return outcome_of(error) in (Outcome.FAILURE, Outcome.TIMEOUT)


class Unfit(ResponseError):
    """Stands in for an error reply of one node while a read has other nodes to try.

    redis-py answers the real errors by reloading the topology and sleeping for 0.25 s, which
    is right for the cluster and wrong for one replica. Never seen by the user.

    Args:
        cause: the error it stands for.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(*cause.args)
        self.cause = cause


class UnfitReply(TryAgainError):
    """The same for one reply of a pipeline, where redis-py runs this type again by itself.

    Args:
        cause: the error it stands for.
    """

    def __init__(self, cause: Exception) -> None:
        super().__init__(*cause.args)
        self.cause = cause


def unwrap(error: BaseException) -> BaseException:
    """Return what the user should see of `error`."""
    return error.cause if isinstance(error, (Unfit, UnfitReply)) else error
