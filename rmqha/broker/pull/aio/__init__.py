"""Shells of the room."""
