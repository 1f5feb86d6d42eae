"""Commit logs as rows: parts, header walks, what consume queues claim, columns, comparisons."""
