"""Shells of chaos: hosts, nodes, what is watched, and the rounds."""
