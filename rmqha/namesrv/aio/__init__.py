"""Shells of the name server: its port, its files, and what it sends by itself."""
