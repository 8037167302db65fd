"""Costs of single calls, with pytest-benchmark: ``pytest bench/micro``."""
