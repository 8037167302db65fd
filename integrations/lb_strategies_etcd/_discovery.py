"""Which members there are, by what they say themselves: no I/O, and told the time.

A member advertises the URLs that its administrator gave it, which need not lead to it from here,
and anybody who can change them could have clients send their passwords elsewhere. So an address is
used only if an `EndpointPolicy` knows it.
"""

from __future__ import annotations

import logging
import math
import random
from collections.abc import Collection, Mapping
from typing import Final

from lb_strategies import EndpointPolicy

from ._endpoints import Endpoint, advertised_endpoint, parse_endpoint
from ._wire import Member, MemberList

_LOGGER: Final = logging.getLogger("lb_strategies")

_INTERVAL: Final = 30.0
"""Seconds between two lists if nothing happens."""
_JITTER: Final = 0.1
_RETRY: Final = 3.0
"""Seconds between two attempts to get a list; more than one may take."""
LIST_TIMEOUT: Final = 2.0
"""Seconds that an attempt may take."""
_MOST_REFUSED: Final = 256


class Discovery:
    """Follows the members of one cluster.

    Args:
        configured: the endpoints that the user gave, by name; they stay whatever is listed.
        policy: which others may be dialled.
        has_credentials: whether there is TLS; without it, no ``https`` URL can be dialled.
        rng: for the jitter.
    """

    def __init__(
        self,
        configured: Mapping[str, Endpoint],
        policy: EndpointPolicy,
        *,
        has_credentials: bool,
        rng: random.Random,
    ) -> None:
        self._configured = tuple(configured)
        self._policy = policy.including(self._configured)
        self._has_credentials = has_credentials
        self._rng = rng
        self._identities: dict[str, int] = {}
        """Who answers at each address."""
        self._unheard = set(self._configured)
        """Those that were not polled yet, so that nobody knows who they are."""
        self._due = self._again = -math.inf
        self._term = -1
        self._refused: set[str] = set()
        self.members: tuple[str, ...] = self._configured
        """All members, the configured ones first."""
        self.learners: frozenset[str] = frozenset()
        """Those of them that do not vote, by the last list."""

    def polled(self, member: str, identity: int | None) -> None:
        """Take in that `member` was polled, and who answered; None if nobody did."""
        self._unheard.discard(member)
        if identity:
            self._identities[member] = identity

    def begin(self, *, now: float, term: int) -> bool:
        """Return whether a list is to be had now: then the caller asks for it.

        It is at the start, from time to time, and when the term has risen, since elections and
        new members often go together.
        """
        if self._unheard or now < self._again or (now < self._due and term <= self._term):
            return False
        self._again = now + _RETRY
        self._term = term
        return True

    def failed(self, error: Exception) -> None:
        """Take in that the list could not be had."""
        self._due = -math.inf
        _LOGGER.debug("the members could not be listed: %r", error)

    def listed(self, answer: MemberList, *, now: float) -> bool:
        """Take in the list; return whether the members are others than before."""
        self._due = now + _INTERVAL * (1.0 + _JITTER * (2.0 * self._rng.random() - 1.0))
        if not answer.members:
            return False  # no cluster is without members
        known = {self._identities.get(name) for name in self._configured}
        found: dict[str, None] = dict.fromkeys(self._configured)
        learners = set()
        for member in answer.members:
            if member.member_id in known:
                continue  # under the name that the user gave it
            name = self._address(member)
            if name is not None:
                found[name] = None
                if member.is_learner:
                    learners.add(name)
        before, self.members = self.members, tuple(found)
        self.learners = frozenset(learners)
        self._identities = {m: i for m, i in self._identities.copy().items() if m in found}
        if self.members == before:
            return False
        _tell(before, self.members)
        return True

    def _address(self, member: Member) -> str | None:
        """Return where to dial `member`; None if nowhere."""
        names = [self._resolve(url) for url in member.client_urls]
        usable = [name for name in names if name is not None]
        return next((n for n in usable if n in self._configured), usable[0] if usable else None)

    def _resolve(self, url: str) -> str | None:
        advertised = advertised_endpoint(url)
        if advertised is None:
            return None
        name = self._policy.resolve(advertised.name)
        if name is None:
            self._refuse(advertised.name, "it is neither configured nor mapped")
            return None
        if name in self._configured:
            return name
        if advertised.scheme == "https" and not self._has_credentials and name == advertised.name:
            self._refuse(name, "it wants TLS, and there are no credentials")
            return None
        try:
            return parse_endpoint(name).name
        except ValueError:
            self._refuse(advertised.name, f"it is mapped to {name!r}, which is no endpoint")
            return None

    def _refuse(self, name: str, reason: str) -> None:
        if name not in self._refused and len(self._refused) < _MOST_REFUSED:
            self._refused.add(name)
            _LOGGER.warning("%s is advertised by a member and not dialled: %s", name, reason)


def _tell(before: Collection[str], after: Collection[str]) -> None:
    joined = [name for name in after if name not in before]
    left = [name for name in before if name not in after]
    if joined:
        _LOGGER.info("joined the cluster: %s", ", ".join(joined))
    if left:
        _LOGGER.info("left the cluster: %s", ", ".join(left))
