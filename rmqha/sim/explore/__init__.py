"""Every interleaving of a small group: the real cores, walked state by state."""
