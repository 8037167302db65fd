"""Leader-based stores: writes pinned to the leader, reads over the healthy members."""

from .operation import FailureKind, Operation, OperationClass

__all__ = ["FailureKind", "Operation", "OperationClass"]
