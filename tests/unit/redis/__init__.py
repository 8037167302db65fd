"""Parts of the Redis adapter that need no server."""
