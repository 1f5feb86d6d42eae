"""How far a store is known to be confirmed, where its checkpoint can be believed.

Our brokers write the confirm offset each second and seal it. Java's write the one of their recovery,
and afterwards what their slaves acknowledge, about once a minute: without controllers, and while a
master is alone in its SyncStateSet, nothing more. So Java's is believed while the first record behind
it is new, for then it may only not be written yet.

Source: observed of RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.pipeline.commitlog.pages import mapped
from rmqha.pipeline.commitlog.store_folder import StoreFolder, checkpoint_of, is_running
from rmqha.runtime.aio.clock import SystemClock
from rmqha.store.record import check_record

WRITTEN_WITHIN_MS = 120_000
"""Java writes its checkpoint once a minute."""


def confirmed_offset(store: StoreFolder, now_ms: Callable[[], int] | None = None) -> int | None:
    """The confirm offset; None when the store tells none, or one that is not kept up.

    Args:
        store: may belong to a running broker.
        now_ms: the time by which a running one is judged, None for the machine's; one that was closed is
            judged by its newest durable record.
    """
    found = checkpoint_of(store.root)
    if found is None or found.confirm_offset <= 0:
        return None
    if found.flushed_offset is not None:
        return found.confirm_offset
    if not store.epochs:
        return None
    behind_ms = _stored_ms(store, found.confirm_offset)
    now_ms = now_ms or SystemClock().wall_ms
    known_ms = now_ms() if is_running(store.root) else found.physic_msg_timestamp
    is_kept = behind_ms is None or known_ms - behind_ms <= WRITTEN_WITHIN_MS
    return found.confirm_offset if is_kept else None


def _stored_ms(store: StoreFolder, offset: int) -> int | None:
    """When the first record at or behind an offset was stored; None when there is none."""
    for file in store.files:
        if file.base + file.size <= offset:
            continue
        at = max(0, offset - file.base)
        with mapped(file.path, scattered=True) as buffer:
            head = check_record(buffer, at, len(buffer), file.base + at, check_crc=False)
        if head.size > 0:
            return head.store_timestamp
    return None
