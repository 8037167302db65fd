"""Putting our methods into one object of somebody else's class, and into no other.

A *factory* takes a class and returns a subclass of it; classes made this way have the layout
of their base, whatever that is, so that an object's class can be swapped. Their methods call
``base.method(self)`` and not ``super()``, which would fail in a call that is under way while
the class is swapped back.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Final, TypeAlias

_MISSING: Final = object()

Factory: TypeAlias = Callable[[Any], Any]


@cache
def derive(factory: Factory, base: Any) -> Any:
    """Return the subclass that `factory` makes of `base`; one per pair, so nothing leaks."""
    derived = factory(base)
    for name in ("__name__", "__qualname__", "__module__", "__doc__"):
        setattr(derived, name, getattr(base, name))
    derived._lb_origin = (factory, base)
    return derived


def is_derived(cls: type, factory: Factory) -> bool:
    """Whether `cls` itself was made by `factory`."""
    return bool(cls.__dict__.get("_lb_origin", (None,))[0] is factory)


def adopt(target: Any, factory: Factory) -> None:
    """Swap the class of `target` for one made by `factory`; a second time is a no-op.

    Only this object changes, and only in the methods that the factory defines.
    """
    base: Any = type(target)
    if not any(is_derived(cls, factory) for cls in base.__mro__):
        target.__class__ = derive(factory, base)


def release(target: Any, factory: Factory) -> None:
    """Undo `adopt`."""
    if is_derived(type(target), factory):
        target.__class__ = type(target)._lb_origin[1]


def inherited(base: type, target: Any, name: str) -> Any:
    """Return what ``super()`` would find for `target` above a class derived from `base`.

    It works while the class is being swapped back, and binds as usual: what somebody has put
    into `base` that is no function (a test double, an instrumentor's wrapper) gets no ``self``.

    Raises:
        AttributeError: no class has it.
    """
    for cls in base.__mro__:
        attribute = cls.__dict__.get(name, _MISSING)
        if attribute is not _MISSING:
            bind = getattr(type(attribute), "__get__", None)
            return attribute if bind is None else bind(attribute, target, type(target))
    raise AttributeError(f"{base.__name__} has no attribute {name!r}")
