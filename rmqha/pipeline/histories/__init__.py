"""What clients wrote down, and what logs tell of failovers, as rows."""
