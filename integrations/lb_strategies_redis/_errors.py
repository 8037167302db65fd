"""What an error of a client library says about the node that caused it.

redis-py and valkey-py have the same errors under the same names, but not the same classes. So
an error is known by the names of the library's classes that it is an instance of.
"""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from lb_strategies import Outcome

from ._library import Library, find_library, library_of

DENIED: Final = frozenset({"AuthenticationError", "AuthorizationError", "NoPermissionError"})
"""What a node does not allow this user. Rights are each server's own and are not replicated, so
others may allow it; only if one does is it the node's fault."""

REDIRECTS: Final = frozenset({"MovedError", "AskError"})

TRY_AGAIN: Final = frozenset({"TryAgainError"})

_OURS: Final = DENIED | {
    "AuthenticationWrongNumberOfArgsError",
    "ExternalAuthProviderError",
    "MaxConnectionsError",
}
"""What the client's own credentials or limits cause."""

UNFIT: Final = frozenset({"BusyLoadingError", "ClusterDownError"})
"""Replies that say: not this node, not now (MASTERDOWN is one). Nothing was executed."""

NO_PERMISSION: Final = frozenset({"NoPermissionError"})

UNFIT_REPLY: Final = NO_PERMISSION | {"ClusterDownError"}
"""Those of one reply of a pipeline that the library does not run again by itself."""

TRANSPORT: Final = frozenset({"ConnectionError", "TimeoutError"})

_CONNECTION_LOST: Final = TRANSPORT | {"InvalidResponse"}


@cache
def _names(kind: Any) -> frozenset[str]:
    return frozenset(cls.__name__ for cls in kind.__mro__ if find_library(cls) is not None)


def is_a(error: BaseException | None, names: frozenset[str]) -> bool:
    """Whether `error` is an instance of a client library's class with one of these names."""
    kind: Any = type(error)
    return not names.isdisjoint(_names(kind))


def has_lost_connection(error: Exception) -> bool:
    """Whether the client has closed the connection that it was reading from."""
    return isinstance(error, UnicodeDecodeError) or is_a(error, _CONNECTION_LOST)


def outcome_of(error: BaseException) -> Outcome:
    """Return what `error` teaches the balancer about the node.

    What the client itself caused (credentials, an exhausted pool) says nothing; an error
    reply such as WRONGTYPE proves that the server works.
    """
    kind: Any = type(unwrap(error))
    return _outcome_of(kind)


@cache
def _outcome_of(kind: Any) -> Outcome:
    names = _names(kind)
    if names & (REDIRECTS | TRY_AGAIN | _OURS):
        return Outcome.REDIRECT
    if names & UNFIT:
        return Outcome.FAILURE
    if "TimeoutError" in names:
        return Outcome.TIMEOUT
    if "ConnectionError" in names:
        return Outcome.FAILURE
    if "ResponseError" in names:
        return Outcome.SUCCESS
    if issubclass(kind, Exception):
        return Outcome.REDIRECT  # of the client's making; the node has no part in it
    return Outcome.CANCELLED  # CancelledError, KeyboardInterrupt, GeneratorExit


def is_node_failure(error: BaseException) -> bool:
    """Whether another node may well answer what this one did not."""
    return outcome_of(error) in (Outcome.FAILURE, Outcome.TIMEOUT)


class StandIn(Exception):
    """Marks an error that stands in for another one. Never seen by the user."""

    cause: Exception


def unfit(cause: Exception) -> Exception:
    """Stand in for an error reply of one node while a read has other nodes to try.

    The client library answers the real errors by reloading the topology and sleeping for
    0.25 s, which is right for the cluster and wrong for one replica.
    """
    return stand_in("ResponseError", library_of(type(cause)), cause)


def unfit_reply(cause: Exception, library: Library) -> Exception:
    """Do the same for one result of a pipeline: the library runs this type again by itself."""
    return stand_in("TryAgainError", library, cause)


def stand_in(name: str, library: Library, cause: Exception, kind: Any = StandIn) -> Exception:
    """Return an error of the library's class `name` that stands in for another."""
    error: Any = joined(kind, name, library)(*cause.args)
    error.cause = cause
    return error


@cache
def joined(kind: Any, name: str, library: Library) -> Any:
    """Return the class that is both `kind`, which is ours, and the library's class `name`."""
    bases = (kind, getattr(library.exceptions, name))
    return type(kind.__name__, bases, {"__module__": kind.__module__, "__doc__": kind.__doc__})


def unwrap(error: BaseException) -> BaseException:
    """Return what the user should see of `error`."""
    return error.cause if isinstance(error, StandIn) else error
