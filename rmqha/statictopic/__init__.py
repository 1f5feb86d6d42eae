"""Logical queues (RIP-21), as static topics of RocketMQ 5: mappings, translation, remaps. Pure."""
