"""Spark itself: a session with a Java that fits, what workers do once, the package for a cluster."""
