"""Telling redis-py 7 or newer at once that a plain read goes by its key.

For a command without a recorded policy redis-py works out the key's slot to see that there
is one, and then works it out again to find the node. These resolvers answer for the reads
that we route anyway, and hand every other name on to the resolver that was there. It spares
about as much time as a pick takes.
"""

from __future__ import annotations

from typing import Any, Final

from redis._parsers.commands import CommandPolicies, RequestPolicy, ResponsePolicy
from redis.commands import READ_COMMANDS
from redis.commands.policies import (
    AsyncPolicyResolver,
    AsyncStaticPolicyResolver,
    PolicyResolver,
    StaticPolicyResolver,
)

_KEYED: Final = CommandPolicies(
    request_policy=RequestPolicy.DEFAULT_KEYED, response_policy=ResponsePolicy.DEFAULT_KEYED
)


def _keyed_reads(command_flags: Any) -> dict[str, CommandPolicies]:
    """Return the policies of the core's reads, less those that go by something else."""
    return {
        name.lower(): _KEYED
        for name in READ_COMMANDS
        if name not in command_flags and "." not in name and " " not in name
    }


class KeyedReads(PolicyResolver):
    """Resolves plain reads, and everything else as `original` does.

    Args:
        original: the client's resolver.
        reads: policies by lower-case name.
    """

    def __init__(self, original: PolicyResolver, reads: dict[str, CommandPolicies]) -> None:
        self.original = original
        self._reads = reads

    def resolve(self, command_name: str) -> CommandPolicies | None:
        """Return the policies of a command, None if there are none on record."""
        return self._reads.get(command_name) or self.original.resolve(command_name)

    def with_fallback(self, fallback: PolicyResolver) -> PolicyResolver:
        """Return the same with another resolver behind the original."""
        return KeyedReads(self.original.with_fallback(fallback), self._reads)


class AsyncKeyedReads(AsyncPolicyResolver):
    """Resolves plain reads, and everything else as `original` does.

    Args:
        original: the client's resolver.
        reads: policies by lower-case name.
    """

    def __init__(self, original: AsyncPolicyResolver, reads: dict[str, CommandPolicies]) -> None:
        self.original = original
        self._reads = reads

    async def resolve(self, command_name: str) -> CommandPolicies | None:
        """Return the policies of a command, None if there are none on record."""
        return self._reads.get(command_name) or await self.original.resolve(command_name)

    def with_fallback(self, fallback: AsyncPolicyResolver) -> AsyncPolicyResolver:
        """Return the same with another resolver behind the original."""
        return AsyncKeyedReads(self.original.with_fallback(fallback), self._reads)


def put(client: Any) -> None:
    """Put a resolver in front of the client's own, if that is the one redis-py brings."""
    original = client._policy_resolver
    if type(original) is StaticPolicyResolver:
        client._policy_resolver = KeyedReads(original, _keyed_reads(client.command_flags))
    elif type(original) is AsyncStaticPolicyResolver:
        client._policy_resolver = AsyncKeyedReads(original, _keyed_reads(client.command_flags))


def take_out(client: Any) -> None:
    """Undo `put`."""
    if isinstance(client._policy_resolver, (KeyedReads, AsyncKeyedReads)):
        client._policy_resolver = client._policy_resolver.original
