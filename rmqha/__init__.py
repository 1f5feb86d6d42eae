"""RocketMQ's high-availability half: controller, replication, store and the tools around them."""

__version__ = "0.1.0"
