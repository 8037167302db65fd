"""Load on an etcd cluster, the clients that compete there, and their numbers."""
