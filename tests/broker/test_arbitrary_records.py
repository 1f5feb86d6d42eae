"""Records of any bytes in the topics that a broker's services read: nobody dies of one, or stops there.

A log holds what other releases and Java's masters wrote, and damaged senders. It is the same on every
replica and for ever, so whoever reads it must get past everything, while it runs and at its start.
"""

from __future__ import annotations

import contextlib
import json
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from rmqha.base.errors import MessageIllegal
from rmqha.broker.deferred.delays import SCHEDULE_TOPIC, TIMER_TOPIC
from rmqha.broker.deferred.transactions import HALF_TOPIC, OP_TOPIC
from rmqha.broker.pop.check_points import REVIVE_TOPIC
from rmqha.store.record import INNER_BATCH, Message, pack_host
from tests.broker.replicas import NAME, TOPIC, ReplicaCluster, master_of, send_fields
from tests.broker.subscriber import Subscriber
from tests.broker.test_pop_in_simulator import GROUP as POP_GROUP
from tests.broker.test_producer_services import bodies, end, half, send, stored

HOST = pack_host("127.0.0.1", 10911)
METADATA = "rmq_sys_METADATA"
REVIVE = REVIVE_TOPIC + "DefaultCluster"
READ = (SCHEDULE_TOPIC, TIMER_TOPIC, HALF_TOPIC, OP_TOPIC, REVIVE, METADATA)
"""A service of a serving master reads each of them to its end."""

OTHERS = (
    f"%RETRY%{POP_GROUP}", f"%RETRY%{POP_GROUP}_{TOPIC}", f"%DLQ%{POP_GROUP}", REVIVE_TOPIC + "Other",
    "TRANS_CHECK_MAX_TIME_TOPIC", "OFFSET_MOVED_EVENT", "RMQ_SYS_TRACE_TOPIC", "CHECKPOINT_TOPIC",
    "rmq_sys_SYNC_BROKER_MEMBER_x", "Plain",
)  # fmt: skip
SET_ASIDE = (
    "delayed_message_illegal", "timer_illegal", "half_message_illegal", "op_message_illegal",
    "revive_record_illegal", "popped_message_illegal", "metadata_set_aside",
)  # fmt: skip
"""What the log calls a record that a service cannot act on."""

NUMBERS = st.sampled_from(
    (0, 1, -1, 31, 1 << 20, (1 << 31) - 1, 1 << 31, (1 << 63) - 1, -(1 << 63))
)
NAMES = st.sampled_from(
    ("", "Other", "a/b", "..", "x" * 300, TIMER_TOPIC, HALF_TOPIC, "%RETRY%", "é")
)
JSON = st.recursive(
    st.none() | st.booleans() | NUMBERS | st.floats(allow_nan=False) | NAMES,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=6,
)
MEMBERS = (
    "bm", "bn", "c", "d", "it", "n", "pt", "q", "so", "t", "rp", "ao", "aol", "consumerGroup",
    "topics", "groups", "endedTopics", "endedGroups", "forgottenGroups", "topicName", "perm",
    "groupName",
)  # fmt: skip
GOOD_MEMBERS: dict[str, Any] = {
    "bn": NAME, "c": "Other", "d": [0], "it": 1000, "n": 1, "pt": 1, "q": 0, "so": 0, "t": "Plain",
}  # fmt: skip
OBJECTS = st.dictionaries(st.sampled_from(MEMBERS), JSON, max_size=4).map(
    lambda members: json.dumps(GOOD_MEMBERS | members).encode()
)
OPS = st.lists(st.sampled_from(("1000000", "-5", "9" * 30, "x", "", "²")), max_size=4).map(
    lambda parts: ",".join(parts).encode()
)
BODIES = st.binary(max_size=60) | JSON.map(lambda value: json.dumps(value).encode()) | OBJECTS | OPS

KEYS = (
    b"REAL_TOPIC", b"REAL_QID", b"TIMER_OUT_MS", b"TIMER_DEL_UNIQKEY", b"TIMER_DELIVER_MS", b"DELAY",
    b"UNIQ_KEY", b"KEYS", b"PGROUP", b"TRAN_MSG", b"TRANSACTION_CHECK_TIMES",
    b"CHECK_IMMUNITY_TIME_IN_SECONDS", b"TRAN_PREPARED_QUEUE_OFFSET", b"INNER_NUM", b"1ST_POP_TIME",
    b"__CRC32#", b"MSG_REGION", b"INNER_MULTI_DISPATCH", b"ENDED_TOPICS",
)  # fmt: skip
VALUES = (
    NUMBERS.map(lambda number: b"%d" % number)
    | NAMES.map(str.encode)
    | st.sampled_from((b"Plain", b"true", b"9" * 400))
    | st.binary(max_size=8)
)
TAGS = st.sampled_from(
    (b"", b"TAGS\x01ck\x02", b"TAGS\x01ack\x02", b"TAGS\x01bAck\x02", b"TAGS\x01d\x02")
)
PAIRS = st.tuples(TAGS, st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)).map(
    lambda found: found[0] + b"".join(b"%b\x01%b\x02" % pair for pair in found[1].items())
)


class Put(NamedTuple):
    """A record.

    Attributes:
        is_garbage: it says nothing that any service could act on, and stands where one reads.
    """

    message: Message
    is_garbage: bool = False


def _garbage(found: tuple[str, bytes]) -> Put:
    topic, tail = found
    return Put(Message(topic, 0, b"\xff{" + tail, b"", 0, HOST, HOST), is_garbage=True)


GARBAGE = st.tuples(st.sampled_from(READ), st.binary(max_size=20)).map(_garbage)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
ANY = st.builds(
    Message,
    topic=st.sampled_from((*READ, *READ, *OTHERS)),
    queue_id=st.sampled_from((0, 0, 0, 1, 7, 17, 65_535)),
    body=BODIES,
    properties=PAIRS | st.binary(max_size=40),
    born_timestamp=INT64,
    born_host=st.just(HOST),
    store_host=st.just(HOST),
    # An inner batch makes a queue of another kind; neither Java's broker nor this one stores any here.
    sys_flag=st.integers(0, 0xFFFF).map(lambda flag: flag & ~INNER_BATCH),
    flag=INT32,
    reconsume_times=INT32,
    prepared_transaction_offset=INT64,
).map(Put)


class Life:
    """One replica, process after process."""

    def __init__(self, cluster: ReplicaCluster) -> None:
        self.cluster = cluster
        self.number = 0
        self._lines = 0

    def skipped(self) -> int:
        """Records that this process has set aside: as many as its log names."""
        lines = self.cluster.trace.lines[self._lines :]
        named = sum(any(f" {event} " in line for event in SET_ASIDE) for line in lines)
        assert master_of(self.cluster).statistics.records_skipped == named, lines
        return named

    def restart(self) -> None:
        """Kill the process, and start the next one on what it left."""
        host = self.cluster.broker_hosts[0]
        self.cluster.kill(host)
        self._lines = len(self.cluster.trace.lines)
        self.cluster.boot(host)
        self.cluster.until(lambda: self.cluster.master() is not None, "a master")

    def serves(self) -> None:
        """A message of each service that comes behind everything is delivered."""
        cluster = self.cluster
        self.number += 10
        wanted = {f"body-{self.number + n}".encode() for n in range(4)}
        assert send(cluster, self.number, "DELAY\x011\x02").code == 0
        assert send(cluster, self.number + 1, "TIMER_DELAY_MS\x011000\x02").code == 0
        assert send(cluster, self.number + 2).code == 0
        assert end(cluster, half(cluster, self.number + 3), 8) == 0
        half(cluster, self.number + 4)
        asked = Subscriber(cluster, master_of(cluster).config.address, f"p{self.number}")
        asked.beat("", producers=("PG",))
        popped = f"body-{self.number + 2}".encode()
        cluster.until(lambda: popped in self._pop(), "the message by pop")
        cluster.until(lambda: wanted <= set(bodies(stored(cluster, TOPIC))), "all deliveries")
        cluster.until(
            lambda: any(
                f"body-{self.number + 4}".encode() in bytes(one.body) for one in asked.told(39)
            ),
            "a question about the half message",
        )
        cluster.until(lambda: popped in self._pop(), "the message by pop once more", 180_000)
        assert master_of(cluster).store.failed is None

    def _pop(self) -> bytes:
        fields = {
            "consumerGroup": POP_GROUP, "topic": TOPIC, "queueId": "-1", "maxMsgNums": "32",
            "invisibleTime": "1000", "pollTime": "0", "bornTime": "0", "initMode": "0",
            "expType": "TAG", "exp": "*",
        }  # fmt: skip
        answer = self.cluster.ask(master_of(self.cluster).config.address, 200050, fields)
        assert answer.code in (0, 209, 210), answer.remark
        return bytes(answer.body)


@pytest.mark.slow
@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate], report_multiple_bugs=False,
)  # fmt: skip  # stories that wait for what never comes are too slow to be shrunk
@given(records=st.lists(GARBAGE | ANY, min_size=1, max_size=10), is_killed=st.booleans())
def test_records_of_any_bytes_when_services_read_them_then_all_services_go_on(
    records: list[Put], is_killed: bool
) -> None:
    """While they run and, after a kill, at the start; what is set aside is counted and named."""
    with ReplicaCluster(
        seed=51, replicas=1, messageDelayLevel="1s 5s", transactionCheckInterval=500,
        transactionTimeOut=300, timerFlushIntervalMs=200,
    ) as cluster:  # fmt: skip
        cluster.boot_all()
        life = Life(cluster)
        assert cluster.ask(master_of(cluster).config.address, 310, send_fields(0), b"x").code == 0

        def write() -> None:
            for one in records:
                with contextlib.suppress(MessageIllegal):
                    master_of(cluster).services.writer.append(one.message)

        cluster.loop.call_soon(write)
        cluster.run_for(0)
        if is_killed:
            life.restart()
        life.serves()
        garbage = sum(one.is_garbage for one in records)
        cluster.until(lambda: life.skipped() >= garbage, f"{garbage} records set aside")
        life.restart()
        life.serves()
        life.skipped()
