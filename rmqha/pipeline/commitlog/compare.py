"""Where the replicas of one broker set differ, first by ranges of bytes and then by messages.

The plan is made on the driver of names and sizes: ranges that never cross a file, an epoch or the
end of a log, the same for every replica. Workers hash them, and of ranges that differ they hash
the records; only hashes and names travel.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import accumulate, pairwise

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid, StoreCorrupted
from rmqha.pipeline.commitlog.batches import Bounds, Wanted, read_part
from rmqha.pipeline.commitlog.checksum import checksum
from rmqha.pipeline.commitlog.claims import Sought, claims
from rmqha.pipeline.commitlog.confirmed import confirmed_offset
from rmqha.pipeline.commitlog.splits import Part
from rmqha.pipeline.commitlog.store_folder import LogFile, StoreFolder, log_pages
from rmqha.store.crc import crc32

Span = tuple[int, int]
RANGE_BYTES = 16 << 20
_LOOK_BACK = (64 << 10, 8 << 20)
"""How far before a range the message that crosses its beginning is looked for, at first."""
LACKING = "lacking"
"""For a hash, of bytes that a replica lacks."""
GONE = "gone"
"""For a hash, of bytes that expired while the audit ran: nobody compares them."""
_NAMES = ("physicalOffset", "size", "topic", "queueId", "queueOffset", "_corrupt")


class Range(Struct, frozen=True):
    """Bytes ``[start, stop)`` of the log as one replica has them.

    Attributes:
        replica: the index of the store among those given.
        epoch: in whose span the bytes lie there; None outside of any.
        path, base: the file; empty where the replica lacks bytes between its first and its last.
    """

    replica: int
    epoch: int | None
    start: int
    stop: int
    path: str
    base: int


class Plan(Struct, frozen=True):
    """What is compared.

    Attributes:
        low, high: the offsets that at least two replicas have, up to the confirm offset.
        confirm_offset: None when no replica says one; everything then counts.
        ranges: of all replicas.
        end: up to where at least two have bytes; what lies behind ``high`` is left out.
    """

    low: int
    high: int
    confirm_offset: int | None
    ranges: tuple[Range, ...]
    end: int


def plan_ranges(
    replicas: Sequence[StoreFolder], *, up_to: int | None = None, range_bytes: int = RANGE_BYTES
) -> Plan:
    """Cut what the replicas have in common into ranges.

    Args:
        replicas: at least two, of one broker set.
        up_to: compare up to this offset instead of the highest confirm offset of a checkpoint.
        range_bytes: size of a range, at most.

    Raises:
        ConfigInvalid: fewer than two replicas.
    """
    if len(replicas) < 2:
        raise ConfigInvalid("an audit compares at least two stores")
    if up_to is None:
        known = [found for one in replicas if (found := confirmed_offset(one)) is not None]
        up_to = max(known, default=None)
    ends = [log_end(one) for one in replicas]
    spans = [(one.files[0].base, end) for one, end in zip(replicas, ends, strict=True) if one.files]
    low = sorted(start for start, _ in spans)[1] if len(spans) > 1 else 0
    high = common = sorted(stop for _, stop in spans)[-2] if len(spans) > 1 else 0
    if up_to is not None:
        high = min(high, up_to)
    edges = _edges(replicas, ends, low, high, range_bytes)
    ranges = [
        _range_of(replica, index, start, stop) or Range(index, None, start, stop, "", start)
        for index, replica in enumerate(replicas)
        for start, stop in pairwise(edges)
        if replica.files and replica.files[0].base <= start and stop <= ends[index]
    ]
    return Plan(low, high, up_to, tuple(ranges), common)


def plan_alone(
    replica: StoreFolder, *, up_to: int | None = None, range_bytes: int = RANGE_BYTES
) -> Plan:
    """As ``plan_ranges``, of one replica: the others are not at hand.

    Its edges are those of its files and epochs, so replicas that are alike have the same.
    """
    if up_to is None:
        up_to = confirmed_offset(replica)
    end = log_end(replica)
    low = replica.files[0].base if replica.files else 0
    high = end if up_to is None else max(low, min(end, up_to))
    edges = _edges([replica], [high], low, high, range_bytes)
    ranges = [
        one
        for start, stop in pairwise(edges)
        if (one := _range_of(replica, 0, start, stop)) is not None
    ]
    return Plan(low, high, up_to, tuple(ranges), end)


def log_end(replica: StoreFolder) -> int:
    """Where a log ends: behind its last record, which is looked for in its last file.

    It is looked for from where the consume queues end; when nothing is there, from the beginning.
    """
    if not replica.files:
        return 0
    last = replica.files[-1]
    named = claims(replica.root, Sought(), last.base, last.base + last.size)
    start = 0 if named is None or not len(named.at) else max(0, int(named.at[-1]) - last.base)
    return _end_from(replica, last, start) or _end_from(replica, last, 0) or last.base


def _end_from(replica: StoreFolder, last: LogFile, start: int) -> int | None:
    part = Part(replica, last, start, last.size, is_last_file=True)
    end = None
    for batch in read_part(part, Wanted(("physicalOffset", "size"))):
        end = batch.column(0)[-1].as_py() + batch.column(1)[-1].as_py()
    return end


def _edges(
    replicas: Sequence[StoreFolder], ends: Sequence[int], low: int, high: int, range_bytes: int
) -> list[int]:
    found = {low, high, *ends, *range(low - low % range_bytes, high, range_bytes)}
    for replica in replicas:
        for file in replica.files:
            found.update((file.base, file.base + file.size))
        found.update(start for start, _ in replica.epochs)
    return sorted(one for one in found if low <= one <= high)


def _range_of(replica: StoreFolder, index: int, start: int, stop: int) -> Range | None:
    """None when the replica does not have all these bytes."""
    number = bisect_right([file.base for file in replica.files], start) - 1
    if number < 0:
        return None
    file = replica.files[number]
    if stop > file.base + file.size:
        return None
    return Range(index, _epoch_of(replica, start), start, stop, file.path, file.base)


def _epoch_of(replica: StoreFolder, offset: int) -> int | None:
    at = bisect_right([first for first, _ in replica.epochs], offset) - 1
    return replica.epochs[at][1] if at >= 0 else None


def alone(spans: Sequence[Collection[Span]]) -> list[int]:
    """Which of some replicas have no range that another has, too: nothing of them is compared."""
    shared = Counter(span for mine in spans for span in set(mine))
    return [index for index, mine in enumerate(spans) if all(shared[span] == 1 for span in mine)]


def nameless(spans: Iterable[Span], found: Iterable[Difference]) -> list[Span]:
    """Ranges in which no message is named: they differ between messages, or behind the last one."""
    places = sorted((one.physical_offset, one.physical_offset + one.size) for one in found)
    begins = [begin for begin, _ in places]
    # How far those reach that begin first: replicas may have others at one place.
    reach = [0, *accumulate((end for _, end in places), max)]
    return [(start, stop) for start, stop in spans if reach[bisect_left(begins, stop)] <= start]


def hash_of(one: Range, seed: bytes) -> str:
    """A checksum of the bytes; says that two ranges differ, not why.

    Args:
        one: the range.
        seed: of the audit; drawn anew for each (``sums``).

    Raises:
        OSError: the file cannot be read.
        StoreCorrupted: the file has become shorter meanwhile.
    """
    if not one.path:
        return LACKING
    pages = log_pages(one.path, one.base)
    if pages is None:
        return GONE
    if len(pages) < one.stop - one.base:
        raise StoreCorrupted(f"{one.path} is shorter than when the audit began")
    return checksum(pages, one.start - one.base, one.stop - one.base, seed)


class Seen(Struct, frozen=True):
    """One record, or one damaged place, as a replica has it.

    Attributes:
        replica: the index of the store.
        checksum: of all its bytes.
        corrupt: why no record could be made of it.
    """

    replica: int
    epoch: int | None
    physical_offset: int
    size: int
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    checksum: int
    corrupt: str | None


def records_of(replica: StoreFolder, one: Range) -> Iterator[Seen]:
    """What has bytes in a range of a replica: what crosses its beginning, and what begins in it.

    Raises:
        OSError: the file cannot be read.
    """
    if not one.path:
        return
    file = next(file for file in replica.files if file.base == one.base)
    begin = _beginning(replica, file, one.start - file.base)
    part = Part(replica, file, begin, one.stop - file.base, file is replica.files[-1])
    bounds = Bounds(file.base + begin, one.stop - 1)
    pages = log_pages(file.path, file.base) or memoryview(b"")
    for batch in read_part(part, Wanted(_NAMES, physical_offset=bounds)):
        for row in batch.to_pylist():
            at = row["physicalOffset"] - file.base
            epoch = _epoch_of(replica, row["physicalOffset"])
            yield Seen(
                one.replica, epoch, row["physicalOffset"], row["size"], row["topic"],
                row["queueId"], row["queueOffset"], crc32(pages[at : at + row["size"]]),
                row["_corrupt"],
            )  # fmt: skip


def _beginning(replica: StoreFolder, file: LogFile, position: int) -> int:
    """Where in the file that begins which has the byte at ``position``; else ``position``."""
    for window in (*_LOOK_BACK, position):
        start = max(0, position - window)
        part = Part(replica, file, start, position + 1, file is replica.files[-1])
        last: tuple[int, int] | None = None
        for batch in read_part(part, Wanted(("physicalOffset", "size"))):
            last = batch.column(0)[-1].as_py() - file.base, batch.column(1)[-1].as_py()
        if last is not None:
            return last[0] if last[0] + last[1] > position else position
        if not start:
            break
    return position


class Difference(Struct, frozen=True):
    """One place at which replicas differ.

    Attributes:
        physical_offset, size: of the record, by the first replica that has one there.
        topic, queue_id, queue_offset: of that record; None when no replica has one there.
        epochs: by replica, of those that know one.
        what: for people: which replica has what.
    """

    physical_offset: int
    size: int
    topic: str | None
    queue_id: int | None
    queue_offset: int | None
    epochs: tuple[int, ...]
    what: str


def differences(
    seen: Iterable[Seen], names: Sequence[str], present: Sequence[int]
) -> list[Difference]:
    """Compare what replicas have, place by place.

    Args:
        seen: everything that begins in the ranges compared, of all replicas that have them.
        names: of the replicas.
        present: the replicas whose ranges these are, also when they have nothing in them.
    """
    places: dict[int, dict[int, Seen]] = {}
    for one in seen:
        places.setdefault(one.physical_offset, {})[one.replica] = one
    found = []
    for offset, by_replica in sorted(places.items()):
        kinds = {(one.size, one.checksum, one.corrupt) for one in by_replica.values()}
        epochs = [one.epoch for one in by_replica.values() if one.epoch is not None]
        if len(kinds) == 1 and len(set(epochs)) <= 1 and len(by_replica) == len(present):
            continue
        whole = next((one for one in by_replica.values() if one.corrupt is None), None)
        shown = whole or next(iter(by_replica.values()))
        what = "; ".join(f"{names[index]}: {_told(by_replica.get(index))}" for index in present)
        place = (offset, shown.size, shown.topic, shown.queue_id, shown.queue_offset)
        found.append(Difference(*place, tuple(epochs), what))
    return found


def _told(one: Seen | None) -> str:
    if one is None:
        return "nothing begins here"
    if one.corrupt is not None:
        return f"damaged ({one.corrupt})"
    return f"{one.size} bytes, checksum {one.checksum:08x}, epoch {one.epoch}"
