"""A long run under random faults, in which every answer and every error is accounted for."""
