"""Pop mode: messages for whoever asks, check points, revival, order."""
