"""The exception tree."""

from lb_strategies import LoadBalancerError, NoEndpointError, StaleReplyError


def test_one_root_catches_what_the_library_raises() -> None:
    assert issubclass(NoEndpointError, LoadBalancerError)
    assert issubclass(StaleReplyError, LoadBalancerError)
    assert not issubclass(LoadBalancerError, ValueError)
