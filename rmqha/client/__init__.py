"""Who asks RocketMQ as a client does: routes, masters, offsets, pulls and sends."""
