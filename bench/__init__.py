"""Benchmarks on real servers with injected faults: ``python -m bench list``."""
