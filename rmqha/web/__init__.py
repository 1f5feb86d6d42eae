"""The status page: what a node knows of its cluster, for people, live."""
