"""Consume queues of which something is missing, as ``mqdoctor check`` reads them."""

from __future__ import annotations

import json
import shutil
from asyncio import to_thread
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmqha.cli.mqdoctor import main
from rmqha.doctor.aio import queue_files, store_files
from rmqha.doctor.aio.store_files import read_store
from rmqha.doctor.facts import QueueFacts, StoreFacts
from rmqha.store import checkpoint, queue_list
from rmqha.store.consume_queue import FILLER, UNIT
from rmqha.store.metadata_records import METADATA_KEY, METADATA_TOPIC, ended_property
from rmqha.store.record import Head
from rmqha.store.scan import Run
from tests.store.harness import TOPIC, message, real_store

COUNT = 200
FILE_UNITS = 64
QUEUE_FILE = FILE_UNITS * UNIT.size


async def write(root: Path, *, first: int = 0) -> None:
    """Two queues of four files, of a broker that has stopped in order and knows the topic."""
    store = real_store(root)
    await store.open()
    for number in range(first, first + COUNT):
        for queue in range(2):
            store.append(message(number, queue_id=queue))
    await store.wait_dispatched(store.max_offset)
    await store.close()
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: {}}}))


def read(root: Path, files_max: int = 2) -> StoreFacts:
    return read_store(root, root / "commitlog", root / "epochFileCheckpoint", files_max)


def queue_file(root: Path, number: int, queue: int = 1) -> Path:
    return root / "consumequeue" / TOPIC / str(queue) / f"{number * QUEUE_FILE:020d}"


def damages(facts: StoreFacts) -> list[str]:
    return [one.damage for one in facts.queues if one.damage]


def forget_list(root: Path) -> None:
    """As after a stop of Java's broker, or of an older release."""
    (root / queue_list.FILE).unlink()


@pytest.mark.parametrize("files_max", [0, 2])
async def test_queues_when_whole_then_nothing_is_missing(tmp_path: Path, files_max: int) -> None:
    await write(tmp_path)
    facts = read(tmp_path, files_max)
    assert (damages(facts), facts.lost_queues, facts.unreached) == ([], (), ())
    assert [(one.min_offset, one.max_offset) for one in facts.queues] == [(0, COUNT)] * 2
    assert facts.files_read == (files_max or len(facts.log_sizes))


async def test_queue_when_a_file_between_is_missing_then_it_is_damaged(tmp_path: Path) -> None:
    await write(tmp_path)
    queue_file(tmp_path, 1).unlink()
    assert damages(read(tmp_path)) == [f"the file before {queue_file(tmp_path, 2)} is missing"]


async def test_queue_when_a_part_of_an_older_file_is_zeros_then_it_is_damaged(
    tmp_path: Path,
) -> None:
    """A large part is seen by default, one unit by a whole look."""
    await write(tmp_path)
    path = queue_file(tmp_path, 1)
    whole = path.read_bytes()
    path.write_bytes(whole[:400] + bytes(400) + whole[800:])
    assert damages(read(tmp_path)) == [
        f"{path} has no unit of message {FILE_UNITS + 21}, and files follow it"
    ]
    path.write_bytes(whole[:440] + bytes(20) + whole[460:])
    assert damages(read(tmp_path)) == []
    assert f"message {FILE_UNITS + 22}" in damages(read(tmp_path, 0))[0]
    # Of an older time; the first one that is wrong is told.
    path.write_bytes(whole[:840] + UNIT.pack(1, 100, 0) + whole[860:])
    assert f"message {FILE_UNITS + 42}" in damages(read(tmp_path))[0]
    path.write_bytes(bytes(400) + whole[400:])
    assert f"message {FILE_UNITS}," in damages(read(tmp_path))[0]
    # What a queue has before its first message, or in a gap, is whole.
    path.write_bytes(FILLER * FILE_UNITS)
    assert damages(read(tmp_path)) == []
    path.write_bytes(whole[:400] + FILLER * 20 + whole[800:])
    assert damages(read(tmp_path)) == damages(read(tmp_path, 0)) == []


@pytest.mark.parametrize(
    ("gone", "says"),
    [
        (range(4), "FooBar/1 has 0 to 0 of 0 to 200"), (range(1), "FooBar/1 has 64 to 200 of 0 to 200"),
        (range(3, 4), "FooBar/1 has 0 to 192 of 0 to 200"),
    ],
)  # fmt: skip
async def test_queue_when_it_is_not_as_the_stop_left_it_then_the_list_tells(
    tmp_path: Path, gone: range, says: str
) -> None:
    """Nothing of it is needed from the log, of which the newest files are read."""
    await write(tmp_path)
    for number in gone:
        queue_file(tmp_path, number).unlink()
    if len(gone) == 4:
        queue_file(tmp_path, 0).parent.rmdir()
    assert read(tmp_path).lost_queues == (says,)
    assert read(tmp_path, 0).unreached == (), "the same once more"
    (tmp_path / "abort").touch()
    assert read(tmp_path).lost_queues == ()


async def test_list_when_it_is_of_another_checkpoint_then_it_says_nothing(tmp_path: Path) -> None:
    await write(tmp_path)
    shutil.rmtree(queue_file(tmp_path, 0).parent)
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(7) + b"\1" + path.read_bytes()[8:])
    assert read(tmp_path).lost_queues == ()


def test_list_when_it_has_queues_that_nobody_makes_anew_then_they_are_left_out() -> None:
    """Light queues, and batch queues, of which nothing is read."""
    wanted = [
        queue_list.ListedQueue(b"%LMQ%a", 0, False, 0, 20),
        queue_list.ListedQueue(b"Batches", 0, True, 0, 46),
    ]
    body = b"".join(map(queue_list.encode_row, wanted))
    assert queue_files.lost_queues(queue_list.QueueList(0, 0, body), []) == ()


@pytest.mark.parametrize(
    ("gone", "files_max", "says"),
    [
        (range(4), 2, "lacks message 103 and has none"),
        (range(4), 0, "lacks message 0 and has none"),
        (range(1), 0, "lacks message 0 and has 64 to 200"),
        (range(1), 1, None),
        (range(3, 4), 2, "lacks message 192 and has 0 to 192"),
    ],
)
async def test_queue_when_it_lacks_messages_of_the_log_then_it_is_told(
    tmp_path: Path, gone: range, files_max: int, says: str | None
) -> None:
    """Of a store that Java's broker, or an older release, has stopped in order."""
    await write(tmp_path)
    forget_list(tmp_path)
    for number in gone:
        queue_file(tmp_path, number).unlink()
    if len(gone) == 4:
        queue_file(tmp_path, 0).parent.rmdir()
    assert read(tmp_path, files_max).unreached == (() if says is None else (f"FooBar/1 {says}",))
    (tmp_path / "abort").touch()
    assert read(tmp_path, files_max).unreached == (), "the dispatcher may be behind"


async def test_queue_when_its_topic_is_not_there_any_more_then_it_is_not_missed(
    tmp_path: Path,
) -> None:
    """The log has its messages until they expire. So with queues of which nothing is read."""
    await write(tmp_path)
    forget_list(tmp_path)
    shutil.rmtree(queue_file(tmp_path, 0).parent)
    (tmp_path / "batchconsumequeue" / TOPIC).mkdir(parents=True)
    assert read(tmp_path, 0).unreached == ()
    (tmp_path / "batchconsumequeue" / TOPIC).rmdir()
    assert len(read(tmp_path, 0).unreached) == 1
    topics = tmp_path / "config" / "topics.json"
    for text in ('{"topicConfigTable":{}}', '{"topicConfigTable":[]}', "{}", "{"):
        topics.write_text(text)
        assert read(tmp_path, 0).unreached == ()
    topics.write_text(json.dumps({"topicConfigTable": {TOPIC: {}}}))
    shutil.rmtree(tmp_path / "consumequeue")
    assert read(tmp_path, 0).unreached == (), "they are made anew, or are in RocksDB"


async def test_queue_when_a_record_has_ended_its_topic_then_older_messages_are_not_missed(
    tmp_path: Path,
) -> None:
    """The topic was made anew meanwhile, and nobody has written to it yet."""
    await write(tmp_path)
    store = real_store(tmp_path)
    await store.open()
    end = message(body=b"{}", topic=METADATA_TOPIC)
    store.append(end._replace(properties=ended_property([TOPIC])))
    store.append(message())
    await store.wait_dispatched(store.max_offset)
    await store.close()
    forget_list(tmp_path)
    assert {one.topic: one.max_offset for one in read(tmp_path).queues[1:]} == {
        TOPIC: 0, METADATA_TOPIC: 1,
    }  # fmt: skip
    assert read(tmp_path, 0).unreached == ()


async def test_message_when_it_has_no_unit_then_it_is_not_missed(tmp_path: Path) -> None:
    """A half message, and one that was taken back."""
    store = real_store(tmp_path)
    await store.open()
    store.append(message(queue_id=0))
    store.append(message(queue_id=1, sys_flag=0xC))
    store.append(message(queue_id=2, sys_flag=0x4))
    await store.wait_dispatched(store.max_offset)
    await store.close()
    forget_list(tmp_path)
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": {TOPIC: {}}}))
    assert read(tmp_path).unreached == ()


async def test_store_when_files_go_while_it_is_read_then_they_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker that runs deletes what has expired; the doctor ended with exit code 2."""
    await write(tmp_path)
    (tmp_path / "abort").touch()
    first_log, first_queue = tmp_path / "commitlog" / f"{0:020d}", queue_file(tmp_path, 0)
    is_there = Path.stat

    def stat(path: Path, **words: bool) -> object:
        if path in {first_log, first_queue}:
            path.unlink(missing_ok=True)
        return is_there(path, **words)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "stat", stat)
        facts = read(tmp_path)
    assert not first_log.exists()
    assert not first_queue.exists()
    assert (facts.missing_before, facts.damage, damages(facts)) == ("", "", [])
    opened = Path.open

    def open_(path: Path, *words: Any, **more: Any) -> object:
        if path.parent.name in {"1", "commitlog"}:
            path.unlink(missing_ok=True)
        return opened(path, *words, **more)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "open", open_)
        facts = read(tmp_path, 0)
    assert (facts.missing_before, damages(facts)) == ("", [])
    assert queue_files.sizes_of(tmp_path / "consumequeue" / "nowhere") == {}


async def test_store_when_several_files_expire_while_it_is_read_then_none_between_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of the log, and of a queue: those were looked at, or mapped, that went before the next was."""
    await write(tmp_path)
    (tmp_path / "abort").touch()
    logs = sorted((tmp_path / "commitlog").iterdir())
    queue = [queue_file(tmp_path, number) for number in range(3)]
    is_there, opened = Path.stat, Path.open

    def stat(path: Path, **words: bool) -> object:
        if path == queue[1]:
            for one in queue[:2]:
                one.unlink(missing_ok=True)
        return is_there(path, **words)

    def open_(path: Path, *words: Any, **more: Any) -> object:
        if path == logs[1]:
            for one in logs[:2]:
                one.unlink(missing_ok=True)
        return opened(path, *words, **more)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "open", open_)
    facts = read(tmp_path, 0)
    assert not logs[1].exists()
    assert not queue[1].exists()
    assert (facts.missing_before, facts.damage, damages(facts)) == ("", "", [])
    assert facts.min_offset == int(logs[2].name)
    assert [one.min_offset for one in facts.queues] == [0, 2 * FILE_UNITS]


async def test_store_when_its_newest_files_go_while_it_is_read_then_the_older_ones_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A slave cuts its log from the end."""
    await write(tmp_path)
    (tmp_path / "abort").touch()
    gone = {sorted((tmp_path / "commitlog").iterdir())[-1], queue_file(tmp_path, 3)}
    is_there, opened = Path.stat, Path.open

    def stat(path: Path, **words: bool) -> object:
        if path == queue_file(tmp_path, 3):
            path.unlink(missing_ok=True)
        return is_there(path, **words)

    def open_(path: Path, *words: Any, **more: Any) -> object:
        if path in gone:
            path.unlink(missing_ok=True)
        return opened(path, *words, **more)

    monkeypatch.setattr(Path, "stat", stat)
    monkeypatch.setattr(Path, "open", open_)
    facts = read(tmp_path, 0)
    assert facts.min_offset == 0
    assert len(facts.log_sizes) == 3
    assert facts.queues[1].max_offset == 3 * FILE_UNITS


@pytest.mark.parametrize("files_max", [0, 2])
@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("size", [7, 640])
async def test_queue_when_a_file_was_cut_off_then_its_length_is_told(
    tmp_path: Path, size: int, number: int, files_max: int
) -> None:
    """A broker does not start then; the doctor said nothing, or something else, or ended itself."""
    await write(tmp_path)
    path = queue_file(tmp_path, number)
    path.write_bytes(path.read_bytes()[:size])
    said = f"{path} has {size} bytes, the others {QUEUE_FILE}"
    assert damages(read(tmp_path, files_max)) == [said]


async def test_queue_when_its_only_file_was_cut_off_then_those_of_others_tell(
    tmp_path: Path,
) -> None:
    await write(tmp_path)
    for number in (1, 2, 3):
        queue_file(tmp_path, number).unlink()
    queue_file(tmp_path, 0).write_bytes(queue_file(tmp_path, 0).read_bytes()[:640])
    assert damages(read(tmp_path)) == [
        f"{queue_file(tmp_path, 0)} has 640 bytes, the others {QUEUE_FILE}"
    ]
    assert queue_files.usual_size([640, 1280]) == 1280
    assert queue_files.usual_size([]) == 0


@pytest.mark.parametrize("files_max", [0, 2])
@pytest.mark.parametrize("number", [0, 5_000_000])
async def test_queue_when_it_has_begun_anew_then_messages_before_are_not_missed(
    tmp_path: Path, number: int, files_max: int
) -> None:
    """Its store has cleared it: what is far ahead is no gap that fillers fill."""
    await write(tmp_path)
    store = real_store(tmp_path)
    await store.open()
    store.queues.next_offsets[TOPIC.encode(), 1] = number
    for _ in range(70):
        store.append(message(queue_id=1))
    await store.wait_dispatched(store.max_offset)
    await store.close()
    forget_list(tmp_path)
    facts = read(tmp_path, files_max)
    assert facts.queues[1].max_offset == number + 70
    assert facts.unreached == ()
    queue_file(tmp_path, number // FILE_UNITS).unlink()
    said = read(tmp_path, files_max).unreached
    if number or not files_max:
        assert said == (f"FooBar/1 lacks message {number} and has {number + 64} to {number + 70}",)


@pytest.mark.parametrize(
    ("number", "is_told"),
    [(0, False), (61, True), (60 + queue_files.GAP_MAX, True), (61 + queue_files.GAP_MAX, False)],
)
def test_queue_when_a_record_that_is_far_ahead_follows_then_it_has_begun_anew(
    number: int, *, is_told: bool
) -> None:
    """Told is then of the queue what its new life lacks."""
    facts = QueueFacts("T", 0, number + 1, 8_000, number)
    seen = queue_files.Unreached([facts], frozenset({"T"}), 9_000)
    seen.passed(Head(100, 0, queue_offset=number or 7, topic=b"T"), memoryview(b""))
    seen.found[b"T", 0] = "lacks"
    seen._next[b"T", 0] = 60
    seen.passed(Head(100, 100, queue_offset=number, topic=b"T"), memoryview(b""))
    assert bool(seen.found) is is_told


async def test_list_when_it_is_far_too_large_then_it_says_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await write(tmp_path)
    shutil.rmtree(queue_file(tmp_path, 0).parent)
    size = (tmp_path / queue_list.FILE).stat().st_size
    monkeypatch.setattr(store_files, "BYTES_MAX", size)
    assert len(read(tmp_path).lost_queues) == 1
    monkeypatch.setattr(store_files, "BYTES_MAX", size - 1)
    assert read(tmp_path).lost_queues == ()


async def test_log_when_a_file_in_its_middle_is_missing_then_the_newest_files_do_not_hide_it(
    tmp_path: Path,
) -> None:
    """The broker ended with exit code 3 over a store of which nothing was said to be wrong."""
    await write(tmp_path)
    paths = sorted((tmp_path / "commitlog").iterdir())
    assert len(paths) > 3
    paths[1].unlink()
    facts = read(tmp_path, 2)
    assert facts.missing_before == f"the file before {paths[2]} is missing"
    assert facts.end_offset == int(paths[1].name)
    assert "durable up to" in facts.damage
    assert facts.files_read == 1, "those before the gap"


async def test_log_when_an_old_file_has_another_length_then_no_file_is_missing(
    tmp_path: Path,
) -> None:
    """That is told as what it is, by another rule."""
    await write(tmp_path)
    first = sorted((tmp_path / "commitlog").iterdir())[0]
    first.write_bytes(first.read_bytes()[:-1])
    facts = read(tmp_path, 2)
    assert (facts.missing_before, facts.damage) == ("", "")


async def test_store_when_files_are_empty_then_they_count_as_missing(tmp_path: Path) -> None:
    """One that was just made, or whose content a power cut took."""
    await write(tmp_path)
    forget_list(tmp_path)
    paths = sorted((tmp_path / "commitlog").iterdir())
    (tmp_path / "commitlog" / f"{2 * int(paths[-1].name):020d}").write_bytes(b"")
    queue_file(tmp_path, 9).write_bytes(b"")
    facts = read(tmp_path, 0)
    assert (facts.missing_before, damages(facts), facts.unreached) == ("", [], ())
    queue_file(tmp_path, 0).write_bytes(b"")
    assert [one.min_offset for one in read(tmp_path).queues] == [0, FILE_UNITS]


async def test_check_when_not_all_of_the_log_is_read_then_its_last_line_says_so(
    tmp_path: Path,
) -> None:
    await write(tmp_path)
    count = len([*(tmp_path / "commitlog").iterdir()])

    def last_line(*more: str) -> str:
        done = CliRunner().invoke(main, ["check", "--store", str(tmp_path), "--looks", "1", *more])
        return done.stdout.splitlines()[-1]

    assert f"store {tmp_path} (2 of the {count} files of its log were read)" in await to_thread(
        last_line
    )
    assert f"store {tmp_path}: " in await to_thread(last_line, "--log-files", "0")


HALF, COMMITTED, ROLLED_BACK, INNER = 0x4, 0x8, 0xC, 0x80
QUEUE = QueueFacts("T", 0, 50, 5_000, 10)


@pytest.mark.parametrize(
    ("head", "is_told"),
    [
        (Head(100, 0, queue_offset=9), True),
        (Head(100, 0, queue_offset=10), False),
        (Head(100, 5_000, queue_offset=50), True),
        # Behind the last unit, and with a number that the queue has: of an earlier life.
        (Head(100, 5_000, queue_offset=49), False),
        # The number is beyond, and the place is not: likewise.
        (Head(100, 4_900, queue_offset=50), False),
        (Head(100, 0, queue_offset=-1), False),
        (Head(100, 0, queue_offset=9, sys_flag=COMMITTED), True),
        (Head(100, 0, queue_offset=9, sys_flag=HALF), False),
        (Head(100, 0, queue_offset=9, sys_flag=ROLLED_BACK), False),
        (Head(100, 0, queue_offset=9, sys_flag=INNER), False),
        (Head(100, 5_901, queue_offset=59), False),
        (Head(100, 0, queue_offset=9, topic=b"%LMQ%T"), False),
        (Head(100, 0, queue_offset=0, queue_id=1), True),
        (Head(100, 0, queue_offset=0, queue_id=-1), False),
    ],
)
def test_record_when_its_queue_should_have_it_and_has_not_then_it_is_told(
    head: Head, is_told: bool
) -> None:
    """What has no unit, and what nobody has confirmed yet, is in no queue."""
    seen = queue_files.Unreached([QUEUE], frozenset({"T"}), 6_000)
    seen.passed(head._replace(topic=head.topic or b"T"), memoryview(b""))
    assert bool(seen.found) is is_told


def test_queue_when_it_was_told_then_its_other_records_are_passed_quickly() -> None:
    """Each would have come by itself, for it follows no unit."""
    seen = queue_files.Unreached([QUEUE], frozenset({"T"}), 6_000)
    assert seen.open_queue_run(b"T", 0) is None, "the first one is looked at"
    seen.passed(Head(100, 0, queue_offset=10, topic=b"T"), memoryview(b""))
    run = seen.open_queue_run(b"T", 0)
    assert run is not None
    assert (run.next_offset, run.indexed_end) == (50, 5_000)
    run.units, run.next_offset = [b"", b""], 52
    seen.passed(Run(0, 0, 2, 0, {(b"\1T", 0): run}), memoryview(b""))
    assert [*seen.found.values()] == ["T/0 lacks message 50 and has 10 to 50"]
    run = seen.open_queue_run(b"T", 0)
    assert run is not None
    assert (run.next_offset, run.indexed_end) == (52, 0), "those that follow it in order"
    # What a topic is that nobody knows does not matter, nor do its records have to come by themselves.
    seen.passed(Head(100, 0, queue_offset=10, topic=b"U"), memoryview(b""))
    other = queue_files.Unreached([QUEUE], frozenset(), 6_000)
    other.passed(Head(100, 0, queue_offset=10, topic=b"T"), memoryview(b""))
    run = other.open_queue_run(b"T", 0)
    assert run is not None
    assert run.indexed_end > 6_000


def test_topic_when_a_record_ends_it_then_its_next_record_is_looked_at_again() -> None:
    seen = queue_files.Unreached([QUEUE], frozenset({"T"}), 6_000)
    seen.passed(Head(100, 0, queue_offset=9, topic=b"T"), memoryview(b""))
    properties = memoryview(ended_property(["T"]))
    end = Head(100, 100, topic=METADATA_KEY, properties_size=len(properties))
    seen.passed(end, properties)
    assert seen.found == {}
    assert seen.open_queue_run(METADATA_KEY, 0) is None, "each one comes by itself"
    assert seen.open_queue_run(b"T", 0) is None


@pytest.mark.parametrize(
    ("confirm", "is_told"), [(-1, True), (0, True), (1 << 40, True), (1, False)]
)
async def test_record_when_no_replica_has_confirmed_it_then_its_queue_need_not_have_it(
    tmp_path: Path, confirm: int, is_told: bool
) -> None:
    """Brokers under controllers dispatch up to there; others leave it at what it was first."""
    await write(tmp_path)
    forget_list(tmp_path)
    queue_file(tmp_path, 3).unlink()
    path = tmp_path / "checkpoint"
    found = checkpoint.read(path.read_bytes())
    found.confirm_offset = confirm
    data = bytearray(checkpoint.SIZE)
    checkpoint.write_into(data, found)
    path.write_bytes(data)
    assert bool(read(tmp_path, 0).unreached) is is_told
