"""Tokens of etcd's authentication."""

from __future__ import annotations

from collections.abc import Collection


class Tokens:
    """The tokens of one user, one for each member.

    A simple token expires on each member on its own, and a member that has not yet applied the
    entry that made one refuses it. So each member is asked for a token, and is sent no other's.

    Args:
        user: who authenticates; None to do without.
        password: of that user.
    """

    def __init__(self, user: str | None, password: str | None) -> None:
        self.user = user
        self.password = password
        self._tokens: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<Tokens of {self.user!r} from {len(self._tokens)} members>"

    def get(self, member: str) -> str | None:
        """Return the token that `member` gave."""
        return self._tokens.get(member)

    def set(self, member: str, token: str) -> None:
        """Keep the token that `member` gave."""
        self._tokens[member] = token

    def keep(self, members: Collection[str]) -> None:
        """Forget the tokens of all others."""
        for member in tuple(self._tokens):
            if member not in members:
                self._tokens.pop(member, None)

    def forget(self, member: str) -> bool:
        """Do not use the token of `member` again; return whether there can be another one."""
        self._tokens.pop(member, None)
        return self.user is not None

    def is_missing(self, member: str) -> bool:
        """Whether `member` has to be asked for one before anything else is sent there."""
        return self.user is not None and member not in self._tokens
