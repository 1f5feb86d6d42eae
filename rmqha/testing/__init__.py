"""For test authors: clusters that can be started, broken and healed."""
