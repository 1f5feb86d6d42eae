"""What the dashboard, the exporter and ``statsAll`` ask by 315: one thing by its name and its key.

Of what is not counted here the answer is Java's for what has never happened: it does not exist.

Source: BrokerStatsManager, Stats and BrokerStatsData of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from rmqha.broker.common.refusal import Refusal
from rmqha.broker.common.statistics import (
    BROKER_GET,
    BROKER_PUT,
    GROUP_GET,
    SENT_BACK,
    TOPIC_PUT,
    Statistics,
)
from rmqha.broker.common.tallies import DAY, HOUR, MINUTE
from rmqha.remoting.codes import ResponseCode

COUNTED = {
    "BROKER_GET_NUMS": (BROKER_GET, "messages"),
    "BROKER_PUT_NUMS": (BROKER_PUT, "messages"),
    "GROUP_GET_NUMS": (GROUP_GET, "messages"),
    "GROUP_GET_SIZE": (GROUP_GET, "size"),
    "SNDBCK_PUT_NUMS": (SENT_BACK, "messages"),
    "TOPIC_PUT_NUMS": (TOPIC_PUT, "messages"),
    "TOPIC_PUT_SIZE": (TOPIC_PUT, "size"),
}
"""Java's names, what is counted under them, and which member of it. Keys are a topic, a topic and a
group with ``@`` between, or the cluster."""

StatsItem = dict[str, int | float]


def stats_data(
    statistics: Statistics, name: str, key: str, cluster: str
) -> dict[str, StatsItem] | Refusal:
    """The three windows of what a request names."""
    kind, member = COUNTED.get(name, ("", ""))
    topic, _, group = key.partition("@")
    if kind in (BROKER_GET, BROKER_PUT):
        kind, topic, group = (kind, "", "") if key == cluster else ("", "", "")
    found: dict[str, StatsItem] = {}
    for title, window in (("statsDay", DAY), ("statsHour", HOUR), ("statsMinute", MINUTE)):
        look = statistics.window((kind, topic, group), window, member)
        if look is None:
            return Refusal(ResponseCode.SYSTEM_ERROR, f"The stats <{name}> <{key}> not exist")
        found[title] = {"avgpt": look.average, "sum": look.sum, "tps": look.rate}
    return found
