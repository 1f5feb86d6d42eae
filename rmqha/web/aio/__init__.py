"""Shells of the status page."""
