"""Live topics: the source and the sink ``rocketmq``, over the network."""
