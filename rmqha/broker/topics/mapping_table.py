"""The static topics of a broker: of each, which physical queues its logical queues were and are.

Source: TopicQueueMappingManager and TopicQueueMappingSerializeWrapper of RocketMQ 5.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.versioned_table import COUNT_MAX, VersionedTable
from rmqha.remoting.data_version import DataVersion
from rmqha.statictopic.mapping import TopicQueueMappingDetail

MAPPINGS_BYTES_MAX = 7 << 19
"""Of all mappings as JSON, some twenty thousand segments: the answer to 21 carries them in the same
frame as the topics, and a record of the log holds all of one topic."""

_ITEM_BYTES = 150


class MappingTable(VersionedTable[TopicQueueMappingDetail]):
    """All mappings of one broker, by topic."""

    def __init__(
        self,
        mappings: Iterable[TopicQueueMappingDetail] = (),
        version: DataVersion | None = None,
    ) -> None:
        super().__init__(mappings, version, _json_bytes, MAPPINGS_BYTES_MAX)

    def members(self) -> dict[str, Any]:
        """``config/topicQueueMapping.json``: the member says Info, and holds details, as Java's."""
        return {
            "dataVersion": self.version.members(),
            "topicQueueMappingInfoMap": self.item_members(),
        }

    @classmethod
    def of(cls, value: Mapping[str, Any], member: str = "topicQueueMappingInfoMap") -> MappingTable:
        """Read the file, or with ``topicQueueMappingDetailMap`` an answer to 21.

        Raises:
            RemoteProtocolError: not such an object.
        """
        table = value.get(member) or {}
        if not isinstance(table, dict) or len(table) > COUNT_MAX:
            raise RemoteProtocolError("the table of mappings is no object, or too large")
        version = value.get("dataVersion" if member.endswith("InfoMap") else "mappingDataVersion")
        return cls(map(TopicQueueMappingDetail.of, table.values()), DataVersion.of(version or {}))


def _json_bytes(mapping: TopicQueueMappingDetail) -> int:
    """How long a mapping's member of the table is, at most."""
    items = sum(
        _ITEM_BYTES + len(one.broker_name)
        for segments in mapping.hosted_queues.values()
        for one in segments
    )
    return 200 + 2 * len(mapping.topic) + len(mapping.broker_name) + items
