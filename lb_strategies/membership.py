"""Who there is: the endpoints' records, and the groups of them that were asked for together."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import Final, TypeAlias

from .endpoint import EndpointState
from .errors import NoEndpointError
from .group import Group
from .options import BalancerOptions

Endpoint: TypeAlias = Hashable
"""Anything hashable that names one server process; the adapters use ``"host:port"``."""

_MOST_GROUPS: Final = 4096  # a cluster has one group a shard; beyond this the cache starts anew
_MOST_ALIASES: Final = 64  # tuples cached by identity, a group; the rest is looked up by value


class Membership:
    """The records by endpoint and the groups by candidates; guarded by the balancer's lock.

    Args:
        options: for new records.
    """

    def __init__(self, options: BalancerOptions) -> None:
        self._options = options
        self.states: dict[Endpoint, EndpointState] = {}
        self.groups: dict[tuple[Endpoint, ...], Group] = {}
        self.groups_by_id: dict[int, Group] = {}
        """By the identity of a caller's tuple, which is the same one at nearly every pick."""

    def state(self, endpoint: Endpoint) -> EndpointState:
        """Return the record of `endpoint`, made if new."""
        try:
            state = self.states.get(endpoint)
        except TypeError as error:
            raise TypeError(f"an endpoint must be hashable, got {endpoint!r}") from error
        if state is None:
            state = self.states[endpoint] = EndpointState(endpoint, self._options)
        return state

    def group(self, key: tuple[Endpoint, ...], is_callers: bool) -> Group:
        """Return the group of `key`, made if new; cache the caller's tuple by its identity."""
        group = self._find(key)
        if group is None:
            group = _make_group(key, self.state)
            if len(self.groups) >= _MOST_GROUPS:
                self.groups.clear()
                self.groups_by_id.clear()
            self.groups[key] = group
        if is_callers:
            if len(group.aliases) >= _MOST_ALIASES:
                for alias in group.aliases:
                    self.groups_by_id.pop(id(alias), None)
                group.aliases.clear()
            group.aliases.append(key)
            self.groups_by_id[id(key)] = group
        return group

    def look_up(self, key: tuple[Endpoint, ...]) -> Group:
        """Return the group of `key`, or one to be thrown away; nobody becomes a member."""
        return self._find(key) or _make_group(key, self._known)

    def update(self, members: tuple[Endpoint, ...]) -> None:
        """Make `members` the whole membership: what stays keeps its history."""
        gone = self.states.keys() - members
        if gone:
            for endpoint in gone:
                self.states.pop(endpoint).forget_requests()
            for state in self.states.values():
                state.group = None  # it may hold one that has left
            for candidates in [c for c in self.groups if not gone.isdisjoint(c)]:
                for alias in self.groups.pop(candidates).aliases:
                    self.groups_by_id.pop(id(alias), None)
        for endpoint in members:
            self.state(endpoint)

    def _find(self, key: tuple[Endpoint, ...]) -> Group | None:
        try:
            return self.groups.get(key)
        except TypeError as error:
            raise TypeError(f"an endpoint must be hashable, got {key!r}") from error

    def _known(self, endpoint: Endpoint) -> EndpointState:
        return self.states.get(endpoint) or EndpointState(endpoint, self._options)


def _make_group(key: tuple[Endpoint, ...], record: Callable[[Endpoint], EndpointState]) -> Group:
    members = distinct(key)
    if not members:
        raise NoEndpointError("there are no candidates to choose from")
    return Group(tuple(record(endpoint) for endpoint in members))


def distinct(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return `endpoints` without repetitions, in order.

    Raises:
        TypeError: they are a string, or one is not hashable.
    """
    if isinstance(endpoints, (str, bytes)):
        raise TypeError(f"candidates must be several endpoints, got the string {endpoints!r}")
    try:
        return tuple(dict.fromkeys(endpoints))
    except TypeError as error:
        raise TypeError(
            f"candidates must be an iterable of hashable endpoints, got {endpoints!r}"
        ) from error


def as_tuple(endpoints: Iterable[Endpoint]) -> tuple[Endpoint, ...]:
    """Return `endpoints` if they are a tuple already, else the distinct ones of them."""
    return endpoints if isinstance(endpoints, tuple) else distinct(endpoints)
