"""Configuration that changes while a broker runs: request 25, and the file that keeps it.

Only keys of :data:`LIVE` change; whoever caches one of them is told. The file is the one that the
broker was started with: lines of other keys, and remarks, stay as they are.

Source: AdminBrokerProcessor.updateBrokerConfig and Configuration of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from rmqha.base.errors import ConfigInvalid
from rmqha.broker.common.lookup_settings import (
    CONTROLLERS_BY_DNS,
    check_one_name,
    controllers_are_looked_up,
)
from rmqha.broker.common.settings import DEFAULTS, READ_ELSEWHERE, check_values
from rmqha.remoting.address import parse_address, split_addresses
from rmqha.remoting.codes import ResponseCode
from rmqha.runtime.properties import parse_properties

BLACK_LIST = frozenset(
    {"brokerConfigPath", "configBlackList", "configStorePath", "storePathRootDir"}
)
LIVE = frozenset(
    {
        "autoCreateSubscriptionGroup", "brokerPermission", "controllerAddr", "enablePropertyFilter",
        "longPollingEnable", "maxTransferBytesOnMessageInDisk", "maxTransferBytesOnMessageInMemory",
        "maxTransferCountOnMessageInDisk", "maxTransferCountOnMessageInMemory",
        "recallMessageEnable", "rejectTransactionMessage", "shortPollingTimeMills", "slaveReadEnable",
        "transactionCheckInterval", "transactionCheckMax", "transactionTimeOut",
        "useServerSideResetOffset",
    }
)  # fmt: skip
"""Keys that take effect at once."""
UNCHANGED = "it is so already: nothing was changed"
"""The remark of a success, so that a key that is read at the start does not look like one that can change."""
CONTROLLERS_MAX = 30
"""That a running broker can be told of: a group has nine members at most, and may be replaced by another."""


class ConfigRefused(NamedTuple):
    """Why a 25 changes nothing."""

    code: int
    remark: str


def read_update(body: bytes, known: Mapping[str, str]) -> dict[str, str] | ConfigRefused:
    """What a 25 changes: all that it asks for, or nothing.

    Java changes some keys at once, some never, and answers success to both, and to keys that
    there are not; here an operator hears which keys need the file and a restart. The same value
    again is no change.
    """
    try:
        asked = parse_properties(bytes(body).decode())
    except (UnicodeDecodeError, ConfigInvalid):
        return ConfigRefused(ResponseCode.SYSTEM_ERROR, "string2Properties error")
    listed = {key.strip() for key in known.get("configBlackList", "").split(";")} | BLACK_LIST
    if any(key in listed for key in asked):
        return ConfigRefused(ResponseCode.NO_PERMISSION, "Can not update config in black list.")
    # One that only the file has does nothing either.
    strange = sorted(key for key in asked if key not in DEFAULTS and key not in READ_ELSEWHERE)
    if strange:
        remark = f"there is no key {', '.join(strange)}; nothing was changed"
        return ConfigRefused(ResponseCode.SYSTEM_ERROR, remark)
    changed = {k: v.strip() for k, v in asked.items() if known.get(k) != v.strip()}
    fixed = sorted(key for key in changed if key not in LIVE)
    if fixed:
        return ConfigRefused(
            ResponseCode.NO_PERMISSION,
            f"{', '.join(fixed)}: read at start only; change the file and restart the broker",
        )
    try:
        check_values({**known, **changed})
        if "controllerAddr" in changed:
            _check_controllers(known, changed["controllerAddr"])
    except ConfigInvalid as error:
        return ConfigRefused(ResponseCode.SYSTEM_ERROR, str(error))
    return changed


def _check_controllers(known: Mapping[str, str], text: str) -> None:
    """Refuse a list that cannot be meant; whoever counts a majority counts its addresses."""
    if known.get("enableControllerMode", "").lower() != "true":
        raise ConfigInvalid("controllerAddr: this broker has no controllers (enableControllerMode)")
    addresses = split_addresses(text)
    if not addresses:
        raise ConfigInvalid(
            "controllerAddr names nobody; the form is HOST:PORT;HOST:PORT;HOST:PORT"
        )
    if controllers_are_looked_up(known):
        check_one_name("controllerAddr", text, CONTROLLERS_BY_DNS)
    for address in addresses:
        try:
            parse_address(address)
        except ConfigInvalid as error:
            raise ConfigInvalid(f"controllerAddr: {error}") from error
        if addresses.count(address) > 1:
            raise ConfigInvalid(f"controllerAddr names {address} more than once")
    if len(addresses) > CONTROLLERS_MAX:
        raise ConfigInvalid(f"controllerAddr names {len(addresses)}, {CONTROLLERS_MAX} at most")
