"""Methods that kazoo's own code does not see the replacement of."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Concatenate, Generic, ParamSpec, TypeVar, overload

import kazoo.client

_P = ParamSpec("_P")
_R = TypeVar("_R")
_C = TypeVar("_C")


class routed(Generic[_C, _P, _R]):
    """A method for everybody but kazoo itself, who gets its own of that name.

    kazoo's recipes read what they have just written, and reason about the order of watches and
    answers: that holds on one session only. They hold the client, and take the method from it at
    the moment they need it, also if it is for ``client.retry`` to call. So it is the code that
    takes the method from the client that decides, and not the one that calls it.
    """

    def __init__(self, function: Callable[Concatenate[_C, _P], _R]) -> None:
        self._function = function
        self._of_kazoo = vars(kazoo.client.KazooClient)[function.__name__]
        function.__doc__ = self.__doc__ = self._of_kazoo.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> Callable[Concatenate[_C, _P], _R]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> Callable[_P, _R]: ...
    def __get__(self, instance: object, owner: type) -> Callable[..., _R]:
        """Return the method that is for the code that asks."""
        if instance is None:
            return self._function
        asks = sys._getframe(1).f_globals.get("__name__", "")
        is_kazoos = asks.startswith("kazoo.") or getattr(instance, "_routing", None) is None
        function = self._of_kazoo if is_kazoos else self._function
        method: Callable[_P, _R] = function.__get__(instance, owner)
        return method
