"""The message store, in RocketMQ's own file format."""
