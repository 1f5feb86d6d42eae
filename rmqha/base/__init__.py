"""Ids, the error tree, the shape of a machine and run-time invariants. Imports nothing above it."""
