"""The exception tree."""

from lb_strategies import LoadBalancerError, NoEndpointError


def test_one_root_catches_what_the_library_raises() -> None:
    assert issubclass(NoEndpointError, LoadBalancerError)
    assert not issubclass(LoadBalancerError, ValueError)
