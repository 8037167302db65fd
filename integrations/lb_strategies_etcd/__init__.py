"""Leader-aware routing for Python's etcd clients.

Importing the package imports neither grpc nor protobuf nor any etcd client.
"""
