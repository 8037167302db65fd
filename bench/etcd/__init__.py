"""Load on an etcd cluster, the clients that compete there, and their numbers."""

import os

# Servers are started while channels exist. gRPC's handlers for that, which no child of ours needs
# for it becomes another program at once, would only complain; read when grpc is imported.
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
