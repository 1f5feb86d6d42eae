"""After-files to try things with, as a command writes them and as somebody has changed them."""

from __future__ import annotations

from rmqha.remoting import fastjson
from rmqha.statictopic.map_file import REMAPPING, after_file
from rmqha.statictopic.plan import Change, grow
from tests.statictopic.examples import TOPIC
from tests.statictopic.model import ModelCluster

CONFIGS = {name: {"perm": 6, "topicName": TOPIC} for name in "abc"}


def cluster() -> ModelCluster:
    """Two queues at a, messages in both."""
    one = ModelCluster("ab")
    assert one.run(grow(one.known(), 2, ["a"], 1))
    for logical in range(2):
        one.send(logical, 3)
    return one


def after(change: Change, kind: str = REMAPPING) -> bytes:
    """Its after-file."""
    return after_file(change, kind, CONFIGS)


def rewritten(data: bytes, at: int = -1, **members: int) -> bytes:
    """An after-file with other numbers in one segment of logical queue 0, the last one as a rule."""
    whole = fastjson.loads(data)
    for config in whole["brokerConfigMap"].values():
        queues = config["mappingDetail"]["hostedQueues"]
        for key in queues:
            if str(key) == "0":
                queues[key][at] |= members
    return fastjson.dumps(whole)
