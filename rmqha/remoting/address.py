"""``host:port`` texts of configuration files and of the wire."""

from __future__ import annotations

import re
from ipaddress import IPv6Address

from rmqha.base.errors import ConfigInvalid

PORT_MAX = 65_535
NAME_CHARACTERS_MAX = 254
"""Of a whole name, with the dot that may end it."""
# What resolvers take, in any script; a dot may end a full name.
_NAME = re.compile(r"\w(?:[\w-]|\.(?!\.))*")


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``; Java also writes IPv6 without brackets.

    Raises:
        ConfigInvalid: no host or an impossible one, no port, or a port outside 1..65535.
    """
    host, separator, port = text.strip().rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if bracketed:
        host = host[1:-1]
    if not separator or not (host or bracketed) or not (port.isascii() and port.isdigit()):
        raise ConfigInvalid(f"address {text!r} is not host:port")
    if not (_is_ipv6(host) or (not bracketed and _is_name(host))):
        raise ConfigInvalid(
            f"address {text!r} is not host:port: host {host!r} is neither a name nor an IP address"
        )
    if len(port) > len(str(PORT_MAX)) or not 1 <= int(port) <= PORT_MAX:
        raise ConfigInvalid(f"address {text!r} has a port outside 1..{PORT_MAX}")
    return host, int(port)


def _is_name(host: str) -> bool:
    if not _NAME.fullmatch(host) or len(host) > NAME_CHARACTERS_MAX:
        return False
    try:
        host.encode("idna")  # as resolvers have it: no part of a name may be over 63 bytes
    except UnicodeError:
        return False
    return True


def _is_ipv6(host: str) -> bool:
    try:
        IPv6Address(host)
    except ValueError:
        return False
    return True


def format_address(host: str, port: int) -> str:
    """Join host and port; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_addresses(text: str) -> list[str]:
    """The addresses of a ``;`` list in order, without blanks and empty ones."""
    return [part.strip() for part in text.split(";") if part.strip()]
