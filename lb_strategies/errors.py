"""The exception tree.

LoadBalancerError
├── NoEndpointError    there is nothing to choose from
└── StaleReplyError    nobody who was asked is as fresh as the read demands
"""


class LoadBalancerError(Exception):
    """Root of every error that this library itself raises.

    Errors of the store's own client pass through unchanged and are not below it.
    Invalid options are ``ValueError`` or ``TypeError`` at construction.
    """


class NoEndpointError(LoadBalancerError):
    """A choice was asked for and the candidates were empty."""


class StaleReplyError(LoadBalancerError):
    """A read demanded a freshness that no member that was asked has reached."""
