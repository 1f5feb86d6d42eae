"""electionHistory: why each election ended as it did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import click

from rmqha.admin.bodies import understood
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, broker_name_option, controllers_option, number_option
from rmqha.client.exchange import Exchange, ask_leader
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields

_COLUMNS = (
    "Decided (UTC)", "Broker set", "Epoch", "Master", "Trigger", "Reason", "Silent ms",
    "Waited ms", "Commit ms", "Told ms", "Heard ms", "Passed over",
)  # fmt: skip


_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def run(controllers: tuple[str, ...], broker_name: str | None, count: int) -> Exchange[Report]:
    """Ask the leader (60011); a Java controller knows no such question and refuses."""
    fields = ext_fields(brokerName=broker_name, maxNums=count)
    request = RemotingCommand(RequestCode.GET_ELECTION_HISTORY, ext_fields=fields)
    leader, answer = yield from ask_leader(controllers, request)
    with understood(leader):
        found: list[dict[str, Any]] = fastjson.loads(answer.body)["elections"]
        plain = "".join(_plain(one) for one in found) or "no election is remembered\n"
        rows = [_row(one) for one in found]
    return Report(plain, {"elections": found}, (Table("Elections", _COLUMNS, rows),))


def master_change(one: Mapping[str, Any]) -> str:
    """``1 -> 2``, with a dash for nobody."""
    old, new = (one[key] if one[key] is not None else "-" for key in ("oldMaster", "newMaster"))
    return f"{old} -> {new}{' (unclean)' if one.get('unclean') else ''}"


def candidate_line(one: Mapping[str, Any]) -> str:
    """One replica and its verdict, with what it was judged by."""
    silent = "never heard" if one["silentMs"] is None else f"heard {one['silentMs']} ms before"
    in_sync = "in sync" if one["inSyncStateSet"] else "not in sync"
    stalled = f", disk silent or full for {one['stalledMs']} ms" if one["stalledMs"] else ""
    return (
        f"\t#Broker\t{one['brokerId']}\t{one['verdict']}\tepoch {one['epoch']}"
        f", log end {one['maxOffset']}, priority {_dash(one['priority'])}"
        f", {in_sync}, {'alive' if one['alive'] else 'dead'}, {silent}{stalled}\n"
    )


def passed_over(candidates: list[Mapping[str, Any]]) -> str:
    """``2 (not alive), 3 (shorter log)``."""
    return ", ".join(
        f"{one['brokerId']} ({one['verdict']})" for one in candidates if one["verdict"] != "elected"
    )


def _plain(one: Mapping[str, Any]) -> str:
    times = (
        ("last heard", _minus(one["oldMasterSilentMs"])),
        ("noticed", f"-{one['waitedMs']}"),
        ("committed", _dash(one["commitMs"])),
        ("told after", _dash(one["toldMs"])),
        ("slaves told after", _dash(one["slavesToldMs"])),
        ("heard in its epoch after", _dash(one["firstHeartbeatMs"])),
    )
    more = one["candidatesLeftOut"]
    return (
        f"\n#BrokerName\t{one['brokerName']}\n#MasterEpoch\t{one['masterEpoch']}"
        f"\n#Master\t{master_change(one)}\n#Trigger\t{one['trigger']}, {one['reason']}"
        f"\n#Decided\t{_time(one['decidedMs'])}"
        f"\n#Stages(ms)\t{', '.join(f'{name} {ms}' for name, ms in times)}\n"
        + "".join(map(candidate_line, one["candidates"]))
        + (f"\t{more} more are not shown\n" if more else "")
    )


def _row(one: Mapping[str, Any]) -> tuple[object, ...]:
    return (
        _time(one["decidedMs"]), one["brokerName"], one["masterEpoch"], master_change(one),
        one["trigger"], one["reason"], one["oldMasterSilentMs"], one["waitedMs"],
        one["commitMs"], one["toldMs"], one["firstHeartbeatMs"], passed_over(one["candidates"]),
    )  # fmt: skip


def _time(ms: int | None) -> str:
    if ms is None:
        return "-"
    stamp = _EPOCH + timedelta(milliseconds=ms)
    return stamp.isoformat(" ", "milliseconds")[:-6]


def _dash(value: object) -> object:
    return "-" if value is None else value


def _minus(ms: int | None) -> str:
    return "-" if ms is None else f"-{ms}"


def _options() -> list[click.Option]:
    return [
        controllers_option(),
        broker_name_option("-b"),
        number_option(
            "-m", "--count", "count", low=1, high=1_000, default=50, help="So many, newest first."
        ),
    ]


SPEC = CommandSpec(
    "electionHistory", "Show why each election ended as it did.", _options, run, repeats=True
)
