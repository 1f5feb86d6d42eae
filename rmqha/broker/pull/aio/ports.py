"""What the rooms from pull on see of the broker: who waits for messages, and by which filter."""

from __future__ import annotations

from typing import Protocol

from rmqha.broker.groups.aio import ports
from rmqha.broker.pull.aio.arrivals import Arrivals
from rmqha.broker.pull.filters import Selectors


class Broker(ports.Broker, Protocol):
    """The floor of readers.

    Attributes:
        selectors: of consumers that filter by properties.
        arrivals: who waits for messages of which queue.
    """

    selectors: Selectors
    arrivals: Arrivals
