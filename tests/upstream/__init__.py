"""redis-py's own cluster tests, run with our classes in the place of theirs."""
