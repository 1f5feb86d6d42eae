"""Shells of replication: sockets, timers and the epoch file."""
