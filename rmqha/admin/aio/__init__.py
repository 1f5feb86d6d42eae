"""Carries a command's calls out on a connection."""
