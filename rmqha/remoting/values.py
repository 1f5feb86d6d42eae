"""Parts of a JSON body by type: a missing member is empty, one of another type is malformed."""

from __future__ import annotations

from typing import Any

from rmqha.base.errors import RemoteProtocolError


def as_object(value: object) -> dict[str, Any]:
    """An object's members.

    Raises:
        RemoteProtocolError: something else than an object.
    """
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise RemoteProtocolError(f"body has {type(value).__name__} where an object belongs")
    return value


def as_array(value: object) -> list[Any]:
    """An array's items.

    Raises:
        RemoteProtocolError: something else than an array.
    """
    if value is None:
        return []
    if not isinstance(value, list):
        raise RemoteProtocolError(f"body has {type(value).__name__} where an array belongs")
    return value


def as_text(value: object) -> str:
    """Read a text from a body.

    Raises:
        RemoteProtocolError: something else than text.
    """
    if value is None:
        return ""
    if not isinstance(value, str):
        raise RemoteProtocolError(f"body has {type(value).__name__} where text belongs")
    return value


def as_number(value: object) -> int:
    """A whole number.

    Raises:
        RemoteProtocolError: something else than a whole number.
    """
    if value is None:
        return 0
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise RemoteProtocolError(f"body has {type(value).__name__} where a number belongs")


def as_float(value: object) -> float:
    """A number of any kind.

    Raises:
        RemoteProtocolError: something else than a number.
    """
    if isinstance(value, float):
        return value
    return float(as_number(value))
