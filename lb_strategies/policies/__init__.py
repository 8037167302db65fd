"""The built-in rules of choice, one a file."""

from ..options import BalancerOptions
from ..policy import Policy
from ..strategy import LoadBalancingStrategy
from .boltzmann import Boltzmann
from .p2c import PowerOfTwoChoices
from .rotation import Rotation
from .uniform import Uniform

__all__ = ["Boltzmann", "PowerOfTwoChoices", "Rotation", "Uniform", "make_policy"]


def make_policy(strategy: LoadBalancingStrategy, options: BalancerOptions) -> Policy:
    """Return the policy behind `strategy`.

    The ``*_REPLICAS`` members choose like their siblings: which endpoints are candidates is
    the caller's decision.
    """
    match strategy:
        case LoadBalancingStrategy.LATENCY_BASED | LoadBalancingStrategy.LATENCY_BASED_REPLICAS:
            return PowerOfTwoChoices(
                options.choices,
                mean_ratio=options.fairness_mean_ratio,
                mean_slack=options.fairness_slack,
                peak_ratio=options.fairness_peak_ratio,
                scan_limit=options.scan_limit,
            )
        case LoadBalancingStrategy.HYBRID:
            return Rotation()
        case LoadBalancingStrategy.BOLTZMANN:
            return Boltzmann(options.temperature, options.boltzmann_weight)
        case LoadBalancingStrategy.ROUND_ROBIN | LoadBalancingStrategy.ROUND_ROBIN_REPLICAS:
            return Rotation(ignores_health=True)
        case _:  # RANDOM and RANDOM_REPLICA
            return Uniform()
