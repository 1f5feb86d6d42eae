"""What an operator can set for replication: Java's property names and defaults, and a few of ours.

Source: MessageStoreConfig and BrokerConfig of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid

JAVA_READ_BUFFER_BYTES = 4 * 1024 * 1024
"""A Java slave's read buffer: a frame whose header and body exceed it never completes there."""

TRANSFER_HEADER_BYTES = 36
TRANSFER_BODY_BYTES_MAX = JAVA_READ_BUFFER_BYTES - TRANSFER_HEADER_BYTES
"""The largest body that any peer is ever sent."""

RECEIVED_BODY_BYTES_MAX = 64 * 1024 * 1024
"""The largest body that is taken from a master; its ``haTransferBatchSize`` decides the size."""

EPOCH_ENTRIES_MAX = 65_536
"""Of a handshake reply; a Java master cannot send more than 1000."""

SLAVES_MAX = 64
"""Connections on the HA port at a time."""

BUSY_WAIT_US_MAX = 10_000
"""Longer waits are no waits for an answer that is near."""

PUT_WAITS_MAX = 1_000_000
"""Puts that wait for slaves at a time; beyond it puts are refused before they are written."""

_NAMES = {
    "ha_listen_port": "haListenPort",
    "ha_send_heartbeat_interval_ms": "haSendHeartbeatInterval",
    "ha_housekeeping_interval_ms": "haHousekeepingInterval",
    "ha_transfer_batch_size": "haTransferBatchSize",
    "ha_max_time_slave_not_catchup_ms": "haMaxTimeSlaveNotCatchup",
    "ha_flow_control_enable": "haFlowControlEnable",
    "max_ha_transfer_byte_in_second": "maxHaTransferByteInSecond",
    "slave_timeout_ms": "slaveTimeout",
    "in_sync_replicas": "inSyncReplicas",
    "min_in_sync_replicas": "minInSyncReplicas",
    "all_ack_in_sync_state_set": "allAckInSyncStateSet",
    "sync_from_last_file": "syncFromLastFile",
    "async_learner": "asyncLearner",
    "duplication_enable": "duplicationEnable",
    "slave_start_over_enable": "slaveStartOverEnable",
    "check_sync_state_set_period_ms": "checkSyncStateSetPeriod",
    "ha_busy_wait_us": "haBusyWaitMicros",
}
_POSITIVE = (
    "ha_send_heartbeat_interval_ms",
    "ha_housekeeping_interval_ms",
    "ha_max_time_slave_not_catchup_ms",
    "max_ha_transfer_byte_in_second",
    "slave_timeout_ms",
    "check_sync_state_set_period_ms",
)


class HaSettings(Struct, frozen=True):
    """Replication settings; the first part has Java's names in snake_case, units added.

    Attributes:
        ha_transfer_batch_size: body bytes of a frame. 0, the default, means the largest size
            that pays: 1 MiB. A value that an operator sets is honoured, up to what a Java slave
            can take.
        slave_start_over_enable: a slave that lacks what its master has expired throws its log away
            and begins at the master's first file; see ``start_over``.
        ha_busy_wait_us: how long a loop may stay awake for an acknowledgement or the next batch; 0
            for loops that sleep, as Java's. See ``busy_wait``.
        in_flight_bytes_max: sent to a slave's transport and not yet taken by the kernel.
        ack_flushed_data: acknowledge only what a slave has made durable. Java acknowledges
            what is in its page cache.
        connect_timeout_ms: as Java's fixed value.
        reconnect_delay_ms, reconnect_delay_max_ms: wait after a lost or failed connection; it
            doubles until a transfer frame has been accepted again. Java waits 5 s each time.
        confirm_delay_ms: an idle slave hears of a moved confirmOffset after this; in Java it
            waits for the next heartbeat.
        alter_settle_ms: after it an alterSyncStateSet request without an answer is surely gone.
    """

    ha_listen_port: int = 10912
    ha_send_heartbeat_interval_ms: int = 5_000
    ha_housekeeping_interval_ms: int = 20_000
    ha_transfer_batch_size: int = 0
    ha_max_time_slave_not_catchup_ms: int = 15_000
    ha_flow_control_enable: bool = False
    max_ha_transfer_byte_in_second: int = 104_857_600
    slave_timeout_ms: int = 3_000
    in_sync_replicas: int = 1
    min_in_sync_replicas: int = 1
    all_ack_in_sync_state_set: bool = False
    sync_from_last_file: bool = False
    async_learner: bool = False
    duplication_enable: bool = False
    check_sync_state_set_period_ms: int = 5_000
    # our own
    slave_start_over_enable: bool = False
    ha_busy_wait_us: int = 0
    in_flight_bytes_max: int = 4 * 1024 * 1024
    ack_flushed_data: bool = False
    connect_timeout_ms: int = 5_000
    reconnect_delay_ms: int = 100
    reconnect_delay_max_ms: int = 5_000
    confirm_delay_ms: int = 100
    alter_settle_ms: int = 6_000

    @property
    def transfer_body_bytes(self) -> int:
        """Body bytes of a frame, at most what every peer accepts."""
        return min(self.ha_transfer_batch_size or 1024 * 1024, TRANSFER_BODY_BYTES_MAX)

    def __post_init__(self) -> None:
        """Check the relations.

        Raises:
            ConfigInvalid: a value that cannot be used.
        """
        for name in _POSITIVE:
            if getattr(self, name) <= 0:
                raise ConfigInvalid(f"{_NAMES[name]} must be positive")
        if self.ha_transfer_batch_size < 0:
            raise ConfigInvalid("haTransferBatchSize must not be negative")
        if not 0 <= self.ha_busy_wait_us <= BUSY_WAIT_US_MAX:
            raise ConfigInvalid(f"haBusyWaitMicros must be from 0 to {BUSY_WAIT_US_MAX}")


def load_ha_settings(properties: Mapping[str, str]) -> HaSettings:
    """Take the keys that concern replication from a broker's properties; others are ignored.

    Raises:
        ConfigInvalid: a value that is no number, or cannot be used.
    """
    values: dict[str, Any] = {}
    defaults = HaSettings()
    for name, key in _NAMES.items():
        text = properties.get(key)
        if text is None:
            continue
        if isinstance(getattr(defaults, name), bool):
            values[name] = text.strip().lower() == "true"
        else:
            try:
                values[name] = int(text.strip())
            except ValueError as error:
                raise ConfigInvalid(f"{key}={text} is not a number") from error
    return HaSettings(**values)
