"""What a message that was read says of its earlier life, and what a written one may say. Pure.

A row is often a message that was read from a topic. Brokers act on some properties wherever they see
them: by TRAN_MSG the copy of a committed message would be a half message that nobody ever ends.

Source: MessageConst of RocketMQ 5.5, and what the broker's room ``deferred`` acts on.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.remoting.headers import INT32_MAX, parse_number
from rmqha.store import properties as props

DEDUP_ID = "DEDUP_ID"
"""The property that is the same whenever the same row is written again."""
TIMES = frozenset(
    {"TIMER_DELAY_SEC", "TIMER_DELAY_MS", "TIMER_DELIVER_MS", "__STARTDELIVERTIME"}
)  # fmt: skip
"""Wishes for a later delivery, besides DELAY."""
_WAITED = frozenset({"REAL_TOPIC", "TIMER_OUT_MS"})
"""By these a broker remembers where a message goes that waits: a wish beside them was fulfilled."""
LEFT_OUT = _WAITED | frozenset({
    "TRAN_MSG", "PGROUP", "__transactionId__", "TRANSACTION_CHECK_TIMES",
    "TRAN_PREPARED_QUEUE_OFFSET", "CHECK_IMMUNITY_TIME_IN_SECONDS",
    "REAL_QID", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_ROLL_LABEL",
    "TIMER_DELAY_LEVEL",
    "RETRY_TOPIC", "ORIGIN_MESSAGE_ID", "RECONSUME_TIME", "MAX_RECONSUME_TIMES", "WAIT",
    "POP_CK", "POP_CK_OFFSET", "1ST_POP_TIME", "MIN_OFFSET", "MAX_OFFSET", "CONSUME_START_TIME",
    "INNER_MULTI_QUEUE_OFFSET", "MSG_REGION", "TRACE_ON", "CLUSTER", "__CRC32#",
    props.UNIQ_KEY, DEDUP_ID,
})  # fmt: skip
"""Marks of brokers, clients and this sink that a written message does not keep or gets anew."""
_OVER = LEFT_OUT | {props.DELAY}
_OVER_WAITED = _OVER | TIMES


def kept(properties: Mapping[str, str | None]) -> dict[str, str]:
    """The properties that are the message's own; those without a value are none.

    A wish for a later delivery that was fulfilled is none any more. DELAY is never among them: see
    ``level``.
    """
    over = _OVER_WAITED if _has_waited(properties) else _OVER
    return {name: text for name, text in properties.items() if name and text and name not in over}


def level(properties: Mapping[str, str | None]) -> int:
    """The delay level that is still to come; 0 for none, as of dead letters and of what is no number."""
    if _has_waited(properties):
        return 0
    text = properties.get(props.DELAY) or ""
    return max(0, parse_number(text, INT32_MAX) or 0)


def _has_waited(properties: Mapping[str, str | None]) -> bool:
    return any(properties.get(name) for name in _WAITED)
