"""Commands that the Java tool has and this one does not: whoever types one is told where it is.

Source: MQAdminStartup of RocketMQ 5.3.3.
"""

from __future__ import annotations

NOT_HERE = frozenset(
    {
        "addBroker", "allocateMQ", "checkMsgSendRT", "checkRocksdbCqWriteProgress",
        "cleanExpiredCQ", "cleanUnusedTopic", "cloneGroupOffset", "clusterRT", "consumerStatus",
        "deleteExpiredCommitLog", "deleteKvConfig", "dumpCompactionLog", "exportConfigs",
        "exportMetadata", "exportMetadataInRocksDB", "exportMetrics", "exportPopRecord",
        "getColdDataFlowCtrInfo", "getConsumerConfig", "printMsg", "printMsgByQueue", "producer",
        "queryCq", "queryMsgTraceById", "removeBroker", "removeColdDataFlowCtrGroupConfig",
        "resetMasterFlushOffset", "rocksDBConfigToJson", "sendMsgStatus",
        "setCommitLogReadAheadMode", "setConsumeMode", "skipAccumulatedMessage", "startMonitoring",
        "statsAll", "topicClusterList", "updateColdDataFlowCtrGroupConfig", "updateKvConfig",
        "updateOrderConf", "updateSubGroupList", "updateTopicList",
    }
)  # fmt: skip
"""By name; ``docs/COMMANDS.md`` lists them."""
