"""Measurements against real Java RocketMQ; run as modules from the root of the checkout."""
