"""The names a user selects from."""

from enum import Enum


class LoadBalancingStrategy(Enum):
    """How a client chooses the endpoint of an operation.

    The first four values equal redis-py's own enum, and the Redis adapter hands them on
    untouched. A member's value is accepted wherever the member is.
    """

    ROUND_ROBIN = "round_robin"
    ROUND_ROBIN_REPLICAS = "round_robin_replicas"
    RANDOM = "random"
    RANDOM_REPLICA = "random_replica"
    LATENCY_BASED = "latency_based"
    LATENCY_BASED_REPLICAS = "latency_based_replicas"
    HYBRID = "hybrid"
    BOLTZMANN = "boltzmann"

    @classmethod
    def parse(cls, value: object) -> "LoadBalancingStrategy":
        """Return the member that `value` names.

        Args:
            value: a member, its value (``"latency_based"``), or a member of another enum
                that has the same value, such as redis-py's own.

        Raises:
            ValueError: the name is unknown; the message lists the valid ones.
        """
        if isinstance(value, cls):
            return value
        name = value.value if isinstance(value, Enum) else value
        for member in cls:
            if member.value == name:
                return member
        valid = ", ".join(member.value for member in cls)
        raise ValueError(f"unknown load balancing strategy {value!r}; valid names are {valid}")
