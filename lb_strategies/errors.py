"""The exception tree.

LoadBalancerError
└── NoEndpointError    there is nothing to choose from
"""


class LoadBalancerError(Exception):
    """Root of every error that this library itself raises.

    Errors of the store's own client pass through unchanged and are not below it.
    Invalid options are ``ValueError`` or ``TypeError`` at construction.
    """


class NoEndpointError(LoadBalancerError):
    """A choice was asked for and the candidates were empty."""
