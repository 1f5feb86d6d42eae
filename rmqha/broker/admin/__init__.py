"""What people and their tools ask: configuration, runtime information, metrics, the status page."""
