"""How fresh an answer has to be."""

from __future__ import annotations

from enum import Enum


class ReadConsistency(Enum):
    """What a read must have seen. A member's value is accepted wherever the member is."""

    STRONG = "strong"
    """Everything that was committed before the read began, by whomever."""
    CAUSAL = "causal"
    """What this session has written and what it has read: time never runs backwards in it."""
    RELAXED = "relaxed"
    """Nothing in particular; the answer may be of any age."""

    @classmethod
    def parse(cls, value: object) -> ReadConsistency:
        """Return the member that `value`, a member or its value, names.

        Raises:
            ValueError: the name is unknown; the message lists the valid ones.
        """
        try:
            return cls(value)
        except ValueError:
            valid = ", ".join(member.value for member in cls)
            raise ValueError(
                f"unknown read consistency {value!r}; valid names are {valid}"
            ) from None
