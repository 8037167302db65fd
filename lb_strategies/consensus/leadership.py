"""Who leads, who votes and who answers, from what the members say."""

from __future__ import annotations

import threading
from collections.abc import Collection, Hashable, Iterable
from dataclasses import dataclass
from typing import Final

from ..forks import renew_after_fork
from ..membership import Endpoint, distinct

UNKNOWN_TERM: Final = -1


class StatusRefusedError(Exception):
    """Raised by a `_probe_member` hook: the member works, but will not say who leads."""


@dataclass(frozen=True, slots=True)
class MemberStatus:
    """What a member says of itself and of the cluster when it is asked.

    Attributes:
        term: The term that it is in, >= 0; ZooKeeper's epoch.
        leader: Identity of the member that it takes for the leader; None if it names none.
        identity: Its own, in the same terms; None if that is its endpoint.
        learner: Whether it takes no part in votes, and so may not serve every read.
        has_leader: Whether it knows of a leader; if not, it can serve nothing but stale reads,
            and others are asked as long as they do. None if that is whether it names one; True
            for a store whose followers do not tell whom they follow.
    """

    term: int
    leader: Hashable | None
    identity: Hashable | None = None
    learner: bool = False
    has_leader: bool | None = None


class LeadershipTracker:
    """Keeps the newest view of the leadership, and who can be asked at all.

    A view counts only at the highest term seen, as in Raft: an older one, or one that knows no
    leader, is ignored. A member that misses polls is out, because one that is paused never
    completes a request and so has no latency to be judged by. So is one that has lost the
    leader, for what needs one: it refuses at once, and no latency tells that either.

    All methods may be called from any thread. The attributes are replaced, never changed, so
    they are read without a lock, and the same tuple is handed to a balancer again and again.

    Args:
        members: the endpoints, in any order.
        max_misses: polls in a row that a member may miss, an int >= 1, before it is out.
    """

    def __init__(self, members: Iterable[Endpoint], *, max_misses: int = 2) -> None:
        if max_misses < 1:
            raise ValueError(f"max_misses must be at least 1, got {max_misses!r}")
        self._max_misses = max_misses
        self._lock = threading.Lock()
        self._members: tuple[Endpoint, ...] = ()
        self._endpoints: dict[Hashable, Endpoint] = {}
        """By the identities that the members gave themselves."""
        self._learners: set[Endpoint] = set()
        self._misses: dict[Endpoint, int] = {}
        self._leaderless: set[Endpoint] = set()
        """Those that said last that there is no leader."""
        self._leader_identity: Hashable | None = None
        self._is_doubted = False
        """Whether a write failed on the leader, which has not spoken for itself since."""
        self.term = UNKNOWN_TERM
        """The highest term seen; -1 before there was any."""
        self.leader: Endpoint | None = None
        """Where writes go; None while that is not known, doubted or not reachable."""
        self.answering: tuple[Endpoint, ...] = ()
        """All that did not miss polls; may be empty."""
        self.reachable: tuple[Endpoint, ...] = ()
        """... everybody if nobody is left."""
        self.replicas: tuple[Endpoint, ...] = ()
        """... the leader left out; may be empty."""
        self.voters: tuple[Endpoint, ...] = ()
        """Those of the reachable that vote, and have a leader if anybody has one; never empty."""
        self.followers: tuple[Endpoint, ...] = ()
        """... the leader left out; may be empty."""
        self.all_voters: tuple[Endpoint, ...] = ()
        """All that vote, reachable or not; for the strategies that look at nothing."""
        self.all_followers: tuple[Endpoint, ...] = ()
        """... the leader left out; may be empty."""
        self.update(members)
        renew_after_fork(self)

    @property
    def members(self) -> tuple[Endpoint, ...]:
        """All members, in the order in which they were given."""
        return self._members

    def update(self, members: Iterable[Endpoint]) -> None:
        """Make `members` the whole membership; what is known of those that stay is kept."""
        with self._lock:
            self._members = distinct(members)
            kept = set(self._members)
            self._learners &= kept
            self._leaderless &= kept
            self._misses = {m: n for m, n in self._misses.items() if m in kept}
            self._endpoints = {i: m for i, m in self._endpoints.items() if m in kept}
            self._settle()

    def status(self, member: Endpoint, status: MemberStatus) -> None:
        """Take in what `member` answered to a poll."""
        identity = member if status.identity is None else status.identity
        with self._lock:
            if member not in self._members:
                return  # it has left meanwhile
            self._misses.pop(member, None)
            if self._endpoints.get(identity) != member:
                # It may be another one than it was, at the same address.
                self._endpoints = {i: m for i, m in self._endpoints.items() if m != member}
                self._endpoints[identity] = member
            _mark(self._learners, member, status.learner)
            self._rise(status.term)
            names_one = status.leader is not None
            has_leader = names_one if status.has_leader is None else status.has_leader
            _mark(self._leaderless, member, not has_leader)
            if status.term == self.term and status.leader is not None:
                if status.leader != self._leader_identity or status.leader == identity:
                    self._is_doubted = False
                self._name(status.leader)
            self._settle()

    def reply(self, term: int, leader: Hashable | None = None) -> bool:
        """Take in the term of any answer; return whether the members should be polled now.

        Args:
            term: the answer's term.
            leader: identity of the leader, if the answer has a hint (etcd 3.8 has). It is only
                a hint: it is believed while nothing better is known.
        """
        if term <= self.term and (leader is None or self.leader is not None):
            return False
        with self._lock:
            has_risen = self._rise(term)
            if leader is not None and term == self.term and self._leader_identity is None:
                self._name(leader)
            self._settle()
        return has_risen

    def failure(self, member: Endpoint) -> None:
        """Take in that a write failed on `member`: if it leads, that is not known any more.

        Followers go on naming it until they have elected another one, or because it is only
        this client that cannot reach it. So it is believed again only when it speaks for itself,
        or at a new term.
        """
        with self._lock:
            if member == self.leader:
                self._is_doubted = True
                self._settle()

    def poll_missed(self, member: Endpoint) -> bool:
        """Take in that `member` did not answer a poll; return whether that puts it out."""
        with self._lock:
            if member not in self._members:
                return False
            self._misses[member] = self._misses.get(member, 0) + 1
            self._settle()
            return self._misses[member] == self._max_misses

    def found_learner(self, member: Endpoint) -> None:
        """Take in that `member` refused what only voters may do."""
        with self._lock:
            if member in self._members:
                self._learners.add(member)
                self._settle()

    def found_leaderless(self, member: Endpoint) -> None:
        """Take in that `member` refused what needs a leader, because it knows none."""
        with self._lock:
            if member in self._members:
                self._leaderless.add(member)
                self._settle()

    def answered(self, member: Endpoint) -> None:
        """Take in that `member` answered a poll, though not what was asked."""
        with self._lock:
            self._misses.pop(member, None)
            self._leaderless.discard(member)  # it does not tell, so it has to be tried
            self._settle()

    def _after_fork_in_child(self) -> None:
        self._lock = threading.Lock()

    def _rise(self, term: int) -> bool:
        if term <= self.term:
            return False
        self.term = term
        self._leader_identity = None
        self._is_doubted = False
        self._leaderless.clear()
        return True

    def _name(self, leader: Hashable) -> None:
        if leader != self._leader_identity:
            self._leader_identity = leader
            named = self._endpoints.get(leader)
            if named is not None:
                self._leaderless.discard(named)  # it said so before it was elected

    def _settle(self) -> None:
        """Work out what is read; a tuple that did not change stays the same object."""
        out = {m for m, misses in self._misses.items() if misses >= self._max_misses}
        named = self._endpoints.get(self._leader_identity)
        is_led = not (named in out or named in self._leaderless or self._is_doubted)
        self.leader = named if is_led else None
        self.answering = _same(self.answering, _without(out, self._members))
        self.reachable = _same(self.reachable, self.answering or self._members)
        self.replicas = _same(self.replicas, _without({named}, self.reachable))
        voting = _without(self._learners, self._members) or self._members
        up = _without(out, voting) or voting
        self.voters = _same(self.voters, _without(self._leaderless, up) or up)
        self.followers = _same(self.followers, _without({named}, self.voters))
        self.all_voters = _same(self.all_voters, voting)
        self.all_followers = _same(self.all_followers, _without({named}, voting))


def _without(
    some: Collection[Endpoint | None], members: tuple[Endpoint, ...]
) -> tuple[Endpoint, ...]:
    return tuple(member for member in members if member not in some)


def _mark(members: set[Endpoint], member: Endpoint, is_so: bool) -> None:
    if is_so:
        members.add(member)
    else:
        members.discard(member)


def _same(old: tuple[Endpoint, ...], new: tuple[Endpoint, ...]) -> tuple[Endpoint, ...]:
    return old if old == new else new
