"""Real Apache RocketMQ processes against the controllers: see ``conftest.py`` for how to run."""
