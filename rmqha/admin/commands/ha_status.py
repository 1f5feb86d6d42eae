"""haStatus: how far a master's slaves are, or how a slave follows."""

from __future__ import annotations

from typing import Any

import click

from rmqha.admin.java_text import null, time_of
from rmqha.admin.places import Places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_address_option,
    cluster_option,
    name_servers_option,
    need_address_or_cluster,
    need_name_servers,
)
from rmqha.client.brokers import masters
from rmqha.client.exchange import Exchange, ask_each
from rmqha.client.ha_status import HaStatus, ha_document, read_ha_status
from rmqha.remoting.codes import RequestCode

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
    found = Places((broker_address or "",))
    if not broker_address:
        now = yield from masters(need_name_servers(name_servers), cluster_name or "")
        found = Places.of(now)
    answers, failures = yield from ask_each(found.addresses, RequestCode.GET_BROKER_HA_STATUS)
    parts = [_part(address, ha_document(answer.body)) for address, answer in answers]
    plain = "".join(part.plain for part in parts)
    tables = tuple(table for part in parts for table in part.tables)
    data = [part.data for part in parts]
    return Report(plain, data, tables, (*failures, *found.failures), warnings=found.warnings)


def _part(address: str, info: dict[str, Any]) -> Report:
    status = read_ha_status(info)
    return _master(address, status, info) if status.is_master else _slave(address, status, info)


def _master(address: str, status: HaStatus, info: dict[str, Any]) -> Report:
    end, in_sync, count = status.log_end, status.in_sync_slaves, len(status.slaves)
    rows = [
        (
            slave.address,
            slave.ack_offset,
            slave.lag_bytes,
            slave.bytes_per_s / _KIB,
            "OK" if slave.is_in_sync else "Fall Behind",
            slave.transfer_from,
        )
        for slave in status.slaves
    ]
    plain = (
        f"\n#MasterAddr\t{address}\n#MasterCommitLogMaxOffset\t{end}\n#SlaveNum\t{count}"
        f"\n#InSyncSlaveNum\t{in_sync}\n" + _HEAD % tuple(f"#{column}" for column in _COLUMNS)
    ) + "".join(_ROW % row for row in rows)
    title = f"Master {address}: log ends at {end}, {in_sync} of {count} slaves in sync"
    data = {
        "brokerAddr": address, "master": True, "masterCommitLogMaxOffset": end,
        "inSyncSlaveNums": in_sync, "slaves": info.get("haConnectionInfo") or [],
    }  # fmt: skip
    return Report(plain, data, (Table(title, _COLUMNS, rows),))


def _slave(address: str, status: HaStatus, info: dict[str, Any]) -> Report:
    following = status.following
    rows = [
        ("MasterAddr", null(following.master_address)),
        ("CommitLogMaxOffset", str(following.max_offset)),
        ("TransferSpeed(KB/s)", f"{following.bytes_per_s / _KIB:.2f}"),
        ("LastReadTime", time_of(following.last_read_ms)),
        ("LastWriteTime", time_of(following.last_write_ms)),
        ("MasterFlushOffset", str(following.master_flush_offset)),
    ]
    plain = "\n" + "".join(f"#{name}\t{value}\n" for name, value in rows)
    client: dict[str, Any] = info.get("haClientRuntimeInfo") or {}
    data = {"brokerAddr": address, "master": False, **client}
    return Report(plain, data, (Table(f"Slave {address}", ("What", "Value"), rows),))


def _options() -> list[click.Option]:
    return [name_servers_option(), broker_address_option(), cluster_option()]


SPEC = CommandSpec(
    "haStatus", "Show how far slaves are behind their master.", _options, run, repeats=True
)
