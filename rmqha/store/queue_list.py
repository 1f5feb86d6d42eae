"""The file ``rmqhaQueues``: which consume queues a stop in order left, and how far each of them went.

A queue whose folder is gone looks like one that never was, and one whose first file is gone like one
whose messages have expired. So a stop in order writes down what it leaves, and the next start makes
anew from the log what is missing of it. The list counts only beside the very checkpoint with which
it was written: a broker of Java's or an older release that takes messages meanwhile changes that.

The first line is the version, a CRC of what the checkpoint says, where the log began and a CRC of what follows;
then each queue has a line: ``p`` or ``b`` (plain or batch), its id, the positions of its first file
and of its end, and its topic, which may hold blanks.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from typing import NamedTuple

from rmqha.store.checkpoint import Checkpoint

FILE = "rmqhaQueues"
BYTES_MAX = 64 << 20
"""Half a million queues with long names; a larger file is none of these."""
_VERSION = b"1"
_HEAD_WORDS = 4
_ROW_WORDS = 5
_PLAIN, _BATCH = b"p", b"b"


class ListedQueue(NamedTuple):
    """A queue as a stop left it.

    Attributes:
        first: position of its first file, bytes since the queue's origin.
        end: position behind its last unit.
    """

    topic: bytes
    queue_id: int
    is_batch: bool
    first: int
    end: int


class QueueList(NamedTuple):
    """A list that is whole.

    Attributes:
        seal: of the checkpoint with which it was written.
        log_begin: first offset of the commit log; -1 for an empty one.
        body: the rows, for :func:`rows`.
    """

    seal: int
    log_begin: int
    body: bytes

    def counts(self, checkpoint: Checkpoint, log_begin: int) -> bool:
        """Whether nobody has changed the store since.

        Of a log that begins later now somebody has deleted files, and then those of queues go, too.
        """
        return self.seal == seal_of(checkpoint) and log_begin <= self.log_begin


def seal_of(checkpoint: Checkpoint) -> int:
    """By which a list is known as that of a checkpoint.

    Up to where units are durable is left out: a start notes there that some are missing, and the list
    has to count for the next one if it dies before it has marked the store as in use.
    """
    said = (checkpoint.longs(), checkpoint.flushed_offset, checkpoint.begin_offset)
    return zlib.crc32(repr(said).encode())


def encode_row(one: ListedQueue) -> bytes:
    """The line of a queue."""
    kind = _BATCH if one.is_batch else _PLAIN
    return b"%b %d %d %d %b\n" % (kind, one.queue_id, one.first, one.end, one.topic)


def encode(seal: int, log_begin: int, body: bytes) -> bytes:
    """The file, of the checkpoint with this seal and a log that began there."""
    return b"%b %d %d %d\n" % (_VERSION, seal, log_begin, zlib.crc32(body)) + body


def decode(data: bytes) -> QueueList | None:
    """The file's content; None for a damaged one, and for another version's."""
    head, _, body = data.partition(b"\n")
    words = head.split(b" ")
    if len(words) != _HEAD_WORDS or words[0] != _VERSION:
        return None
    try:
        seal, log_begin, crc = map(int, words[1:])
    except ValueError:
        return None
    return QueueList(seal, log_begin, body) if crc == zlib.crc32(body) else None


def rows(found: QueueList) -> Iterator[ListedQueue]:
    """The queues of a list, which its CRC has proven whole."""
    for line in found.body.splitlines():
        kind, queue_id, first, end, topic = line.split(b" ", _ROW_WORDS - 1)
        yield ListedQueue(topic, int(queue_id), kind == _BATCH, int(first), int(end))
