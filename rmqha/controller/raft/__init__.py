"""Raft as a pure core: ``RaftCore.step(now_ms, event) -> effects``. No clock, no IO, no chance."""
