"""Addresses that a policy counts for: one address, or a range as ``192.168.0.0/16``.

Source: IPAddressUtils of RocketMQ 5.3.3. Java takes only an address that is spelled as the policy
has it; here two spellings of one address are the same.
"""

from __future__ import annotations

from functools import lru_cache
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network

COMPARED_MAX = 1024
"""Answers that are kept."""


def address_error(text: object) -> str | None:
    """Why a policy cannot have this address, in Java's words; None when it can."""
    if not isinstance(text, str) or not text.strip():
        return "The source ip is empty."
    return None if _network(text) is not None else "The source ip is invalid."


@lru_cache(COMPARED_MAX)
def is_in_range(source_ip: str, text: str) -> bool:
    """Whether an address is the one, or in the range, that a policy names."""
    network = _network(text)
    if network is None:
        return False
    try:
        address = ip_address(source_ip.strip("[]"))
    except ValueError:
        return False
    return address in network


def _network(text: str) -> IPv4Network | IPv6Network | None:
    try:
        return ip_network(text, strict=False)
    except ValueError:
        return None


def ip_of(peer: str) -> str:
    """The address of ``host:port`` or ``[host]:port``."""
    return peer.rpartition(":")[0].strip("[]")
