"""``mqadmin convertStore``: stores of DLedger mode, and of masters and slaves, for controller mode."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rmqha.cli.mqadmin import main
from rmqha.cli.store_conversion import UNFINISHED
from rmqha.store import dledger
from rmqha.store import properties as props
from rmqha.store import record as rec
from rmqha.store.dledger import BEGIN, HEAD, MAGIC, MAGIC_BLANK, TIMER_UNIT
from rmqha.store.segments import file_name, floor
from tests.store.harness import message

FILE = 8192
STORED_MS = 1_700_000_000_000
NEW = "new"
TOPICS = '{"topicConfigTable":{"A":{},"B":{}}}'
HOLDER = (
    "import fcntl, sys; file = open(sys.argv[1], 'r+b'); fcntl.lockf(file, fcntl.LOCK_EX, 1, 0);"
    "print('held', flush=True); sys.stdin.read()"
)


def encoded(
    number: int, offset: int, *, prepared: int = 0, crc: bool = False, length: int = 0
) -> bytearray:
    """A record at a place; bodies differ in length."""
    body = b"%d-" % number + b"x" * (length or number * 37 % 500)
    one = message(body=body, prepared_transaction_offset=prepared)
    size = rec.encoded_size(one, property_crc=crc)
    buffer = bytearray(size)
    rec.encode_into(
        buffer, 0, one, size=size, queue_offset=number, physical_offset=offset,
        store_timestamp=STORED_MS + number, property_crc=crc,
    )  # fmt: skip
    return buffer


class Old:
    """A store of DLedger mode: entries are laid into files as DLedger does."""

    def __init__(
        self, folder: Path, terms: Sequence[int], *, crc: bool = False, length: int = 0
    ) -> None:
        self.folder = folder / "old"
        self.node = self.folder / "dledger-n0"
        (self.node / "data").mkdir(parents=True)
        (self.folder / "config").mkdir()
        (self.folder / "config" / "topics.json").write_text(TOPICS)
        self.bodies: list[int] = []
        self.positions: list[int] = []
        log, end = bytearray(), 0
        for index, term in enumerate(terms):
            # Every third message names the first one, as a committed one names its half message.
            prepared = self.bodies[0] if index % 3 == 2 else 0
            size = HEAD.size + len(encoded(index, 0, prepared=prepared, crc=crc, length=length))
            if FILE - end % FILE < size + HEAD.size:
                left = FILE - end % FILE
                log += HEAD.pack(MAGIC_BLANK, left, 0, 0, 0, 0, 0, 0, 0).ljust(left, b"\0")[:left]
                end += left
            record = encoded(index, end + HEAD.size, prepared=prepared, crc=crc, length=length)
            log += HEAD.pack(MAGIC, size, index, term, end, 0, 0, 0, len(record)) + record
            self.positions.append(end)
            self.bodies.append(end + HEAD.size)
            end += size
        self.end = end
        self.log = log.ljust(-(-end // FILE) * FILE, b"\0")
        self.terms = terms
        self.write()
        self.commit(len(terms) - 1)

    def write(self) -> None:
        """The log as files."""
        for start in range(0, len(self.log), FILE):
            (self.node / "data" / file_name(start)).write_bytes(self.log[start : start + FILE])

    def commit(self, index: int) -> None:
        """What is known to be committed."""
        (self.node / "checkpoint").write_text(
            f"committedIndex={index}\nendIndex={len(self.terms)}\n"
        )

    def convert(self, *more: str) -> Result:
        """Run the command on it."""
        words = ["-s", str(self.folder), "-o", str(self.folder.parent / NEW), "--json"]
        return run(*words, "--file-size", str(FILE), *more)


def run(*words: str) -> Result:
    return CliRunner().invoke(main, ["convertStore", *words])


def told(result: Result) -> dict[str, Any]:
    assert result.exit_code == 0, result.stderr
    return dict(json.loads(result.stdout))


def read(store: Path, *, last_is_empty: bool = False) -> list[rec.Record]:
    """All records of a converted log, each checked at its place; files end with a blank."""
    found: list[rec.Record] = []
    files = sorted((store / "commitlog").iterdir())
    for number, path in enumerate(files[:-1] if last_is_empty else files):
        view, start, at = memoryview(path.read_bytes()), int(path.name), 0
        assert (len(view), start) == (FILE, BEGIN + number * FILE)
        while True:
            head = rec.check_record(
                view, at, len(view), start + at, check_crc=True, verify_property_crc=True
            )
            if head.size <= 0:
                break
            found.append(rec.decode(view, head))
            at += head.size
        assert last_is_empty or head.size == (-1 if path == files[-1] else 0), head
        assert not any(view[at + rec.BLANK_SIZE :])
    return found


@pytest.mark.parametrize("crc", [False, True])
def test_log_of_dledger_when_converted_then_all_is_there_but_its_entries(
    tmp_path: Path, crc: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Queues, bodies and times are as before; places are new, also where records name them.

    Some places are looked for in parts of the log that were passed long ago.
    """
    monkeypatch.setattr(dledger, "SAMPLE_BYTES", 3_000)
    monkeypatch.setattr(dledger, "PARTS_KEPT", 2)
    old = Old(tmp_path, [0] * 20 + [3] * 60, crc=crc)
    before = {path: path.read_bytes() for path in old.folder.rglob("*") if path.is_file()}
    outcome = told(old.convert())
    assert {path: path.read_bytes() for path in before} == before
    found = read(tmp_path / NEW)
    assert [one.queue_offset for one in found] == [*range(80)]
    for number, one in enumerate(found):
        same = rec.decode(
            memoryview(data := encoded(number, one.physical_offset, crc=crc)),
            rec.check_record(data, 0, len(data), one.physical_offset, check_crc=True),
        )
        assert (one.body, one.topic, one.store_timestamp) == (
            same.body, same.topic, same.store_timestamp,
        )  # fmt: skip
        assert props.has_crc(one.properties, len(one.properties)) is crc
        half = found[0].physical_offset if number % 3 == 2 else 0
        assert one.prepared_transaction_offset == half
    assert (outcome["first_index"], outcome["last_index"], outcome["last_term"]) == (0, 79, 3)
    assert outcome["files"][-1]["end"] == found[-1].physical_offset + found[-1].size
    assert (tmp_path / NEW / "config" / "topics.json").read_text() == TOPICS
    assert (outcome["topics"], outcome["groups"]) == (2, 0)
    assert (tmp_path / NEW / "epochFileCheckpoint").read_text().splitlines()[2:] == ["0-0"]
    assert len(outcome["files"]) > 3


def test_entries_when_not_known_as_committed_then_taken_only_when_asked_for(
    tmp_path: Path,
) -> None:
    """Other nodes may have others in their place; the node with the newest log may bring them."""
    old = Old(tmp_path, [0] * 30)
    old.commit(19)
    assert told(old.convert())["last_index"] == 19
    assert len(read(tmp_path / NEW)) == 20
    (tmp_path / NEW).rename(tmp_path / "first")
    assert told(old.convert("--through-end"))["last_index"] == 29
    assert [*read(tmp_path / NEW)][:20] == read(tmp_path / "first")


def test_nodes_when_retention_left_them_different_entries_then_logs_are_equal_from_one_on(
    tmp_path: Path,
) -> None:
    """Each node has dropped its oldest files when it wanted."""
    whole, less = Old(tmp_path / "a", [0] * 40), Old(tmp_path / "b", [0] * 40)
    (less.node / "data" / file_name(0)).unlink()
    first = told(less.convert())["first_index"]
    assert first > 0
    told(whole.convert("--first-index", str(first)))
    assert read(tmp_path / "a" / NEW) == read(tmp_path / "b" / NEW)
    # What a message of the dropped file names is nowhere.
    assert {one.prepared_transaction_offset for one in read(tmp_path / "b" / NEW)} == {0}
    (tmp_path / "b" / NEW).rename(tmp_path / "b" / "before")
    refused = less.convert("--first-index", str(first - 1))
    assert refused.exit_code == 1
    assert f"begins with entry {first}, behind {first - 1}" in refused.stderr
    assert not [*(tmp_path / "b").glob(f"{NEW}*")]


def test_log_when_cut_and_written_on_then_bytes_of_before_are_no_entries(tmp_path: Path) -> None:
    """DLedger leaves what it has cut off in the file, whole entries among it."""
    old = Old(tmp_path, [0] * 12)
    # The entry behind the end is whole, but of an index that was given already.
    stale = HEAD.pack(MAGIC, HEAD.size + 91, 5, 0, old.end, 0, 0, 0, 91)
    old.log[old.end : old.end + len(stale)] = stale
    old.write()
    assert told(old.convert("--through-end"))["last_index"] == 11


@pytest.mark.parametrize(
    ("at", "why"),
    [(0, "unknown magic"), (24, "its position is"), (48 + 90, "CRC of the body")],
)
def test_entry_when_damaged_though_committed_then_nothing_is_converted(
    tmp_path: Path, at: int, why: str
) -> None:
    """It names the entry; the operator takes another node's log."""
    old = Old(tmp_path, [0] * 30)
    old.log[old.positions[10] + at] ^= 0x41
    old.write()
    result = old.convert()
    assert result.exit_code == 1
    assert why in result.stderr
    assert not [*tmp_path.glob(f"{NEW}*")]


def test_timers_of_java_when_converted_then_they_name_the_new_places(tmp_path: Path) -> None:
    """The wheel points into the timer log, which points into the log of messages."""
    old = Old(tmp_path, [0] * 30)
    (old.folder / "timerlog").mkdir()
    (old.folder / "timerwheel").write_bytes(b"wheel")
    units = b"".join(
        TIMER_UNIT.pack(TIMER_UNIT.size, 0, 1, STORED_MS, 5, old.bodies[at], 100, 7, 0)
        for at in (4, 20, 21)
    )
    (old.folder / "timerlog" / file_name(0)).write_bytes(units.ljust(FILE, b"\0"))
    told(old.convert())
    found = read(tmp_path / NEW)
    moved = (tmp_path / NEW / "timerlog" / file_name(0)).read_bytes()
    places = [TIMER_UNIT.unpack_from(moved, at * TIMER_UNIT.size)[5] for at in range(3)]
    assert places == [found[at].physical_offset for at in (4, 20, 21)]
    assert (tmp_path / NEW / "timerwheel").read_bytes() == b"wheel"


def test_checkpoint_when_dledger_left_only_the_copy_of_it_then_that_one_tells(
    tmp_path: Path,
) -> None:
    """Two of its threads write the file when it ends, and may both have deleted it."""
    old = Old(tmp_path, [0] * 10)
    old.commit(7)
    checkpoint = old.node / "checkpoint"
    (old.node / "checkpoint.bak").write_text("committedIndex=5\nendIndex=10\n")
    assert json.loads(old.convert().stdout)["last_index"] == 7, (
        "the newer one, where both are there"
    )
    shutil.rmtree(tmp_path / NEW)
    checkpoint.rename(old.node / "checkpoint.bak")
    assert json.loads(old.convert().stdout)["last_index"] == 7


def test_store_when_it_cannot_be_converted_then_it_says_why(tmp_path: Path) -> None:
    """Nothing is written, and nothing of the old store is touched."""
    old = Old(tmp_path, [0] * 10)

    def refused(*more: str) -> str:
        result = old.convert(*more)
        assert result.exit_code == 1, result.stdout
        return result.stderr

    assert "no such folder" in run("-s", str(tmp_path / "nowhere")).stderr
    assert "-o names the folder" in run("-s", str(old.folder)).stderr
    (tmp_path / (NEW + UNFINISHED)).mkdir()
    assert "did not end; remove it" in refused()
    (tmp_path / (NEW + UNFINISHED)).rmdir()
    (tmp_path / NEW).mkdir()
    assert "is there already" in refused()
    (tmp_path / NEW).rmdir()
    (old.node / "checkpoint").unlink()
    assert "does not tell what was committed" in refused()
    old.commit(11)
    assert "entry 11 was committed, the log ends with 9" in refused()
    old.commit(9)
    (old.folder / "dledger-n1" / "data").mkdir(parents=True)
    assert "logs of several nodes: dledger-n0, dledger-n1" in refused()
    (old.folder / "dledger-n1" / "data").rmdir()
    (old.folder / "commitlog").mkdir()
    (old.folder / "commitlog" / file_name(0)).write_bytes(b"\0" * FILE)
    assert "from before DLedger" in refused()


def test_record_when_it_fits_into_no_file_then_the_size_is_named(tmp_path: Path) -> None:
    """A smaller mappedFileSizeCommitLog than before may be too small."""
    old = Old(tmp_path, [0] * 3, length=5_000)
    words = ["-s", str(old.folder), "-o", str(tmp_path / NEW), "--file-size"]
    result = run(*words, "4096")
    assert result.exit_code == 1
    assert "does not fit into files of 4096" in result.stderr


def test_store_when_a_broker_runs_on_it_then_it_is_left_alone(tmp_path: Path) -> None:
    """Java's brokers and ours hold the same lock."""
    old = Old(tmp_path, [0] * 3)
    lock = old.folder / "lock"
    lock.touch()
    holder = [sys.executable, "-c", HOLDER, str(lock)]
    with subprocess.Popen(holder, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == b"held\n"
        result = old.convert()
        process.communicate()
    assert result.exit_code == 1
    assert "is locked by another process" in result.stderr
    told(old.convert())


def adoptable(tmp_path: Path) -> Path:
    """The store of a master of old: three files, the last of them made for what was to come."""
    old = Old(tmp_path, [0] * 60)
    told(old.convert())
    store = tmp_path / NEW
    (store / "epochFileCheckpoint").unlink()
    files = sorted((store / "commitlog").iterdir())
    (store / "commitlog" / file_name(len(files) * FILE)).write_bytes(b"\0" * FILE)
    return store


def test_store_of_a_master_when_adopted_then_all_of_it_is_of_epoch_0(tmp_path: Path) -> None:
    """Nothing else is changed, and it is done once."""
    store = adoptable(tmp_path)
    before = {path: path.read_bytes() for path in store.rglob("*") if path.is_file()}
    outcome = told(run("-s", str(store), "--json"))
    assert sum(one["messages"] for one in outcome["files"]) == 60
    assert {path: path.read_bytes() for path in before} == before
    assert (store / "epochFileCheckpoint").read_text().splitlines()[2:] == ["0-0"]
    again = run("-s", str(store))
    assert again.exit_code == 1
    assert "is one of controller mode already" in again.stderr


@pytest.mark.parametrize("number", [3, 55, -2])
def test_store_of_a_master_when_damaged_in_the_middle_then_it_gets_no_epochs(
    tmp_path: Path, number: int
) -> None:
    """A log that ends before its last message would be cut at its first start; in its last file, too."""
    store = adoptable(tmp_path)
    damaged = read(store, last_is_empty=True)[number].physical_offset
    file = store / "commitlog" / file_name(floor(damaged, FILE))
    data = bytearray(file.read_bytes())
    data[damaged % FILE + 4] ^= 1
    file.write_bytes(data)
    result = run("-s", str(store))
    assert result.exit_code == 1
    assert f"offset {damaged}: unknown magic" in result.stderr
    assert "and a whole message follows at" in result.stderr
    assert not [*store.glob("epochFileCheckpoint*")]
    asked = run("-s", str(store), "-o", str(tmp_path / "other"))
    assert "converted where it is, without -o" in asked.stderr


def test_store_of_a_master_when_its_last_message_is_torn_then_the_log_ends_before_it(
    tmp_path: Path,
) -> None:
    """What its next start cuts off anyhow."""
    store = adoptable(tmp_path)
    torn = read(store, last_is_empty=True)[-1].physical_offset
    file = store / "commitlog" / file_name(floor(torn, FILE))
    data = bytearray(file.read_bytes())
    data[torn % FILE + 20 :] = bytes(FILE - torn % FILE - 20)
    file.write_bytes(data)
    outcome = told(run("-s", str(store), "--json"))
    assert outcome["files"][-1]["end"] == torn
    assert sum(one["messages"] for one in outcome["files"]) == 59


def test_store_of_a_master_when_it_has_no_message_then_it_is_adopted_all_the_same(
    tmp_path: Path,
) -> None:
    """A set that never took one."""
    (tmp_path / "commitlog").mkdir()
    (tmp_path / "commitlog" / file_name(0)).write_bytes(bytes(FILE))
    outcome = told(run("-s", str(tmp_path), "--json"))
    assert [(one["end"], one["messages"]) for one in outcome["files"]] == [(0, 0)]
    assert run("-s", str(tmp_path)).exit_code == 1


def test_store_when_the_folder_is_something_else_then_it_says_so_and_leaves_no_file(
    tmp_path: Path,
) -> None:
    """It named a commitlog that is missing, and left a lock behind."""
    result = run("-s", str(tmp_path))
    assert result.exit_code == 1
    assert f"{tmp_path} is no store of a broker" in result.stderr
    assert list(tmp_path.iterdir()) == []


def test_store_when_a_name_server_is_passed_along_then_it_means_nothing(tmp_path: Path) -> None:
    """Scripts give -n to every command of mqadmin."""
    result = run("-s", str(tmp_path), "-n", "10.0.0.1:9876")
    assert result.exit_code == 1
    assert "no store of a broker" in result.stderr


def test_store_when_its_path_cannot_be_looked_at_then_2(tmp_path: Path) -> None:
    """A name that is too long raises where a missing folder does not."""
    result = run("-s", str(tmp_path / ("x" * 300)))
    assert result.exit_code == 2
    last = result.stderr.splitlines()[-1]
    assert last.startswith("Error: Invalid value for --store: ")
    assert last.endswith("xxx: File name too long")
