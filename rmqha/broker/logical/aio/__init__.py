"""Answers about logical queues, and the way to other broker sets."""
