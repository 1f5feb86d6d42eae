"""318 and 319: the name server's own configuration. Pure; the shell writes the file.

Java changes any key that is not black-listed, thread pools included, without effect until the next
start. Here only the keys of ``settings.MUTABLE`` change, others are refused by name.

Source: DefaultRequestProcessor.updateConfig and Configuration, RocketMQ namesrv and common.
"""

from __future__ import annotations

from rmqha.base.errors import ConfigInvalid
from rmqha.base.machine import Note
from rmqha.namesrv.messages import Answer, Stored
from rmqha.namesrv.settings import BLACK_LIST, DEFAULTS, MUTABLE, NamesrvConfig, malformed
from rmqha.remoting.codes import ResponseCode
from rmqha.runtime.properties import parse_properties, shown_properties, too_large_change


def config_text(config: NamesrvConfig) -> bytes:
    """The body of 319: ``key=value`` lines, sorted; secrets are hidden."""
    return shown_properties(config.values)


def update_config(config: NamesrvConfig, body: bytes) -> Answer:
    """Check a 318 and change ``config`` when all of it may be changed."""
    if not body:
        return Answer(ResponseCode.SUCCESS)
    refusal = too_large_change(body)
    if refusal is not None:
        return Answer(ResponseCode.SYSTEM_ERROR, refusal)
    try:
        asked = parse_properties(body.decode())
    except (UnicodeDecodeError, ConfigInvalid):
        return Answer(ResponseCode.SYSTEM_ERROR, "string2Properties error")
    listed = {part.strip() for part in config.values["configBlackList"].split(";")}
    if any(key in listed or key in BLACK_LIST for key in asked):
        return Answer(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    changed: dict[str, str] = {}
    for key, value in asked.items():
        if key not in DEFAULTS:
            refusal = f"there is no key {key}; nothing was changed"
            return Answer(ResponseCode.SYSTEM_ERROR, refusal)
        if key not in MUTABLE:
            refusal = f"{key} is read at start only; change the file and restart the name server"
            return Answer(ResponseCode.NO_PERMISSION, refusal)
        reason = malformed(key, value.strip())
        if reason is not None:
            return Answer(ResponseCode.SYSTEM_ERROR, reason)
        changed[key] = value.strip()
    if not changed:
        return Answer(ResponseCode.SUCCESS)
    config.values.update(changed)
    note = Note("config_updated", "warning", {"changed": changed})
    return Answer(ResponseCode.SUCCESS, effects=(note,), stored=Stored.CONFIG, changed=changed)
