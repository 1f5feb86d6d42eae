"""Real processes: Apache RocketMQ and rmqha as children, and a client that owes rmqha nothing."""
