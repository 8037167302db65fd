"""Latency-aware, leader-aware load balancing for the clients people already use.

Everything public is here; deep imports are never needed.
"""

from .balancer import LoadBalancer
from .endpoint import EndpointStats
from .endpoint_policy import EndpointPolicy
from .errors import LoadBalancerError, NoEndpointError
from .options import BalancerOptions
from .pick import Outcome, Pick
from .policy import Candidate, Policy
from .strategy import LoadBalancingStrategy

__all__ = [
    "BalancerOptions",
    "Candidate",
    "EndpointPolicy",
    "EndpointStats",
    "LoadBalancer",
    "LoadBalancerError",
    "LoadBalancingStrategy",
    "NoEndpointError",
    "Outcome",
    "Pick",
    "Policy",
]

__version__ = "0.1.0"
