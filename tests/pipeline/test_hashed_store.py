"""Audits of machines that share nothing: files of hashes say the same as stores side by side."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.pipeline import main
from rmqha.pipeline.commitlog import hashed_store
from rmqha.pipeline.commitlog.compare import Seen
from rmqha.pipeline.commitlog.hashed_store import (
    HashedRange,
    HashedStore,
    compare,
    decode,
    encode,
    hash_store,
)
from rmqha.pipeline.commitlog.store_folder import StoreFolder, open_replica
from rmqha.store.record import Record
from tests.pipeline.stores import identify, messages, written
from tests.pipeline.test_reading import body_start, flip

SEED = "correct horse battery staple"
RANGE_BYTES = 6000

Stores = tuple[Path, Path, list[Record]]


@pytest.fixture
async def stores(tmp_path: Path) -> Stores:
    """Two equal stores of one set, in two epochs."""
    records = await written(tmp_path / "a", messages(120))
    identify(tmp_path / "a", "broker-a", 1)
    epochs = f"2\n0\n1-0\n2-{records[70].physical_offset}\n"
    (tmp_path / "a" / "epochFileCheckpoint").write_text(epochs)
    shutil.copytree(tmp_path / "a", tmp_path / "b")
    identify(tmp_path / "b", "broker-a", 2)
    return tmp_path / "a", tmp_path / "b", records


def audit(*arguments: str | Path) -> Result:
    """The command; it may not start Spark."""
    return CliRunner().invoke(main, ["replica-audit", *map(str, arguments)])


def hashed(store: Path, *more: str) -> Path:
    """A store's file, made by the command."""
    target = store.with_suffix(".json")
    done = audit(store, "--hash-only", target, "--seed", SEED, *more)
    assert done.exit_code == 0, done.output
    return target


def test_stores_when_equal_then_said(stores: Stores, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Spark, which a broker's machine does not have."""
    monkeypatch.setattr("rmqha.cli.pipeline_audit.session", None)
    done = audit("--compare", *map(hashed, stores[:2]))
    count = len(open_replica(str(stores[0])).files) + 1
    assert (done.exit_code, done.output) == (0, f"{count} ranges compared, 0 differ\n")


@pytest.mark.costly
def test_byte_when_flipped_then_its_range_is_told_and_then_the_message(stores: Stores) -> None:
    """Two steps, for only hashes travel; what the first says to do is the second."""
    a, b, records = stores
    hurt = next(one for one in records[100:] if len(one.body) > 100)
    flip(b, body_start(hurt) + 50)
    done = audit("--compare", hashed(a), hashed(b))
    assert done.exit_code == 1
    told, last = done.output.splitlines()
    assert last.endswith(" ranges compared, 1 differ")
    start, stop = map(int, told.rpartition(" ")[2].split("-"))
    assert start <= hurt.physical_offset < stop
    span = ("--records", f"{start}-{stop}")
    done = audit("--compare", hashed(a, *span), hashed(b, *span))
    assert done.exit_code == 1
    assert done.output.startswith(
        f"{hurt.physical_offset}: {hurt.topic} queue {hurt.queue_id}"
        f" offset {hurt.queue_offset} epoch 2, 2: a: "
    )
    assert len(done.output.splitlines()) == 2


def test_store_when_it_has_more_then_only_what_both_have_is_compared(stores: Stores) -> None:
    """A slave is behind; that is no difference, and what was not compared is told."""
    a, b, records = stores
    seen = records[90].physical_offset
    done = audit("--compare", hashed(a), hashed(b, "--up-to", str(seen)))
    assert done.exit_code == 0, done.output
    assert "were not compared" in done.output
    done = audit("--compare", *(hashed(one, "--up-to", str(seen)) for one in (a, b)))
    assert (done.exit_code, "not compared" in done.output) == (0, False)


def test_store_when_files_expire_while_it_is_hashed_then_they_are_no_difference(
    stores: Stores, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Retention goes on; they count like those that had expired before."""
    whole = hash_store(open_replica(str(stores[0])), SEED, range_bytes=RANGE_BYTES)
    first = min((stores[1] / "commitlog").iterdir())
    size = first.stat().st_size
    plan_alone = hashed_store.plan_alone

    def expiring(replica: StoreFolder, **how: Any) -> Any:
        found = plan_alone(replica, **how)
        first.unlink()
        return found

    monkeypatch.setattr(hashed_store, "plan_alone", expiring)
    other = hash_store(open_replica(str(stores[1])), SEED, range_bytes=RANGE_BYTES)
    found = compare([whole, other])
    assert (found.different, found.left_out) == ((), ())
    assert found.ranges == sum(one.start >= size for one in whole.ranges) < len(whole.ranges)


def test_epochs_when_unlike_then_a_difference(stores: Stores) -> None:
    """The same bytes, and an epoch that begins elsewhere."""
    a, b, records = stores
    (b / "epochFileCheckpoint").write_text(f"2\n0\n1-0\n2-{records[60].physical_offset}\n")
    done = audit("--compare", hashed(a), hashed(b))
    assert done.exit_code == 1
    assert "differ: hash all" in done.output


@pytest.mark.costly
@pytest.mark.parametrize("changed", [0, 1, 2])
def test_ranges_when_compared_in_threes_then_the_odd_one_is_found(
    stores: Stores, tmp_path: Path, changed: int
) -> None:
    """Whichever of three it is; by many small ranges, and from a file and back."""
    a, _, records = stores
    shutil.copytree(a, tmp_path / "c")
    names = ("a", "b", "c")
    hurt = next(one for one in records[20:] if len(one.body) > 100)
    flip(tmp_path / names[changed], body_start(hurt) + 9)
    span = (hurt.physical_offset, hurt.physical_offset + 1)
    found = [
        hash_store(open_replica(str(tmp_path / name)), SEED, range_bytes=RANGE_BYTES, by_record=[span])
        for name in names
    ]  # fmt: skip
    assert [decode(encode(one), "x") for one in found] == found
    done = compare(found)
    assert done.ranges > 20
    assert [one.physical_offset for one in done.differences] == [hurt.physical_offset]
    assert all(start < span[1] + hurt.size and stop > span[0] for start, stop in done.different)


@pytest.mark.costly
def test_stores_when_nothing_is_compared_then_that_is_no_success(stores: Stores) -> None:
    """Both were hashed up to where nothing is."""
    done = audit("--compare", *(hashed(one, "--up-to", "0") for one in stores[:2]))
    assert done.exit_code == 2, done.output
    assert "0 ranges compared" in done.stdout
    assert "pipeline: nothing was compared" in done.stderr


def test_files_when_they_cannot_be_compared_then_said(stores: Stores, tmp_path: Path) -> None:
    """In a line: another seed would make everything differ."""
    a, b, _ = stores
    mine = hash_store(open_replica(str(a)), SEED)
    with pytest.raises(ConfigInvalid, match="different seeds"):
        compare([mine, hash_store(open_replica(str(b)), SEED + "!")])
    identify(b, "broker-b", 2)
    with pytest.raises(ConfigInvalid, match="a is of broker set main/broker-a, b of main/broker-b"):
        compare([mine, hash_store(open_replica(str(b)), SEED)])
    (tmp_path / "other").write_text("{}")
    for arguments, line in (
        (("--compare", tmp_path / "other", tmp_path / "other"), "was not written by --hash-only"),
        (("--compare", tmp_path / "none", tmp_path / "none"), "No such file"),
        (("--compare", hashed(a)), "--compare takes at least two files"),
        ((a, "--hash-only", tmp_path / "x"), "--hash-only needs --seed"),
        ((a, "--hash-only", tmp_path / "x", "--seed", "short"), "--seed needs at least 16"),
        ((a, b, "--hash-only", tmp_path / "x", "--seed", SEED), "--hash-only takes one store"),
        ((a, b, "--seed", SEED), "--seed needs --hash-only"),
        ((a, "--hash-only", tmp_path / "x", "--seed", SEED, "--records", "7"), "--records 7: must"),
        (
            (a, "--hash-only", tmp_path / "x", "--seed", SEED, "--records", "0-" + "9" * 5000),
            "must be two offsets",
        ),
        ((a, "--hash-only", tmp_path / "x", "--seed", SEED, "--compare"), "--compare are apart"),
        (("--compare", a, b, "--up-to", "7"), "--compare takes no --up-to"),
        (("--compare", hashed(a), tmp_path / "." / "a.json"), "is given twice"),
        ((a, "--hash-only", tmp_path / "no" / "x", "--seed", SEED), "there is no folder"),
        ((a, f"x={tmp_path}/./a"), f"{tmp_path}/./a is given twice, as {a} before"),
        ((a, b, "--report", tmp_path / "no" / "page.html"), "there is no folder"),
        ((a, b, "--report", tmp_path), "is a folder"),
    ):
        done = audit(*arguments)
        assert done.exit_code == 2, done.output
        assert line in done.output
        assert len(done.output.splitlines()) == 1


def test_byte_when_behind_the_last_message_of_a_file_then_its_range_is_told(
    stores: Stores,
) -> None:
    """One of three differed there, and with the records of all of them nothing was named."""
    a, b, records = stores
    c = a.with_name("c")
    shutil.copytree(a, c)
    first = open_replica(str(a)).files[0]
    last = max(
        one.physical_offset + one.size for one in records if one.physical_offset < first.size
    )
    assert last + 8 < first.size, "the blank has a tail that nobody reads"
    flip(c, first.size - 1)
    span = f"0-{first.size}"
    told = f"bytes 0 to {first.size} differ"
    some = [hashed(one, "--records", span) for one in (a, b)]
    done = audit("--compare", *some, hashed(c))
    assert (done.exit_code, done.output.splitlines()[0]) == (
        1,
        f"{told}: hash all with --records {span}",
    )
    done = audit("--compare", *some, hashed(c, "--records", span))
    assert (done.exit_code, done.output.splitlines()[0]) == (
        1,
        f"{told}, and no message in them was found that does",
    )


def test_store_when_it_has_nothing_that_others_have_then_named_and_no_success(
    stores: Stores,
) -> None:
    """Its mount was missing."""
    a, b, _ = stores
    c = a.with_name("c")
    (c / "commitlog").mkdir(parents=True)
    done = audit("--compare", *map(hashed, (a, b, c)))
    assert done.exit_code == 2
    assert "pipeline: nothing of c was compared" in done.stderr


def test_files_when_their_stores_have_one_name_then_told_apart(stores: Stores) -> None:
    """Each machine's is called store: who has what could not be told."""
    a, b, records = stores
    hurt = next(one for one in records if len(one.body) > 100)
    flip(b, body_start(hurt) + 50)
    span = (hurt.physical_offset, hurt.physical_offset + 1)
    for one in (a, b):
        found = hash_store(open_replica(str(one), "store"), SEED, by_record=[span])
        one.with_suffix(".json").write_bytes(encode(found))
    done = audit("--compare", a.with_suffix(".json"), b.with_suffix(".json"))
    assert f": store ({a}.json): " in done.output
    assert f"; store ({b}.json): " in done.output


def test_epochs_when_they_begin_alike_and_have_other_numbers_then_a_difference(
    stores: Stores,
) -> None:
    """The same bytes of another reign."""
    a, b, records = stores
    (b / "epochFileCheckpoint").write_text(f"2\n0\n1-0\n3-{records[70].physical_offset}\n")
    found = compare([hash_store(open_replica(str(one)), SEED) for one in (a, b)])
    assert found.different[0][0] == records[70].physical_offset


def test_message_when_it_crosses_into_the_range_that_differs_then_named() -> None:
    """It begins in one that is equal."""

    def told(name: str, hash_: str, checksum: int) -> HashedStore:
        seen = Seen(0, None, 90, 20, "t", 0, 7, checksum, None)
        ranges = [HashedRange(0, 100, None, "same"), HashedRange(100, 200, None, hash_)]
        return HashedStore(1, name, "", "mark", 100, None, ranges, [seen])

    found = compare([told("a", "x", 1), told("b", "y", 2)])
    assert [one.physical_offset for one in found.differences] == [90]
    assert (found.different, found.unnamed, found.nameless) == (((100, 200),), (), ())
