"""The parts of the ZooKeeper adapter that need no server."""
