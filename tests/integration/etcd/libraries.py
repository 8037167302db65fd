"""Every client library behind the same few calls, so that one suite is for all of them.

The three packages that are imported as ``etcd3`` are put into each other's place; aetcd runs in
an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import importlib
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from lb_strategies_etcd import compat, connect_aetcd, connect_etcd3

BESIDE = {name: Path(sys.prefix) / name for name in ("cslab-etcd3", "python3-etcd3")}
"""Where `make setup` puts those that would overwrite etcd3."""
ETCD3 = ("etcd3", *BESIDE)
ALL = (*ETCD3, "aetcd")


class Client(ABC):
    """A client in use; ``raw`` is the library's own object."""

    raw: Any

    @abstractmethod
    def run(self, result: Any) -> Any:
        """Return what a call of the library's has returned, awaited if it has to be."""

    def put(self, key: str, value: str, **options: object) -> None:
        self.run(self.raw.put(key.encode(), value.encode(), **options))

    @abstractmethod
    def get(self, key: str, **options: object) -> str | None: ...

    @abstractmethod
    def items(self, pairs: Any) -> list[tuple[str, str]]:
        """Return the keys and values in what a range returned."""

    def prefix(self, prefix: str, **options: object) -> list[tuple[str, str]]:
        return self.items(self.run(self.raw.get_prefix(prefix.encode(), **options)))

    def range(self, start: str, end: str) -> list[tuple[str, str]]:
        return self.items(self.run(self.raw.get_range(start.encode(), end.encode())))

    def swap(self, key: str, old: str, new: str) -> bool:
        return bool(self.run(self.raw.replace(key.encode(), old.encode(), new.encode())))

    def transact(self, compare: list[Any], success: list[Any], failure: list[Any]) -> Any:
        return self.run(self.raw.transaction(compare, success, failure))

    @abstractmethod
    def refresh(self, lease: Any) -> int:
        """Keep a lease alive once and return the seconds that it has."""

    @abstractmethod
    def remaining(self, lease: Any) -> int: ...

    @abstractmethod
    def watch(self, key: str, **options: object) -> tuple[Callable[[], str], Callable[[], None]]:
        """Return what waits for the next event's value, and what ends the watch."""

    @abstractmethod
    def lock(self, name: str, ttl: int) -> Any: ...

    @abstractmethod
    def members(self) -> list[Any]: ...

    def close(self) -> None:
        self.run(self.raw.close())


class Etcd3(Client):
    def __init__(self, raw: Any) -> None:
        self.raw = raw

    def run(self, result: Any) -> Any:
        return result

    def get(self, key: str, **options: object) -> str | None:
        value = self.raw.get(key, **options)[0]
        return None if value is None else str(value.decode())

    def items(self, pairs: Any) -> list[tuple[str, str]]:
        return [(metadata.key.decode(), value.decode()) for value, metadata in pairs]

    def refresh(self, lease: Any) -> int:
        return int(lease.refresh()[0].TTL)

    def remaining(self, lease: Any) -> int:
        return int(lease.remaining_ttl)

    def watch(self, key: str, **options: object) -> tuple[Callable[[], str], Callable[[], None]]:
        events, cancel = self.raw.watch(key, **options)
        return lambda: str(next(events).value.decode()), cancel

    def lock(self, name: str, ttl: int) -> Any:
        return self.raw.lock(name, ttl=ttl)

    def members(self) -> list[Any]:
        return list(self.raw.members)


class Aetcd(Client):
    def __init__(self, raw: Any, loop: asyncio.AbstractEventLoop) -> None:
        self.raw = raw
        self._loop = loop

    def run(self, result: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(result, self._loop).result(40)

    def get(self, key: str, **options: object) -> str | None:
        found = self.run(self.raw.get(key.encode(), **options))
        return None if found is None else str(found.value.decode())

    def items(self, pairs: Any) -> list[tuple[str, str]]:
        return [(pair.key.decode(), pair.value.decode()) for pair in pairs]

    def refresh(self, lease: Any) -> int:
        return int(self.run(lease.refresh()).TTL)

    def remaining(self, lease: Any) -> int:
        return int(self.run(lease.remaining_ttl()))

    def watch(self, key: str, **options: object) -> tuple[Callable[[], str], Callable[[], None]]:
        watch = self.run(self.raw.watch(key.encode(), **options))
        events = aiter(watch)

        async def following() -> str:
            return str((await anext(events)).kv.value.decode())

        return lambda: str(self.run(following())), lambda: self.run(watch.cancel())

    def lock(self, name: str, ttl: int) -> Any:
        return self.raw.lock(name.encode(), ttl=ttl)

    def members(self) -> list[Any]:
        async def listed() -> list[Any]:
            return [member async for member in self.raw.members()]

        return list(self.run(listed()))


class Library:
    """One client library; ``connect`` as the library's own function, with a client to use."""

    def __init__(self, name: str, loop: asyncio.AbstractEventLoop | None) -> None:
        self.name = name
        self._loop = loop
        self.opened = ExitStack()

    @property
    def is_asyncio(self) -> bool:
        return self._loop is not None

    def connect(self, endpoints: list[str], **options: Any) -> Client:
        """Connect; the client is closed at the end of the test."""
        options.setdefault("timeout", 10.0)
        if self._loop is None:
            client: Client = Etcd3(connect_etcd3(endpoints, **options))
        else:
            future = asyncio.run_coroutine_threadsafe(
                connect_aetcd(endpoints, **options), self._loop
            )
            client = Aetcd(future.result(10), self._loop)
        self.opened.callback(client.close)
        return client

    def error(self, name: str) -> type[Exception]:
        """Return the library's exception of that name."""
        package = "etcd3" if self._loop is None else "aetcd"
        found: type[Exception] = getattr(sys.modules[f"{package}.exceptions"], name)
        return found


@contextmanager
def imported(name: str) -> Iterator[None]:
    """Have ``import etcd3`` bring the package `name`."""
    place = BESIDE.get(name)
    assert place is None or place.is_dir(), f"make setup installs {name}"
    path, hook = list(sys.path), threading.excepthook
    before = _forget()
    if place is not None:
        sys.path.insert(0, str(place))
    importlib.invalidate_caches()
    try:
        compat.install()
        etcd3 = importlib.import_module("etcd3")
        assert str(etcd3.__file__).startswith(str(place or sys.prefix)), etcd3.__file__
        threading.excepthook = _without_six(hook) if name == "python3-etcd3" else hook
        yield
    finally:
        for thread in threading.enumerate():
            if thread.name.startswith("etcd3_watch"):
                thread.join(5)
        threading.excepthook = hook
        sys.path[:] = path
        _forget()
        sys.modules.update(before)


def _without_six(hook: Callable[[Any], object]) -> Callable[[Any], object]:
    """Hide that python3-etcd3 forgot an import, which its watches notice when they end."""

    def tell(args: Any) -> object:
        return None if str(args.exc_value) == "name 'six' is not defined" else hook(args)

    return tell


def _forget() -> dict[str, Any]:
    compat._pool.cache_clear()
    mine = [name for name in sys.modules if name == "etcd3" or name.startswith("etcd3.")]
    return {name: sys.modules.pop(name) for name in mine}


@contextmanager
def running_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """Run an event loop in a thread."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield loop
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join()
        loop.close()
