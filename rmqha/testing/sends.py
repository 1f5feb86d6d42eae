"""What the cluster's client sends: one message, or several in one request, as a Java client has them."""

from __future__ import annotations

from collections.abc import Sequence

from rmqha.remoting.codes import RequestCode
from rmqha.store.batches import join_client_batch

GROUP = "rmqha_test"
QUEUES = 4


def send_parts(
    topic: str,
    number: int,
    bodies: Sequence[bytes],
    wall_ms: int,
    place: tuple[str, int],
    group: str = GROUP,
) -> tuple[RequestCode, dict[str, str], bytes]:
    """Code, fields and body as a Java client sends a message or a batch to a broker's queue."""
    fields = send_fields(topic, number, wall_ms, place, group)
    if len(bodies) == 1:
        return RequestCode.SEND_MESSAGE_V2, fields, bodies[0]
    parts = (
        (body, _properties(one, wall_ms).encode()) for one, body in enumerate(bodies, start=number)
    )
    return RequestCode.SEND_BATCH_MESSAGE, fields | {"m": "true"}, join_client_batch(parts)


def send_fields(
    topic: str, number: int, wall_ms: int, place: tuple[str, int], group: str = GROUP
) -> dict[str, str]:
    """The fields of 310 as a Java client sends them, to a broker's name and a queue."""
    return {
        "a": group, "b": topic, "c": "TBW102", "d": str(QUEUES), "e": str(place[1]),
        "f": "0", "g": str(wall_ms), "h": "0", "i": _properties(number, wall_ms),
        "j": "0", "k": "false", "m": "false", "n": place[0],
    }  # fmt: skip


def _properties(number: int, wall_ms: int) -> str:
    return f"KEYS\x01{number}\x02UNIQ_KEY\x01rmqha{wall_ms:X}{number:X}\x02WAIT\x01true\x02"
