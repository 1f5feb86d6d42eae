"""Real ports: the machine's clock, disk, network and random numbers."""
