"""Stores for the pipeline's tests, written by the project's own store."""

from __future__ import annotations

import random
from pathlib import Path

from rmqha.runtime.ports import Clock
from rmqha.store import properties as props
from rmqha.store.aio.message_store import MessageStore
from rmqha.store.identity import FILE_NAME, Identity, encode_identity
from rmqha.store.record import Message, Record, pack_host
from tests.store.harness import BORN_MS, message, real_store

TOPICS = ("orders", "Zahlungen-é", "t")
V6 = pack_host("2001:db8::7", 10911)


def messages(count: int, seed: int = 1) -> list[Message]:
    """Bodies of 0 to 2000 bytes, several topics and queues, hosts of both kinds."""
    chance = random.Random(seed)
    made = []
    for number in range(count):
        pairs = {"TAGS": f"tag{number % 3}", "KEYS": f"key{number}", "city": "Köln"}
        changes = {
            "topic": chance.choice(TOPICS),
            "queue_id": number % 4,
            "properties": props.encode(pairs if number % 5 else {}),
            "flag": number,
            "reconsume_times": number % 2,
        }
        if number % 7 == 0:
            changes["born_host"] = V6
        if number % 11 == 0:
            changes["store_host"] = V6
        made.append(message(number, body=chance.randbytes(chance.randrange(2000)), **changes))
    return made


async def written(
    root: Path, made: list[Message], clock: Clock | None = None, **settings: object
) -> list[Record]:
    """Put messages into a store at ``root`` and close it; the records, in the log's order."""
    store: MessageStore = real_store(root, clock, **settings)
    await store.open()
    for one in made:
        store.append(one)
    await store.close()
    return _records(root)


def identify(root: Path, broker: str, broker_id: int = 1, cluster: str = "main") -> Path:
    """Say whose store it is, as a broker under controllers does."""
    identity = encode_identity(Identity(cluster, broker, broker_id))
    (root / FILE_NAME).write_bytes(identity)
    return root


def _records(root: Path) -> list[Record]:
    from rmqha.store.record import check_record, decode

    found = []
    for path in sorted((root / "commitlog").iterdir()):
        data, position = memoryview(path.read_bytes()), 0
        while position < len(data):
            offset = int(path.name) + position
            head = check_record(data, position, len(data), offset, check_crc=True)
            if head.size <= 0:
                break
            found.append(decode(data, head))
            position += head.size
    return found


__all__ = ["BORN_MS", "TOPICS", "identify", "messages", "written"]
