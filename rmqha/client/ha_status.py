"""How a broker says that its replication stands (907).

Source: HARuntimeInfo of RocketMQ 5.1.1 to 5.5; older brokers leave members out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rmqha.client.exchange import Exchange, ask
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.values import as_array, as_number, as_object, as_text


class SlaveStatus(Struct, frozen=True):
    """A slave that is connected to a master.

    Attributes:
        lag_bytes: what the slave lacks of the master's log, as the master counted it.
        transfer_from: the offset that the master sends from.
        bytes_per_s: how fast it sends.
    """

    address: str
    ack_offset: int
    lag_bytes: int
    is_in_sync: bool
    transfer_from: int
    bytes_per_s: int


class FollowingStatus(Struct, frozen=True):
    """A slave's side; of a master it means nothing.

    Attributes:
        master_address: whose HA port it reads from; None when no master was given.
        is_activated: it is past its handshake. Java's slaves never say so in controller mode.
        last_read_ms: since 1970, by the broker's clock; last_write_ms too.
    """

    master_address: str | None
    is_activated: bool
    max_offset: int
    bytes_per_s: int
    last_read_ms: int
    last_write_ms: int
    master_flush_offset: int


class HaStatus(Struct, frozen=True):
    """A broker's answer.

    Attributes:
        log_end: of a master, where its log ends.
    """

    is_master: bool
    log_end: int
    in_sync_slaves: int
    slaves: tuple[SlaveStatus, ...]
    following: FollowingStatus


def ask_ha_status(address: str, delay_ms: int = 0) -> Exchange[HaStatus]:
    """Ask one broker.

    Args:
        address: of the broker.
        delay_ms: so long is waited before it is asked.

    Raises:
        Refused, Unreachable: it gives no answer.
        RemoteProtocolError: the answer is another document.
    """
    request = RemotingCommand(RequestCode.GET_BROKER_HA_STATUS)
    answer = yield from ask(address, request, delay_ms=delay_ms)
    return read_ha_status(ha_document(answer.body))


def ha_document(body: bytes) -> dict[str, Any]:
    """The members of an answer's body; raises RemoteProtocolError when it is no object."""
    return as_object(fastjson.loads(body))


def read_ha_status(info: Mapping[str, Any]) -> HaStatus:
    """What the members of an answer say.

    Raises:
        RemoteProtocolError: a member is of another type.
    """
    client = as_object(info.get("haClientRuntimeInfo"))
    master_address = client.get("masterAddr")
    return HaStatus(
        info.get("master") is True,
        as_number(info.get("masterCommitLogMaxOffset")),
        as_number(info.get("inSyncSlaveNums")),
        tuple(_slave(as_object(one)) for one in as_array(info.get("haConnectionInfo"))),
        FollowingStatus(
            None if master_address is None else as_text(master_address),
            client.get("activated") is True,
            as_number(client.get("maxOffset")),
            as_number(client.get("transferredByteInSecond")),
            as_number(client.get("lastReadTimestamp")),
            as_number(client.get("lastWriteTimestamp")),
            as_number(client.get("masterFlushOffset")),
        ),
    )


def _slave(info: Mapping[str, Any]) -> SlaveStatus:
    return SlaveStatus(
        as_text(info.get("addr")),
        as_number(info.get("slaveAckOffset")),
        as_number(info.get("diff")),
        info.get("inSync") is True,
        as_number(info.get("transferFromWhere")),
        as_number(info.get("transferredByteInSecond")),
    )
