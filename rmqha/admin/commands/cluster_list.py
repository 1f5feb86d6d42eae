"""clusterList: every broker with its load, or with its traffic of yesterday and today."""

from __future__ import annotations

from collections.abc import Mapping

import click

from rmqha.admin.bodies import decode_table
from rmqha.admin.java_text import null, yes_no
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    cluster_option,
    name_servers_option,
    need_name_servers,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import cluster_info, groups_in_cluster
from rmqha.client.exchange import Exchange, Refused, Unreachable, ask
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import INT64_MAX, parse_number

_HEAD = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %-11s  %-12s  %-8s  %-10s\n"
_ROW = "%-22s  %-22s  %-4s  %-22s %-16s  %16s  %30s  %-22s  %11s  %-12s  %-8s  %10s\n"
_COLUMNS = (
    "Cluster Name", "Broker Name", "BID", "Addr", "Version", "InTPS(LOAD)", "OutTPS(LOAD)",
    "Timer(Progress)", "PCWait(ms)", "Hour", "SPACE", "ACTIVATED",
)  # fmt: skip
_MORE_HEAD = "%-16s  %-32s %14s %14s %14s %14s\n"
_MORE_ROW = "%-16s  %-32s %14d %14d %14d %14d\n"
_MORE_COLUMNS = (
    "Cluster Name", "Broker Name", "InTotalYest", "OutTotalYest", "InTotalToday", "OutTotalToday",
)  # fmt: skip
_MS_AN_HOUR = 3_600_000
_CONGESTED = 10_000  # the column counts timers by the ten thousand

Figures = Mapping[str, str]
Row = tuple[object, ...]


def run(
    name_servers: tuple[str, ...] | None, more_stats: bool, cluster_name: str | None, here: Here
) -> Exchange[Report]:
    """Ask the name server for the clusters (106), and every broker for its figures (28).

    Raises:
        click.UsageError: no name server.
        NotFound: no such cluster.
    """
    cluster = yield from cluster_info(need_name_servers(name_servers))
    names = [cluster_name] if cluster_name else sorted(cluster.cluster_addr_table)
    rows: list[Row] = []
    data: list[dict[str, object]] = []
    failures: list[RmqhaError] = []
    for name in names:
        for group in groups_in_cluster(cluster, name):
            for broker_id, address in group.broker_addrs.items():
                figures: Figures = {}
                try:
                    request = RemotingCommand(RequestCode.GET_BROKER_RUNTIME_INFO)
                    answer = yield from ask(address, request)
                    figures = decode_table(answer.body)
                except (Refused, Unreachable) as error:
                    # The broker stays in the list: that it is registered is news, too.
                    failures.append(error)
                who: Row = (name, group.broker_name)
                if more_stats:
                    rows.append((*who, *_totals(figures)))
                else:
                    rows.append((*who, broker_id, address, *_load(figures, here.now_ms)))
                data.append({
                    "clusterName": name, "brokerName": group.broker_name, "brokerId": broker_id,
                    "brokerAddr": address, "runtime": dict(figures),
                })  # fmt: skip
    columns, head, row = (
        (_MORE_COLUMNS, _MORE_HEAD, _MORE_ROW) if more_stats else (_COLUMNS, _HEAD, _ROW)
    )
    plain = head % tuple(f"#{column}" for column in columns) + "".join(row % one for one in rows)
    return Report(plain, data, (Table("Brokers", columns, rows),), tuple(failures))


def _load(figures: Figures, now_ms: int) -> Row:
    """The columns from the version on; a broker that did not answer has empty ones."""
    known = bool(figures)

    def text(name: str, missing: str | None = None) -> str:
        return null(figures.get(name, missing)) if known else ""

    sending = f"{text('sendThreadPoolQueueSize')},{text('sendThreadPoolQueueHeadWaitTimeMills')}ms"
    pulling = f"{text('pullThreadPoolQueueSize')},{text('pullThreadPoolQueueHeadWaitTimeMills')}ms"
    acking = f"{text('ackThreadPoolQueueSize', 'N')},{text('ackThreadPoolQueueHeadWaitTimeMills', 'N')}ms"
    timer = (
        f"{_whole(figures, 'timerReadBehind')}-{_whole(figures, 'timerOffsetBehind')}"
        f"({_whole(figures, 'timerCongestNum') / _CONGESTED:.1f}w, "
        f"{_first(figures, 'timerEnqueueTps'):.1f}, {_first(figures, 'timerDequeueTps'):.1f})"
    )
    earliest = parse_number(figures.get("earliestMessageTimeStamp", ""), INT64_MAX)
    hours = 0.0 if earliest is None else (now_ms - earliest) / _MS_AN_HOUR
    return (
        text("brokerVersionDesc"),
        f"{_first(figures, 'putTps'):9.2f}({sending})",
        f"{_first(figures, 'getTransferredTps'):9.2f}({pulling}|{acking})",
        timer,
        text("pageCacheLockTimeMills"),
        f"{hours:2.2f}",
        f"{_first(figures, 'commitLogDiskRatio'):.4f}",
        yes_no(figures.get("brokerActive", "").lower() == "true"),
    )


def _totals(figures: Figures) -> tuple[int, int, int, int]:
    """Messages in and out, of yesterday and of today so far."""

    def between(kind: str, start: str, end: str) -> int:
        return _whole(figures, f"msg{kind}Total{end}") - _whole(figures, f"msg{kind}Total{start}")

    yesterday, today, now = "YesterdayMorning", "TodayMorning", "TodayNow"
    return (
        between("Put", yesterday, today), between("Get", yesterday, today),
        between("Put", today, now), between("Get", today, now),
    )  # fmt: skip


def _whole(figures: Figures, name: str) -> int:
    return parse_number(figures.get(name, ""), INT64_MAX) or 0


def _first(figures: Figures, name: str) -> float:
    """The first of several rates: that of the last ten seconds."""
    try:
        return float(figures.get(name, "").split()[0])
    except (IndexError, ValueError):
        return 0.0


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        click.Option(
            ["-m", "--moreStats", "more_stats"], is_flag=True,
            help="Messages of yesterday and today instead of the load.",
        ),
        cluster_option(),
    ]  # fmt: skip


SPEC = CommandSpec(
    "clusterList", "Show every broker of the clusters with its load.", _options, run,
    repeats=True, needs_here=True,
)  # fmt: skip
