"""Clients that know no static topics: Java's before 5.0, and Go's, which say 317.

Name servers show them the logical queues of such a topic as those of one broker set; brokers that
serve them translate. What follows is said by the one and understood by the other.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.remoting.codes import VERSION_ORDINALS
from rmqha.remoting.headers import bool_field

VERSION_5_0_0 = VERSION_ORDINALS["5.0.0"]
"""From this release on brokers and clients know static topics."""

_SERVES_FIELD = "rmqhaServesOldClients"
"""Of a registration (103): this broker takes requests of old clients for any logical queue of the
static topics that it has a mapping of. Java's name servers pass over it."""


def knows_static_topics(version: int) -> bool:
    """Whether a peer knows static topics, by the ``version`` of its requests."""
    return version >= VERSION_5_0_0


def serving_fields() -> dict[str, str]:
    """What a broker that serves old clients adds to its registration."""
    return {_SERVES_FIELD: "true"}


def serves_old_clients(fields: Mapping[str, str] | None) -> bool:
    """Whether a registration is of such a broker."""
    return bool_field(fields, _SERVES_FIELD)
