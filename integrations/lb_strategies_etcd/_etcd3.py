"""etcd3's clients over a routing channel: etcd3 0.12.0, cslab-etcd3 and python3-etcd3.

None of them takes a channel. The first one makes its stubs once, in its constructor; the others
make them when they are needed, on the channel of the endpoint in use.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Any

from ._opt_in import RoutedClient, opt_in, opt_out

if TYPE_CHECKING:
    from .channel import RoutingChannel


class RoutedEtcd3(RoutedClient):
    """What an etcd3 client gets before its own class."""

    def close(self) -> None:
        """Close the connections to all members, and the one that the client had before."""
        own: Any = super()
        own.close()
        self._lb_channel.close()
        _close_own(self._lb_replaced)

    def _clear_old_stubs(self) -> None:
        """Keep the stubs, where a client for one server at a time drops them on any error.

        Its watches would end with them.
        """


def kind(module: Any) -> type:
    """Return the class of clients in ``etcd3.client``."""
    found: type = getattr(module, "MultiEndpointEtcd3Client", module.Etcd3Client)
    return found


def is_secure(client: Any) -> bool:
    """Whether `client` speaks TLS."""
    if hasattr(client, "endpoints"):
        return any(endpoint.secure for endpoint in client.endpoints.values())
    return bool(client.uses_secure_channel)


def attach(
    client: Any, make: Callable[[], RoutingChannel], *, has_user: bool, secure: bool
) -> None:
    """Have `client` route over the channel that `make` returns, in the place of any other.

    Args:
        client: to be opted in.
        make: called before anything is changed.
        has_user: whether the channel sends tokens of its own, so that the client's is not needed.
        secure: whether the channel has TLS.
    """
    channel = make()
    if isinstance(client, RoutedClient):
        detach(client)
    token: dict[str, Any] = {
        name: None if has_user else getattr(client, name)
        for name in ("metadata", "call_credentials")
    }
    if hasattr(client, "endpoints"):
        endpoint = _Cluster(channel, secure)
        places: dict[str, object] = {
            "endpoints": {endpoint.netloc: endpoint},
            "_current_ep_label": endpoint.netloc,
            "_stubs": {},
        }
    else:
        places = _stubs(client, channel, token)
    if hasattr(client, "uses_secure_channel"):
        places["uses_secure_channel"] = secure
    opt_in(client, RoutedEtcd3, channel, {**places, **token})


def detach(client: Any) -> None:
    """Give `client` back what it had; the routing channel is closed."""
    channel = client._lb_channel
    opt_out(client)
    channel.close()


def forget_own(client: Any) -> None:
    """Close the connection that `client` had before, which nobody will want back."""
    _close_own(client._lb_replaced)
    client._lb_replaced = {}


def _close_own(replaced: dict[str, Any]) -> None:
    if "channel" in replaced:
        replaced["channel"].close()
    for endpoint in replaced.get("endpoints", {}).values():
        endpoint.close()


def _stubs(client: Any, channel: RoutingChannel, token: dict[str, Any]) -> dict[str, Any]:
    rpc: Any = import_module("etcd3.etcdrpc")
    return {
        "channel": channel,
        "kvstub": rpc.KVStub(channel),
        "watcher": _watcher(channel)(rpc.WatchStub(channel), timeout=client.timeout, **token),
        "clusterstub": rpc.ClusterStub(channel),
        "leasestub": rpc.LeaseStub(channel),
        "maintenancestub": rpc.MaintenanceStub(channel),
    }


def _watcher(channel: RoutingChannel) -> Any:
    watcher: Any = import_module("etcd3.watch").Watcher

    class Watcher(watcher):
        def _run(self) -> None:
            try:
                super()._run()
            except ValueError:
                # It opens the stream again for ever, and its thread would end with a traceback
                # when the channel has been closed.
                if not channel.is_closed:
                    raise

    return Watcher


class _Cluster:
    """All members, where the client looks for one server that it may have to leave."""

    def __init__(self, channel: RoutingChannel, secure: bool) -> None:
        self.channel = channel
        self.secure = secure
        self.netloc = str(channel)

    def use(self) -> RoutingChannel:
        return self.channel

    def is_failed(self) -> bool:
        return False

    def fail(self) -> None:
        """Do nothing: the channel knows which members are well."""

    def close(self) -> None:
        self.channel.close()
