"""Launchers of real servers on free loopback ports; each is a context manager that always stops."""
