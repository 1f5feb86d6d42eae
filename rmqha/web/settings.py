"""Where a node's status page is served: two property keys, the same for every server."""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.errors import ConfigInvalid

DEFAULTS: dict[str, str] = {"statusPageHost": "127.0.0.1", "statusPagePort": ""}
"""Off unless a port is given; 0 takes any free one. The page has no password: whoever opens it
beyond loopback shows it to everybody who reaches that address."""

LISTENING_ON = "{statusPageHost}:{statusPagePort} (statusPagePort)"
"""What an operator is told when the port is taken: the address, and the key to change."""
PORT_MAX = 65535


def status_address(values: Mapping[str, str]) -> tuple[str, int] | None:
    """Host and port to serve at; None when the page is off.

    Raises:
        ConfigInvalid: the port is no port.
    """
    text = values["statusPagePort"].strip()
    reason = not_a_port(text)
    if reason is not None:
        raise ConfigInvalid(reason)
    return (values["statusPageHost"], int(text)) if text else None


def not_a_port(text: str) -> str | None:
    """Why a ``statusPagePort`` cannot be used; None when it can."""
    if not text or (text.isascii() and text.isdigit() and int(text) <= PORT_MAX):
        return None
    return f"statusPagePort={text} is not a port"
