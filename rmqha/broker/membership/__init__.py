"""A replica's place in its set: controllers, identity, heartbeats, elections, the write lease (RIP-44)."""
