"""Which topics are this broker's own by its settings, and which nobody may change or delete.

Source: TopicConfigManager.init and TopicValidator of RocketMQ 5.1.1 to 5.5: what a broker makes for
itself, the topics named after its cluster and itself among them, it adds to its system topics.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.common.settings import BrokerConfig
from rmqha.broker.topics.topic_table import TopicConfig, system_topics
from rmqha.remoting.topic_names import is_system_topic


def given_topics(config: BrokerConfig) -> list[TopicConfig]:
    """The topics that each broker of the set has from its start."""
    return system_topics(
        config.cluster_name,
        config.broker_name,
        auto_create=config.boolean("autoCreateTopicEnable"),
        default_queues=config.integer("defaultTopicQueueNums"),
        timers=config.boolean("timerWheelEnable"),
        traces=config.values["msgTraceTopicName"] if config.boolean("traceTopicEnable") else "",
    )


def protection(config: BrokerConfig) -> Callable[[str], bool]:
    """Make the test for names of topics that people may not change or delete.

    It is for requests of people only: the broker writes to these topics as before.
    """
    if not config.boolean("validateSystemTopicWhenUpdateTopic"):
        return lambda _name: False
    given = frozenset(topic.name for topic in given_topics(config))
    return lambda name: name in given or is_system_topic(name)
