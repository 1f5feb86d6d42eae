"""Identity, config, index and settings files."""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid, StoreCorrupted
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.store import layout, recovery
from rmqha.store.aio.expired import expired_count
from rmqha.store.aio.small_files import IdentityFiles, read_config, write_config
from rmqha.store.expiry import HOUR_MS, files_to_expire
from rmqha.store.identity import Identity
from rmqha.store.index_file import IndexFile, key_hash
from rmqha.store.record import encode_into, encoded_size
from rmqha.store.settings import load_settings
from tests.store.harness import BORN_MS, message, real_store, small_settings


async def test_the_identity_has_java_s_text_and_is_never_guessed(tmp_path: Path) -> None:
    """A damaged identity must stop the broker: a new id would be a second replica."""
    path = tmp_path / "brokerIdentity"
    files = IdentityFiles(SystemDisk(), str(path))
    assert await files.read() is None
    temporary = Identity("DefaultCluster", "broker-a", 2, "127.0.0.1:10911;1700000000000")
    await files.write_temporary(temporary)
    text = Path(f"{path}-temp").read_text()
    assert text == "DefaultCluster#broker-a#2#127.0.0.1:10911;1700000000000"
    assert await files.read_temporary() == temporary
    final = Identity("DefaultCluster", "broker-a", 2)
    await files.write(final)
    assert path.read_text() == "DefaultCluster#broker-a#2"
    assert not Path(f"{path}-temp").exists()
    assert await files.read() == final
    for damaged in (b"", b"DefaultCluster#broker-a", b"a##1", b"a#b#x", b"a#b#1#c", b"\xff#b#1"):
        path.write_bytes(damaged)
        with pytest.raises(StoreCorrupted, match="brokerIdentity"):
            await files.read()
    with pytest.raises(ConfigInvalid, match="holds"):
        await files.write(Identity("a#b", "c", 1))


async def test_config_files_fall_back_to_their_copy(tmp_path: Path) -> None:
    """Java's bare number keys are read; a damaged file never replaces a good copy."""
    disk, path = SystemDisk(), tmp_path / "config" / "consumerOffset.json"
    assert await read_config(disk, str(path)) is None
    path.parent.mkdir()
    path.write_text('{\n\t"offsetTable":{\n\t\t"T@g":{0:12,1:5}\n\t}\n}')
    good = {"offsetTable": {"T@g": {"0": 12, "1": 5}}}
    assert await read_config(disk, str(path)) == (good, False)
    await write_config(disk, str(path), b'{"offsetTable":{}}')
    path.write_text('{"offsetTable":')
    assert await read_config(disk, str(path)) == (good, True)
    await write_config(disk, str(path), b'{"offsetTable":{"x":1}}')
    path.unlink()
    assert await read_config(disk, str(path)) == (good, True)
    Path(f"{path}.bak").write_text("")
    with pytest.raises(StoreCorrupted, match="bak"):
        await read_config(disk, str(path))


def _index(slots: int, units: list[tuple[str, int, int]]) -> bytes:
    """An index file drawn with construct; units are (key, offset, seconds)."""
    heads = [0] * slots
    body = bytes(20)
    for number, (key, offset, seconds) in enumerate(units, 1):
        value = key_hash("T", key)
        drawn = {"key_hash": value, "physical_offset": offset, "seconds": seconds,
                 "previous": heads[value % slots]}  # fmt: skip
        body += layout.INDEX_UNIT.build(drawn)
        heads[value % slots] = number
    header = layout.INDEX_HEADER.build(
        {"begin_timestamp": 1_000_000, "end_timestamp": 2_000_000, "begin_physical_offset": 0,
         "end_physical_offset": 0, "used_slot_count": slots, "index_count": len(units) + 1}
    )  # fmt: skip
    return header + struct.pack(f">{slots}i", *heads) + body


def test_keys_are_found_newest_first_and_within_their_time() -> None:
    """With two slots every chain has units of other keys."""
    units = [("a", 10, 0), ("b", 20, 5), ("a", 30, 10), ("c", 40, 11), ("a", 50, 100)]
    index = IndexFile(_index(2, units), 2)
    assert index.find("T", "a", begin_ms=0, end_ms=1 << 62, limit=9) == [50, 30, 10]
    assert index.find("T", "a", begin_ms=0, end_ms=1 << 62, limit=2) == [50, 30]
    assert index.find("T", "a", begin_ms=1_010_500, end_ms=1_099_999, limit=9) == [30]
    assert index.find("T", "none", begin_ms=0, end_ms=1 << 62, limit=9) == []
    assert index.header.index_count == 6


@given(st.binary(min_size=48, max_size=300))
def test_a_damaged_index_never_makes_the_reader_hang(data: bytes) -> None:
    """Wrong bytes may give wrong hints only."""
    IndexFile(data, 2).find("T", "a", begin_ms=0, end_ms=1 << 62, limit=100)


async def test_a_late_index_file_is_dropped_after_a_crash(tmp_path: Path) -> None:
    """Its units may name records that were cut."""
    (tmp_path / "index").mkdir()
    (tmp_path / "abort").write_text("1")
    late = tmp_path / "index" / "20231114221320000"
    late.write_bytes(_index(2, [("a", 10, 0)]))
    store = real_store(tmp_path, max_hash_slot_num=2)
    await store.open()
    assert not late.exists()
    await store.close()


def test_settings_read_java_s_keys() -> None:
    """Defaults are Java's; what cannot be used is named."""
    plain = load_settings({}, user_home="/home/x")
    assert plain.store_path_commit_log == "/home/x/store/commitlog"
    assert plain.mapped_file_size_commit_log == 1 << 30
    assert plain.mapped_file_size_consume_queue == 6_000_000
    assert plain.message_delay_levels_ms[:3] == (1_000, 5_000, 10_000)
    assert plain.delete_when == (4,)
    read = load_settings(
        {"flushDiskType": "SYNC_FLUSH", "deleteWhen": "04;16", "mappedFileSizeConsumeQueue": "30",
         "enableControllerMode": "True"}, user_home="/",
    )  # fmt: skip
    assert (read.sync_flush, read.delete_when, read.confirm_bounded) == (True, (4, 16), True)
    assert read.mapped_file_size_consume_queue == 40
    for key, value in (
        ("flushDiskType", "NOW"), ("deleteWhen", "25"), ("messageDelayLevel", "1y"),
        ("maxMessageSize", "x"), ("storePathCommitLog", "/a,/b"), ("diskMaxUsedSpaceRatio", "101"),
    ):  # fmt: skip
        with pytest.raises(ConfigInvalid, match=key):
            load_settings({key: value}, user_home="/")


@pytest.mark.parametrize(
    ("written", "hour", "ratio", "count"),
    [([1, 2, 90], True, 0.5, 2), ([1, 2, 90], False, 0.5, 0), ([1, 2, 90], False, 0.8, 2),
     ([1, 2, 90], False, 0.9, 3), ([0, 2, 90], True, 0.5, 0), ([1] * 20, True, 0.5, 10)],
)  # fmt: skip
def test_files_expire_by_time_hour_and_space(
    written: list[int], hour: bool, ratio: float, count: int
) -> None:
    """Hours since the epoch; it is hour 100, three days are kept."""
    stamps = [hours * HOUR_MS for hours in written]
    found = files_to_expire(
        stamps, now_ms=100 * HOUR_MS, reserved_hours=72, is_hour=hour, used_ratio=ratio,
        max_ratio=0.75, forced_ratio=0.85,
    )  # fmt: skip
    assert found == count


@pytest.mark.parametrize(
    ("changes", "count"),
    [
        ({"used_ratio": 0.86}, 5),
        # Nobody is to lose what is young: then only what is over goes, though at any hour.
        ({"used_ratio": 0.86, "forcibly": False}, 2),
        ({"used_ratio": 0.95, "forcibly": False}, 2),
        ({"used_ratio": 0.86, "max_ratio": 0.95}, 5),
        ({"used_ratio": 0.86, "max_ratio": 0.95, "forcibly": False}, 2),
        ({"used_ratio": 0.84, "max_ratio": 0.95}, 0),
        ({"used_ratio": 0.6, "forced_ratio": 0.5}, 5),
        ({"used_ratio": 0.86, "batch_max": 3}, 3),
    ],
)
def test_files_when_the_disk_gets_full_then_those_go_that_the_settings_name(
    changes: dict[str, Any], count: int
) -> None:
    """cleanFileForciblyEnable=false was not heeded, and diskMaxUsedSpaceRatio moved the limit from which
    files go before their time."""
    values: dict[str, Any] = {
        "now_ms": 100 * HOUR_MS, "reserved_hours": 72, "is_hour": False, "max_ratio": 0.75,
        "forced_ratio": 0.85, **changes,
    }  # fmt: skip
    stamps = [hours * HOUR_MS for hours in (1, 2, 90, 95, 99)]
    assert files_to_expire(stamps, **values) == count


def test_settings_of_the_disk_s_use_when_read_then_bounded_as_java_bounds_them() -> None:
    """Its getters take what is out of bounds as the bound."""
    keys = (
        "diskSpaceWarningLevelRatio", "diskSpaceCleanForciblyRatio", "diskMaxUsedSpaceRatio",
        "deleteFileBatchMax",
    )  # fmt: skip
    found = []
    for value in ("", "0", "60", "100"):
        read = load_settings(dict.fromkeys(keys, value), user_home="/")
        found.append(
            (read.disk_space_warning_level_ratio, read.disk_space_clean_forcibly_ratio,
             read.disk_max_used_space_ratio, read.delete_file_batch_max)
        )  # fmt: skip
    assert found == [(90, 85, 75, 10), (35, 30, 10, 1), (60, 60, 60, 60), (90, 85, 95, 100)]
    assert load_settings({}, user_home="/").clean_file_forcibly_enable
    off = load_settings({"cleanFileForciblyEnable": "false"}, user_home="/")
    assert not off.clean_file_forcibly_enable


@pytest.mark.parametrize(
    ("changes", "count"),
    [({}, 2), ({"clean_file_forcibly_enable": False}, 0), ({"delete_file_batch_max": 1}, 1),
     ({"disk_space_clean_forcibly_ratio": 89}, 0)],
)  # fmt: skip
def test_files_of_a_log_when_counted_then_by_the_settings(
    changes: dict[str, Any], count: int
) -> None:
    """The rule is of no use where nobody tells it what the operator wants."""
    settings = small_settings(**changes)
    segments = []
    for start in (0, 400, 800):
        buffer = memoryview(bytearray(400))
        encode_into(
            buffer, 0, message(), size=encoded_size(message(), property_crc=False), queue_offset=0,
            physical_offset=start, store_timestamp=BORN_MS, property_crc=False,
        )  # fmt: skip
        segments.append(recovery.Segment(start, buffer, ""))
    found = expired_count(segments, settings, BORN_MS + 1, 0.88, 1 << 40)
    assert found == count
