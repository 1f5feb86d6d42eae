"""brokerConsumeStats: how far every group is in every queue of one broker."""

from __future__ import annotations

from contextlib import suppress

import click

from rmqha.admin.java_text import clipped, hash_order, second_of
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, broker_address_option, number_option, switch_option
from rmqha.client.exchange import TIMEOUT_MS, Exchange, Refused, ask
from rmqha.client.offsets import ConsumeStats
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT32_MAX, INT64_MAX, ext_fields
from rmqha.remoting.values import as_array, as_number, as_object

_FORMAT = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s\n"
_COLUMNS = (
    "Topic", "Group", "Broker Name", "QID", "Broker Offset", "Consumer Offset", "Diff", "LastTime",
)  # fmt: skip
_TIMEOUT_MS = 50_000


def run(broker_address: str, timeout_ms: int, level: int, order: bool) -> Exchange[Report]:
    """Ask the broker (317); rows of queues that were never consumed are left out, as Java does.

    An answer may take a minute. That a broker hangs is found out before, with a short question (28).
    """
    with suppress(Refused):  # it lives, and may allow this one and not that
        probe = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
        yield from ask(broker_address, probe, min(timeout_ms, TIMEOUT_MS))
    request = RemotingCommand(
        RequestCode.GET_BROKER_CONSUME_STATS, ext_fields=ext_fields(isOrder=order)
    )
    answer = yield from ask(broker_address, request, timeout_ms)
    members = as_object(fastjson.loads(answer.body))
    total = as_number(members.get("totalDiff"))
    rows, data = [], []
    for groups in map(as_object, as_array(members.get("consumeStatsList"))):
        for group in hash_order(groups):
            for stats in map(ConsumeStats.of, as_array(groups[group])):
                for key, offset in sorted(stats.offset_table.items()):
                    if offset.diff < level or offset.last_timestamp <= 0:
                        continue
                    rows.append((
                        clipped(key.topic, 64), group, clipped(key.broker_name, 32), key.queue_id,
                        offset.broker_offset, offset.consumer_offset, offset.diff,
                        second_of(offset.last_timestamp),
                    ))  # fmt: skip
                    data.append({
                        **key.members(), "group": group, "brokerOffset": offset.broker_offset,
                        "consumerOffset": offset.consumer_offset, "diff": offset.diff,
                        "lastTimestamp": offset.last_timestamp,
                    })  # fmt: skip
    plain = (
        _FORMAT % tuple(f"#{column}" for column in _COLUMNS)
        + "".join(_FORMAT % row for row in rows)
        + f"\nDiff Total: {total}\n"
    )
    table = Table(f"{broker_address}: {total} behind", _COLUMNS, rows)
    return Report(plain, {"totalDiff": total, "queues": data}, (table,))


def _options() -> list[click.Option]:
    return [
        broker_address_option(required=True),
        number_option("-t", "--timeoutMillis", "timeout_ms", low=1, high=INT32_MAX,
                      default=_TIMEOUT_MS, help="How long to wait (default 50000)."),
        number_option("-l", "--level", "level", low=-INT64_MAX, default=0,
                      help="Leave out queues that are less behind (default 0)."),
        switch_option("-o", "--order", "order", default=False, help="Ordered topics only."),
    ]  # fmt: skip


SPEC = CommandSpec("brokerConsumeStats", "Show how far all groups of a broker are.", _options, run)
