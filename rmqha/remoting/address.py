"""``host:port`` texts of configuration files and of the wire."""

from __future__ import annotations

from rmqha.base.errors import ConfigInvalid

PORT_MAX = 65_535


def parse_address(text: str) -> tuple[str, int]:
    """Split ``host:port`` or ``[ipv6]:port``.

    Raises:
        ConfigInvalid: no host, no port, or a port outside 1..65535.
    """
    host, separator, port = text.strip().rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    if not separator or not host or not (port.isascii() and port.isdigit()):
        raise ConfigInvalid(f"address {text!r} is not host:port")
    if len(port) > len(str(PORT_MAX)) or not 1 <= int(port) <= PORT_MAX:
        raise ConfigInvalid(f"address {text!r} has a port outside 1..{PORT_MAX}")
    return host, int(port)


def format_address(host: str, port: int) -> str:
    """Join host and port; an IPv6 host gets its brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def split_addresses(text: str) -> list[str]:
    """The addresses of a ``;`` list in order, without blanks and empty ones."""
    return [part.strip() for part in text.split(";") if part.strip()]
