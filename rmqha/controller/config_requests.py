"""1009 and 1010: a node's own configuration. Pure; the shell writes the file.

Source: AdminBrokerProcessor-like handling of the Java controller, 5.2.0 to 5.5. Java changes any
key that is not black-listed (a way to move its store, see CVE-2023-37582 for the name server);
here only the keys of ``settings.MUTABLE`` change, others are refused by name.
"""

from __future__ import annotations

from typing import NamedTuple

from rmqha.base.errors import ConfigInvalid
from rmqha.controller.bounds import out_of_bounds
from rmqha.controller.settings import (
    ALIASES,
    BLACK_LIST,
    DEFAULTS,
    MUTABLE,
    ControllerConfig,
    Peer,
    is_integer,
)
from rmqha.remoting.broker_figures import STATUS_PAGE
from rmqha.remoting.codes import ResponseCode
from rmqha.runtime.properties import parse_properties, shown_properties, too_large_change


class ConfigAnswer(NamedTuple):
    """The response, and the keys that have new values."""

    code: int
    remark: str | None
    changed: dict[str, str]


def config_text(config: ControllerConfig) -> bytes:
    """The body of 1010: ``key=value`` lines, sorted; secrets are hidden."""
    return shown_properties(config.values)


def update_config(config: ControllerConfig, body: bytes) -> ConfigAnswer:
    """Check a 1009 and change ``config`` when all of it may be changed."""
    if not body:
        return ConfigAnswer(ResponseCode.SUCCESS, None, {})
    refusal = too_large_change(body)
    if refusal is not None:
        return ConfigAnswer(ResponseCode.SYSTEM_ERROR, refusal, {})
    try:
        asked = parse_properties(body.decode())
    except (UnicodeDecodeError, ConfigInvalid):
        return ConfigAnswer(ResponseCode.SYSTEM_ERROR, "string2Properties error", {})
    listed = {part.strip() for part in config.values["configBlackList"].split(";")}
    listed.update(BLACK_LIST)
    if any(key in listed or ALIASES.get(key) in listed for key in asked):
        return ConfigAnswer(ResponseCode.NO_PERMISSION, "Can not update config in black list.", {})
    changed: dict[str, str] = {}
    for key, value in asked.items():
        name = ALIASES.get(key, key)
        if name not in DEFAULTS:
            refusal = f"there is no key {key}; nothing was changed"
            return ConfigAnswer(ResponseCode.SYSTEM_ERROR, refusal, {})
        if name not in MUTABLE:
            refusal = f"{key} is read at start only; change the file and restart the controller"
            return ConfigAnswer(ResponseCode.NO_PERMISSION, refusal, {})
        changed[name] = value.strip()
        remark = _malformed(key, changed[name], DEFAULTS[name])
        if remark is not None:
            return ConfigAnswer(ResponseCode.SYSTEM_ERROR, remark, {})
    config.values.update(changed)
    return ConfigAnswer(ResponseCode.SUCCESS, None, changed)


def _malformed(key: str, value: str, default: str) -> str | None:
    """Why a value is none of its default's kind; None when it is."""
    if default.isdigit() and not is_integer(value):
        return f"{key}={value} is not a number"
    if default.isdigit():
        return out_of_bounds(key, int(value))
    if default in ("true", "false") and value.lower() not in ("true", "false"):
        return f"{key}={value} is neither true nor false"
    return None


def metadata_info(
    config: ControllerConfig,
    peers: tuple[Peer, ...],
    leader_id: str | None,
    *,
    is_leader: bool,
    voters: tuple[str, ...] = (),
    status_page: str = "",
) -> dict[str, str]:
    """The ext fields of 1005, in the spelling of the configured controller type.

    Args:
        peers: the group as it is now.
        voters: the ids of those who vote; one more field, while others of the group do not.
        status_page: where this node's listens; one more field, where there is one.
    """
    leader = next((peer for peer in peers if peer.id == leader_id), None)
    if config.style.lower() == "jraft":
        fields = {
            "group": config.group,
            "controllerLeaderId": leader.id if leader else "",
            "isLeader": "true" if is_leader else "false",
            "peers": "".join(f"{peer.id};" for peer in peers),
        }
    else:
        fields = {
            "group": config.group,
            "isLeader": "true" if is_leader else "false",
            "peers": "".join(f"{peer.id}:{peer.address};" for peer in peers),
        }
        if leader is not None:
            fields["controllerLeaderId"] = leader.id
        if 0 < len(voters) < len(peers):
            fields["voters"] = ";".join(voters)
    if leader is not None:
        fields["controllerLeaderAddress"] = leader.address
    if status_page:
        fields[STATUS_PAGE] = status_page
    return fields
