"""Leader-based stores: writes pinned to the leader, reads over the healthy members."""

from .operation import FailureKind, OperationClass

__all__ = ["FailureKind", "OperationClass"]
