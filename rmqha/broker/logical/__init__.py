"""Requests about logical queues: from the queue that a client names to a segment, here or elsewhere."""
