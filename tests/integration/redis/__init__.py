"""The Redis adapter, from outside and against real servers; each test once for both clients."""
