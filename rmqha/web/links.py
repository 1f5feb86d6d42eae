"""Links from one node's page to another's, out of what that one says of its own.

Each server that has a status page says ``host:port`` of it (``statusPage``): brokers in the
table of 28, controllers and name servers in an ext field of 1005 and 319. Nothing that a peer says
becomes part of a link but a host and a port.
"""

from __future__ import annotations

import re

from rmqha.runtime.exposure import is_loopback
from rmqha.web.settings import PORT_MAX

EVERYWHERE = ("", "0.0.0.0", "::", "[::]")
_PLACE = re.compile(r"(?P<host>[A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\]):(?P<port>[0-9]{1,5})")


def page_link(told: str | None, address: str, here: str) -> str | None:
    """The link to a peer's page; None where it has none, or none that leads there.

    Args:
        told: what the peer says: where its page listens.
        address: of the peer, ``host:port``.
        here: the address of the node whose page has the link.
    """
    place = _PLACE.fullmatch(told or "")
    if place is None or not 0 < int(place["port"]) <= PORT_MAX:
        return None
    host, of_peer, ours = place["host"], address.rpartition(":")[0], here.rpartition(":")[0]
    if host in EVERYWHERE:
        host = of_peer
    # A page that listens on loopback is for who sits at that machine: so is a link to it.
    elif is_loopback(host) and not is_loopback(of_peer) and of_peer != ours:
        return None
    return f"http://{host}:{place['port']}/"
