"""What replicas share beside messages: changes of topics and groups, positions, and their copies."""
