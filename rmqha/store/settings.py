"""The store's settings: Java's MessageStoreConfig keys, and our own limits beside them.

Source: RocketMQ's protocol as observed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.store.consume_queue import BATCH_UNIT, UNIT
from rmqha.store.transfer import MESSAGE_SIZE_MAX

_UNITS_MS = {"s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LEVEL = re.compile(r"([0-9]{1,9})([smhd])")
DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
HOUR_MAX = 23
PERCENT_MAX = 100


class StoreSettings(Struct, frozen=True):
    """A checked configuration; field names are the snake_case of Java's keys.

    Attributes:
        enable_controller_mode: the confirm offset limits what is dispatched and read.
        dispatch_batch_max: records that are dispatched before other work gets its turn.
        expire_interval_ms: between two looks for expired files, and at the disk's use.
        unchecked_tail_bytes: so much of the log's end is shown and sent as it is, if this process
            wrote it.
    """

    store_path_root_dir: str
    store_path_commit_log: str
    mapped_file_size_commit_log: int = 1 << 30
    mapped_file_size_consume_queue: int = 300_000 * UNIT.size
    mapper_file_size_batch_consume_queue: int = 300_000 * BATCH_UNIT.size
    flush_disk_type: str = "ASYNC_FLUSH"
    flush_interval_commit_log: int = 500
    flush_interval_consume_queue: int = 1_000
    check_crc_on_recover: bool = True
    enabled_append_prop_crc: bool = False
    force_verify_prop_crc: bool = False
    max_message_size: int = 4 << 20
    max_hash_slot_num: int = 5_000_000
    max_index_num: int = 20_000_000
    message_index_enable: bool = False
    message_delay_levels_ms: tuple[int, ...] = ()
    delete_when: tuple[int, ...] = (4,)
    file_reserved_time: int = 72
    disk_max_used_space_ratio: int = 75
    disk_space_clean_forcibly_ratio: int = 85
    disk_space_warning_level_ratio: int = 90
    clean_file_forcibly_enable: bool = True
    delete_file_batch_max: int = 10
    enable_controller_mode: bool = False
    duplication_enable: bool = False
    flush_checkpoint_interval_ms: int = 1_000
    dispatch_batch_max: int = 256
    client_batch_max: int = 16_384
    expire_interval_ms: int = 10_000
    unchecked_tail_bytes: int = 64 << 20

    @property
    def sync_flush(self) -> bool:
        """Whether a message counts as stored only when it is durable."""
        return self.flush_disk_type == "SYNC_FLUSH"

    @property
    def confirm_bounded(self) -> bool:
        """Whether the stored confirm offset limits the dispatcher."""
        return self.enable_controller_mode or self.duplication_enable

    def path(self, *names: str) -> str:
        """A path below the root."""
        return os.path.join(self.store_path_root_dir, *names)


def load_settings(properties: Mapping[str, str], *, user_home: str) -> StoreSettings:
    """Check a broker's properties; keys of other rooms are left alone.

    Raises:
        ConfigInvalid: the first key that cannot be used, and why.
    """
    read = _Reader(properties)
    root = read.text("storePathRootDir", os.path.join(user_home, "store"))
    commit_log = read.text("storePathCommitLog", os.path.join(root, "commitlog"))
    if "," in commit_log:
        raise ConfigInvalid("storePathCommitLog: several directories are not supported")
    flush = read.text("flushDiskType", "ASYNC_FLUSH")
    if flush not in ("ASYNC_FLUSH", "SYNC_FLUSH"):
        raise ConfigInvalid(f"flushDiskType={flush} is neither ASYNC_FLUSH nor SYNC_FLUSH")
    queue_size = read.integer("mappedFileSizeConsumeQueue", 300_000 * UNIT.size, UNIT.size)
    batch_size = read.integer(
        "mapperFileSizeBatchConsumeQueue", 300_000 * BATCH_UNIT.size, BATCH_UNIT.size
    )
    hours = read.text("deleteWhen", "04").split(";")
    return StoreSettings(
        store_path_root_dir=root,
        store_path_commit_log=commit_log,
        mapped_file_size_commit_log=read.integer("mappedFileSizeCommitLog", 1 << 30, 1),
        # Java rounds up to whole units.
        mapped_file_size_consume_queue=-(-queue_size // UNIT.size) * UNIT.size,
        mapper_file_size_batch_consume_queue=-(-batch_size // BATCH_UNIT.size) * BATCH_UNIT.size,
        flush_disk_type=flush,
        flush_interval_commit_log=read.integer("flushIntervalCommitLog", 500, 1),
        flush_interval_consume_queue=read.integer("flushIntervalConsumeQueue", 1_000, 1),
        check_crc_on_recover=read.boolean("checkCRCOnRecover", default=True),
        enabled_append_prop_crc=read.boolean("enabledAppendPropCRC", default=False),
        force_verify_prop_crc=read.boolean("forceVerifyPropCRC", default=False),
        max_message_size=read.integer("maxMessageSize", 4 << 20, 1, MESSAGE_SIZE_MAX),
        max_hash_slot_num=read.integer("maxHashSlotNum", 5_000_000, 1),
        max_index_num=read.integer("maxIndexNum", 20_000_000, 2),
        message_index_enable=read.boolean("messageIndexEnable", default=True),
        message_delay_levels_ms=delay_levels(read.text("messageDelayLevel", DELAY_LEVELS)),
        delete_when=tuple(_hour(hour) for hour in hours if hour.strip()),
        file_reserved_time=read.integer("fileReservedTime", 72, 0),
        disk_max_used_space_ratio=read.percent("diskMaxUsedSpaceRatio", 75, 10, 95),
        disk_space_clean_forcibly_ratio=read.percent("diskSpaceCleanForciblyRatio", 85, 30, 85),
        disk_space_warning_level_ratio=read.percent("diskSpaceWarningLevelRatio", 90, 35, 90),
        clean_file_forcibly_enable=read.boolean("cleanFileForciblyEnable", default=True),
        delete_file_batch_max=max(1, read.integer("deleteFileBatchMax", 10, 0)),
        enable_controller_mode=read.boolean("enableControllerMode", default=False),
        duplication_enable=read.boolean("duplicationEnable", default=False),
        unchecked_tail_bytes=read.integer("uncheckedTailBytes", 64 << 20, 0),
    )


def delay_levels(text: str) -> tuple[int, ...]:
    """``1s 5s 1m`` as milliseconds.

    Raises:
        ConfigInvalid: a level that is not a number and one of s, m, h, d.
    """
    found = []
    for part in text.split():
        match = _LEVEL.fullmatch(part)
        if match is None:
            raise ConfigInvalid(f"messageDelayLevel: {part!r} is not like 10s, 5m, 2h or 1d")
        found.append(int(match[1]) * _UNITS_MS[match[2]])
    return tuple(found)


def _hour(text: str) -> int:
    if not text.strip().isdigit() or int(text) > HOUR_MAX:
        raise ConfigInvalid(f"deleteWhen: {text!r} is not an hour from 00 to 23")
    return int(text)


class _Reader:
    def __init__(self, properties: Mapping[str, str]) -> None:
        self._properties = properties

    def text(self, key: str, default: str) -> str:
        return self._properties.get(key, "").strip() or default

    def integer(self, key: str, default: int, low: int, high: int = (1 << 31) - 1) -> int:
        text = self.text(key, str(default))
        digits = text.removeprefix("-")
        if not (digits.isascii() and digits.isdigit()) or not low <= int(text) <= high:
            raise ConfigInvalid(f"{key}={text} is not a number from {low} to {high}")
        return int(text)

    def percent(self, key: str, default: int, low: int, high: int) -> int:
        """Of what is out of bounds the bound is taken, as Java's getters do."""
        return min(max(low, self.integer(key, default, 0, PERCENT_MAX)), high)

    def boolean(self, key: str, *, default: bool) -> bool:
        return self.text(key, str(default)).lower() == "true"
