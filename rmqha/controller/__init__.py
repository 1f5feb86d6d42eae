"""The controller of RIP-44: its own Raft (``raft``), the metadata it replicates, liveness."""
