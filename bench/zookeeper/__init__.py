"""Load on a ZooKeeper ensemble, the clients that compete there, and the faults they meet."""
