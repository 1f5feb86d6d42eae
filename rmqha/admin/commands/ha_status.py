"""haStatus: how far a master's slaves are, or how a slave follows."""

from __future__ import annotations

from typing import Any

import click

from rmqha.admin.java_text import null, time_of
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_address_option,
    cluster_option,
    name_servers_option,
    need_address_or_cluster,
    need_name_servers,
)
from rmqha.client.brokers import master_addresses
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.values import as_array, as_number, as_object, as_text

_HEAD = "%-32s  %-16s %16s %16s %16s %16s\n"
_ROW = "%-32s  %-16d %16d %16.2f %16s %16d\n"
_COLUMNS = (
    "SlaveAddr", "SlaveAckOffset", "Diff", "TransferSpeed(KB/s)", "Status", "TransferFromWhere",
)  # fmt: skip
_KIB = 1024.0


def run(
    name_servers: tuple[str, ...] | None, broker_address: str | None, cluster_name: str | None
) -> Exchange[Report]:
    """Ask one broker, or every master of a cluster (907).

    Raises:
        click.UsageError: neither broker nor cluster.
        NotFound: no such cluster.
    """
    need_address_or_cluster(broker_address, cluster_name)
    # With both, the Java tool asks the broker.
    addresses: tuple[str, ...] = (broker_address or "",)
    if not broker_address:
        addresses = yield from master_addresses(need_name_servers(name_servers), cluster_name or "")
    answers, failures = yield from ask_each(addresses, RequestCode.GET_BROKER_HA_STATUS)
    parts = [_part(address, as_object(fastjson.loads(answer.body))) for address, answer in answers]
    plain = "".join(part.plain for part in parts)
    tables = tuple(table for part in parts for table in part.tables)
    return Report(plain, [part.data for part in parts], tables, tuple(failures))


def _part(address: str, info: dict[str, Any]) -> Report:
    return _master(address, info) if info.get("master") is True else _slave(address, info)


def _master(address: str, info: dict[str, Any]) -> Report:
    end, in_sync = (
        as_number(info.get("masterCommitLogMaxOffset")),
        as_number(info.get("inSyncSlaveNums")),
    )
    slaves = list(map(as_object, as_array(info.get("haConnectionInfo"))))
    rows = [
        (
            as_text(slave.get("addr")),
            as_number(slave.get("slaveAckOffset")),
            as_number(slave.get("diff")),
            as_number(slave.get("transferredByteInSecond")) / _KIB,
            "OK" if slave.get("inSync") is True else "Fall Behind",
            as_number(slave.get("transferFromWhere")),
        )
        for slave in slaves
    ]
    plain = (
        f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t{len(slaves)}"
        f"\n#InSyncSlaveNum\t{in_sync}\n" + _HEAD % tuple(f"#{column}" for column in _COLUMNS)
    ) + "".join(_ROW % row for row in rows)
    title = f"Master {address}: log ends at {end}, {in_sync} of {len(slaves)} slaves in sync"
    data = {
        "brokerAddr": address, "master": True, "masterCommitLogMaxOffset": end,
        "inSyncSlaveNums": in_sync, "slaves": slaves,
    }  # fmt: skip
    return Report(plain, data, (Table(title, _COLUMNS, rows),))


def _slave(address: str, info: dict[str, Any]) -> Report:
    client = as_object(info.get("haClientRuntimeInfo"))
    master = client.get("masterAddr")
    speed = as_number(client.get("transferredByteInSecond")) / _KIB
    rows = [
        ("MasterAddr", null(None if master is None else as_text(master))),
        ("CommitLogMaxOffset", str(as_number(client.get("maxOffset")))),
        ("TransferSpeed(KB/s)", f"{speed:.2f}"),
        ("LastReadTime", time_of(as_number(client.get("lastReadTimestamp")))),
        ("LastWriteTime", time_of(as_number(client.get("lastWriteTimestamp")))),
        ("MasterFlushOffset", str(as_number(client.get("masterFlushOffset")))),
    ]
    plain = "\n" + "".join(f"#{name}\t{value}\n" for name, value in rows)
    data = {"brokerAddr": address, "master": False, **client}
    return Report(plain, data, (Table(f"Slave {address}", ("What", "Value"), rows),))


def _options() -> list[click.Option]:
    return [name_servers_option(), broker_address_option(), cluster_option()]


SPEC = CommandSpec(
    "haStatus", "Show how far slaves are behind their master.", _options, run, repeats=True
)
