"""``mqadmin convertStore``: what stands in the new store is all there, durable, and known to be whole."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from rmqha.cli import store_conversion
from rmqha.cli.store_conversion import UNFINISHED, Writer
from rmqha.store.checkpoint import SIZE, SLACK_MS, Checkpoint, write_into
from rmqha.store.consume_queue import UNIT
from rmqha.store.dledger import TIMER_UNIT
from rmqha.store.segments import file_name, floor
from tests.cli.test_convert_store import (
    FILE,
    NEW,
    STORED_MS,
    TOPICS,
    Old,
    adoptable,
    read,
    run,
    told,
)

EPOCHS = "epochFileCheckpoint"
ROLLED = 2
TRIES_LOCK = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+b')\n"
    "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 0)\n"
    "except OSError: sys.exit(7)"
)


def timer_log(old: Old, places: list[int]) -> Path:
    """A timer log whose units name messages at these places."""
    units = b"".join(
        TIMER_UNIT.pack(TIMER_UNIT.size, at - 1, ROLLED, STORED_MS, 5, place, 100, 7, 0)
        for at, place in enumerate(places)
    )
    # As Java fills a file up; of just the size of a unit, to be told apart by its magic number.
    filled = TIMER_UNIT.pack(TIMER_UNIT.size, 0, -(1 << 30), 0, 0, 0, 0, 0, 0)
    (old.folder / "timerlog").mkdir()
    (old.folder / "timerwheel").write_bytes(b"wheel")
    file = old.folder / "timerlog" / file_name(0)
    file.write_bytes((units + filled).ljust(FILE, b"\0"))
    return file


@pytest.mark.parametrize("why", ["retention", "first index", "not committed"])
def test_timers_when_their_messages_are_not_taken_then_they_lead_nowhere(
    tmp_path: Path, why: str
) -> None:
    """A healthy store has such units for weeks, and was refused for the first of them.

    What they name has no bytes, which Java takes for a message that is gone. Those of the log's end
    are not below its begin: Java would delete the file with all that waits in it.
    """
    old = Old(tmp_path, [0] * 60)
    file = timer_log(old, [old.bodies[at] for at in (0, 30, 50)])
    if why == "retention":
        (old.node / "data" / file_name(0)).unlink()
    if why == "not committed":
        old.commit(40)
    first = 20 if why == "first index" else None
    outcome = told(old.convert(*(() if first is None else ("--first-index", str(first)))))
    places = {one.queue_offset: one.physical_offset for one in read(tmp_path / NEW)}
    moved = (tmp_path / NEW / "timerlog" / file.name).read_bytes()
    units = [TIMER_UNIT.unpack_from(moved, at * TIMER_UNIT.size) for at in range(3)]
    end = outcome["files"][-1]["end"]
    lost = {50: (end, 0)} if why == "not committed" else {0: (-1, 0)}
    assert outcome["timers_nowhere"] == 1
    assert [unit[5:7] for unit in units] == [
        lost.get(at) or (places[at], 100) for at in (0, 30, 50)
    ]
    assert [unit[:5] for unit in units] == [
        TIMER_UNIT.unpack_from(file.read_bytes(), at * TIMER_UNIT.size)[:5] for at in range(3)
    ], "the wheel's slots lead through them"
    rest = 3 * TIMER_UNIT.size
    assert moved[rest:] == file.read_bytes()[rest:], "what fills the file up is no unit"


def test_timers_when_some_lead_nowhere_then_the_table_says_so(tmp_path: Path) -> None:
    """And nothing of it where none do."""
    old = Old(tmp_path, [0] * 60)
    timer_log(old, [old.bodies[0], old.bodies[50]])
    words = ("-s", str(old.folder), "--file-size", str(FILE), "-o")
    assert "passed over" not in run(*words, str(tmp_path / "all")).stdout
    less = run(*words, str(tmp_path / NEW), "--first-index", "20").stdout
    assert "Timers of messages that the new log does not have, which are passed over: 1\n" in less


def test_timer_when_it_names_the_middle_of_a_message_then_the_store_is_refused(
    tmp_path: Path,
) -> None:
    """That is no timer log of this log."""
    old = Old(tmp_path, [0] * 30)
    timer_log(old, [old.bodies[4] + 1])
    result = old.convert()
    assert result.exit_code == 1
    assert f"a message is named at {old.bodies[4] + 1}, where none is" in result.stderr
    assert [one.name for one in tmp_path.iterdir()] == ["old"]


def test_log_when_written_in_many_parts_then_nothing_of_it_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Parts are of 4 MiB, and a disk may take less than it is given."""
    old, write = Old(tmp_path, [0] * 60), os.write
    told(old.convert())
    (tmp_path / NEW).rename(tmp_path / "at once")
    monkeypatch.setattr(store_conversion, "FLUSH_BYTES", 700)
    monkeypatch.setattr(os, "write", lambda fd, data: write(fd, data[:100]))
    outcome = told(old.convert())
    monkeypatch.undo()
    assert read(tmp_path / NEW) == read(tmp_path / "at once")
    adopted = tmp_path / "at once"
    (adopted / EPOCHS).unlink()
    assert told(run("-s", str(adopted), "--json"))["files"] == outcome["files"], "digests, too"


def test_message_when_a_byte_of_its_body_is_another_then_the_log_of_a_master_is_refused(
    tmp_path: Path,
) -> None:
    """Each message is checked by its sum, not only by its head."""
    store = adoptable(tmp_path)
    record = read(store, last_is_empty=True)[30]
    file = store / "commitlog" / file_name(floor(record.physical_offset, FILE))
    data = bytearray(file.read_bytes())
    data[data.index(record.body, record.physical_offset % FILE)] ^= 1
    file.write_bytes(data)
    result = run("-s", str(store))
    assert result.exit_code == 1
    assert f"offset {record.physical_offset}: " in result.stderr
    assert "CRC" in result.stderr
    assert not [*store.glob(f"{EPOCHS}*")]


def _without_one(folder: Path) -> str:
    (folder / file_name(FILE)).unlink()
    return "files are missing between the first and the last one"


def _with_a_short_one(folder: Path) -> str:
    os.truncate(folder / file_name(FILE), 100)
    return f"{file_name(FILE)} has 100 bytes, the first file {FILE}"


@pytest.mark.parametrize("harm", [_without_one, _with_a_short_one])
def test_log_when_a_file_of_its_middle_is_not_whole_then_it_is_refused(
    tmp_path: Path, harm: Callable[[Path], str]
) -> None:
    """Of either kind of store."""
    why = harm((store := adoptable(tmp_path)) / "commitlog")
    assert why in (result := run("-s", str(store))).stderr
    assert result.exit_code == 1
    assert not [*store.glob(f"{EPOCHS}*")]
    old = Old(tmp_path / "other", [0] * 60)
    assert harm(old.node / "data") in (result := old.convert()).stderr
    assert result.exit_code == 1


@pytest.mark.parametrize("kind", ["DLedger", "master"])
def test_last_file_when_it_is_empty_then_it_counts_as_missing(tmp_path: Path, kind: str) -> None:
    """Java removes such a file when it starts; it was "cannot mmap an empty file" and a traceback."""
    if kind == "DLedger":
        old = Old(tmp_path, [0] * 60)
        (old.node / "data" / file_name(len(old.log))).touch()
        assert told(old.convert())["last_index"] == 59
        return
    store = adoptable(tmp_path)
    last = max((store / "commitlog").iterdir())
    last.write_bytes(b"")
    assert sum(one["messages"] for one in told(run("-s", str(store), "--json"))["files"]) == 60


def test_new_store_when_it_gets_its_name_then_all_of_it_is_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A machine that stops at once afterwards has each file, each folder and each name in it."""
    old = Old(tmp_path, [0] * 30)
    timer_log(old, [old.bodies[4]])
    made, synced = tmp_path / (NEW + UNFINISHED), dict[Path, bytes | list[str]]()
    fsync, rename = os.fsync, os.rename

    def content(path: Path) -> bytes | list[str]:
        return path.read_bytes() if path.is_file() else sorted(os.listdir(path))

    def noting(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        if path.parent.name == "commitlog" and path not in synced:
            assert path == max(path.parent.iterdir()), "each before the next one is begun"
        synced[path] = content(path)
        fsync(fd)

    def checking(source: Path, target: Path) -> None:
        there = [made, *made.rglob("*")]
        assert {path: synced.get(path) for path in there} == {path: content(path) for path in there}
        rename(source, target)

    monkeypatch.setattr(os, "fsync", noting)
    monkeypatch.setattr(os, "rename", checking)
    told(old.convert())
    assert NEW in synced[tmp_path]


def test_epochs_of_a_master_when_put_in_place_then_they_are_durable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file before it gets its name, and the name afterwards."""
    store = adoptable(tmp_path)
    synced, fsync = list[tuple[str, int, bool]](), os.fsync

    def noting(fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        is_there = (store / EPOCHS).exists()
        synced.append((path.name, path.stat().st_size if path.is_file() else 0, is_there))
        fsync(fd)

    monkeypatch.setattr(os, "fsync", noting)
    told(run("-s", str(store), "--json"))
    size = (store / EPOCHS).stat().st_size
    assert synced == [(EPOCHS + UNFINISHED, size, False), (NEW, 0, True)]


@pytest.mark.parametrize("kind", ["DLedger", "master"])
@pytest.mark.costly
def test_store_when_it_is_converted_then_no_broker_can_start_on_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """Until all of it is written, and not only at the beginning."""
    store = adoptable(tmp_path)
    tried: list[int] = []
    sync = store_conversion._sync_folder

    def trying(path: Path) -> None:
        lock = (store if kind == "master" else tmp_path / "old") / "lock"
        words = [sys.executable, "-S", "-E", "-c", TRIES_LOCK, str(lock)]
        tried.append(subprocess.run(words, check=False).returncode)
        sync(path)

    if kind == "DLedger":
        shutil.rmtree(store)
    monkeypatch.setattr(store_conversion, "_sync_folder", trying)
    old = ["-s", str(tmp_path / "old"), "-o", str(store), "--file-size", str(FILE), "--json"]
    told(run(*(["-s", str(store), "--json"] if kind == "master" else old)))
    assert set(tried) == {7}


def test_tables_when_they_cannot_be_read_then_nothing_is_converted(tmp_path: Path) -> None:
    """A master of old got its epoch file, "failed", and was of controller mode already at the next try."""
    store = adoptable(tmp_path)
    topics = store / "config" / "topics.json"
    for content, why in (
        ("", "body is not JSON"), ("[]", "holds no JSON object"),
        ('{"topicConfigTable": 5}', "topicConfigTable is no object"),
    ):  # fmt: skip
        topics.write_text(content)
        shutil.copy(topics, tmp_path / "old" / "config")
        other = ["-s", str(tmp_path / "old"), "-o", str(tmp_path / "other")]
        for result in (run("-s", str(store)), run(*other, "--file-size", str(FILE))):
            assert result.exit_code == 1
            assert str(Path("config", "topics.json")) in result.stderr
            assert why in result.stderr
        assert sorted(one.name for one in tmp_path.iterdir()) == [NEW, "old"]
        assert not [*store.glob(f"{EPOCHS}*")]
    topics.write_text(TOPICS)
    assert told(run("-s", str(store), "--json"))["topics"] == 2


def test_config_when_it_cannot_be_copied_then_the_file_and_the_reason_are_told(
    tmp_path: Path,
) -> None:
    """It was "None"."""
    old = Old(tmp_path, [0] * 10)
    config = old.folder / "config"
    (config / "link.json").symlink_to(tmp_path / "nowhere")
    result = old.convert()
    assert result.exit_code == 1
    assert "No such file or directory" in result.stderr
    assert str(config / "link.json") in result.stderr
    (config / "link.json").unlink()
    os.mkfifo(config / "pipe")
    assert f"`{config / 'pipe'}` is a named pipe" in old.convert().stderr
    assert [one.name for one in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("calls", ["copyfile", "write"])
def test_disk_when_it_is_full_then_that_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, calls: str
) -> None:
    """Whatever was being written; what was is removed."""
    old = Old(tmp_path, [0] * 10)

    def full(*_: object, **__: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os if calls == "write" else shutil, calls, full)
    result = old.convert()
    assert result.exit_code == 1
    assert "No space left on device" in result.stderr
    assert (str(tmp_path / NEW) in result.stderr) == (calls == "write")
    assert [one.name for one in tmp_path.iterdir()] == ["old"]


@pytest.mark.parametrize("part", ["config", "timerlog", "dledger-n0/data", "config/topics.json"])
def test_new_store_when_named_within_what_is_converted_then_refused(
    tmp_path: Path, part: str
) -> None:
    """The tables were copied into themselves; beside them is well."""
    old = Old(tmp_path, [0] * 10)
    timer_log(old, [old.bodies[4]])
    before = {*tmp_path.rglob("*")}
    words = ["-s", str(old.folder), "--file-size", str(FILE), "-o"]
    result = run(*words, str(old.folder / part / NEW))
    assert result.exit_code == 1
    assert f"{NEW} lies in what is converted; name a folder beside it" in result.stderr
    assert {*tmp_path.rglob("*")} - before <= {old.folder / "lock"}
    assert run(*words, str(old.folder / NEW)).exit_code == 0


def with_checkpoint(store: Path, **marks: int) -> None:
    """A checkpoint, of ours with ``flushed_offset``, else as Java's brokers write it."""
    data = bytearray(SIZE)
    write_into(data, Checkpoint(**marks))
    (store / "checkpoint").write_bytes(data)


def last_message(store: Path) -> tuple[int, int]:
    """Where it ends, and when it was stored."""
    one = read(store, last_is_empty=True)[-1]
    return one.physical_offset + one.size, one.store_timestamp


def lose_end(store: Path) -> None:
    """The two newest files: one with messages, and the one that was made for what was to come."""
    for path in sorted((store / "commitlog").iterdir())[-2:]:
        path.unlink()


@pytest.mark.parametrize("is_unclean", [True, False])
@pytest.mark.parametrize("sign", ["our mark", "confirmed", "queue", "newest message"])
def test_log_when_it_has_lost_its_last_file_then_it_gets_no_epochs(
    tmp_path: Path, sign: str, *, is_unclean: bool
) -> None:
    """It was converted with exit code 0, and slaves that had the rest would have been cut."""
    store = adoptable(tmp_path)
    end, stored_ms = last_message(store)
    queue = store / "consumequeue" / "A" / "0"
    marks: dict[str, dict[str, int]] = {
        "our mark": {"flushed_offset": end}, "confirmed": {"confirm_offset": end},
        "queue": {}, "newest message": {"physic_msg_timestamp": stored_ms + SLACK_MS},
    }  # fmt: skip
    with_checkpoint(store, **marks[sign])
    if sign == "queue":
        queue.mkdir(parents=True)
        unit = UNIT.pack(end - 100, 100, 0)
        (queue / file_name(0)).write_bytes(unit.ljust(200, b"\0"))
    if is_unclean:
        (store / "abort").touch()
    whole = tmp_path / "whole"
    shutil.copytree(store, whole)
    told(run("-s", str(whole), "--json"))
    lose_end(store)
    result = run("-s", str(store))
    if is_unclean and sign in {"confirmed", "queue"}:
        # The log may have lost with the power what these say.
        assert result.exit_code == 0
        return
    assert result.exit_code == 1
    assert "durable" in result.stderr
    assert not [*store.glob(f"{EPOCHS}*")]


@pytest.mark.parametrize("number", range(3))
def test_store_when_a_file_of_a_queue_was_cut_off_then_it_is_converted(
    tmp_path: Path, number: int
) -> None:
    """It ended with a traceback; of queues it needs to know no more than where the last record ends."""
    store = adoptable(tmp_path)
    end, _ = last_message(store)
    with_checkpoint(store)
    queue = store / "consumequeue" / "A" / "0"
    queue.mkdir(parents=True)
    for start in (0, 200, 400):
        units = b"".join(UNIT.pack(start + at, 1, 0) for at in range(10))
        (queue / file_name(start)).write_bytes(units)
    cut = queue / file_name(200 * number)
    cut.write_bytes(cut.read_bytes()[:7])
    assert end > 600
    told(run("-s", str(store), "--json"))


def test_log_when_its_newest_message_is_a_little_older_than_the_checkpoint_then_it_is_whole(
    tmp_path: Path,
) -> None:
    """As Java has it, and our mark says more than any time."""
    store = adoptable(tmp_path)
    end, stored_ms = last_message(store)
    with_checkpoint(store, physic_msg_timestamp=stored_ms + SLACK_MS + 1)
    assert "was durable" in run("-s", str(store)).stderr
    with_checkpoint(store, physic_msg_timestamp=stored_ms + SLACK_MS + 1, flushed_offset=end)
    told(run("-s", str(store), "--json"))


@pytest.mark.parametrize("main", [None, "{", ""])
def test_tables_when_only_the_copy_is_whole_then_its_rows_are_counted(
    tmp_path: Path, main: str | None
) -> None:
    """Brokers take it as well; the command refused, or counted nothing."""
    store = adoptable(tmp_path)
    topics = store / "config" / "topics.json"
    topics.rename(topics.with_name("topics.json.bak"))
    if main is not None:
        topics.write_text(main)
    assert told(run("-s", str(store), "--json"))["topics"] == 2


def test_store_when_converted_then_only_the_owner_of_the_old_one_can_read_it(
    tmp_path: Path,
) -> None:
    """Whatever the umask of who converts; messages could be read by everybody."""
    old = Old(tmp_path, [0] * 60)
    timer_log(old, old.bodies[:1])
    for path in (old.folder, *old.folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
    is_root = os.getuid() == 0
    if is_root:
        os.chown(old.folder, 1234, 1235)
    before = os.umask(0o022)
    try:
        told(old.convert())
        adopted = adoptable(tmp_path / "second")
        (adopted / "commitlog").chmod(0o755)
        told(run("-s", str(adopted), "--json"))
    finally:
        os.umask(before)
    made = tmp_path / NEW
    paths = (made, *made.rglob("*"))
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_dir()} == {0o700}
    assert {path.stat().st_mode & 0o777 for path in paths if path.is_file()} == {0o600}
    assert (adopted / EPOCHS).stat().st_mode & 0o777 == 0o600
    if is_root:
        assert {(path.stat().st_uid, path.stat().st_gid) for path in paths} == {(1234, 1235)}


def test_log_when_it_is_being_written_then_nobody_else_can_read_it(
    tmp_path: Path,
) -> None:
    """A large one takes hours."""
    before = os.umask(0)
    try:
        writer = Writer(tmp_path / "made" / "commitlog", FILE)
        writer.add(bytearray(100), 0, 0)
    finally:
        os.umask(before)
    writer.close()
    folder = tmp_path / "made" / "commitlog"
    modes = [path.stat().st_mode & 0o777 for path in (folder.parent, folder, folder / file_name(0))]
    assert modes == [0o700, 0o700, 0o600]
