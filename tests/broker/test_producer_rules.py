"""The rules of delays, timers, transactions, retries and topics, without a broker around them."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.deferred import timer_table
from rmqha.broker.deferred.delay_offsets import DelayOffsets
from rmqha.broker.deferred.delays import (
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    DelayRules,
    RecallHandle,
    check_recall,
    decode_handle,
    due_ms,
    encode_handle,
    place,
    real_place,
)
from rmqha.broker.deferred.open_transactions import OP_BLOCKS_MAX, Open, OpenTransactions
from rmqha.broker.deferred.timer_table import TimerTable
from rmqha.broker.deferred.timers import Due, TimerMark
from rmqha.broker.send.request import parse_any_send, parse_send
from rmqha.broker.send.retry import goes_to_dead_letters, reconsume_max
from rmqha.broker.topics.changes import (
    alter_attributes,
    checked_topic,
    parse_attributes,
    parse_topic,
    parse_topics,
)
from rmqha.broker.topics.topic_table import DataVersion, TopicConfig, has_priorities
from rmqha.remoting.topic_names import CLOSED_TOPICS, is_system_topic
from rmqha.store import properties as props
from rmqha.store.record import Message, pack_host

HOST = pack_host("10.0.0.1", 10911)
NOW = 1_700_000_000_500
RULES = DelayRules(levels_ms=(1000,) * 18, timers=True, precision_ms=1000, delay_max_ms=100_000)


def message(**pairs: str) -> Message:
    """A message with these properties."""
    return Message("T", 3, b"x", props.encode(pairs), NOW, HOST, HOST)


# -- properties

NAMES = st.sampled_from(["A", "AA", "BA", "TAGS", "X"])
VALUES = st.text(alphabet="Aa1", min_size=1, max_size=3)


@given(
    pairs=st.lists(st.tuples(NAMES, VALUES), max_size=8),
    name=NAMES,
    value=VALUES,
    cut=st.booleans(),
)
def test_property_when_put_or_dropped_then_the_others_stay(
    pairs: list[tuple[str, str]], name: str, value: str, cut: bool
) -> None:
    """Names that end alike must not be taken for each other; a last separator may miss."""
    data = "".join(f"{k}\x01{v}\x02" for k, v in pairs).encode()
    data = data[:-1] if cut else data
    expected = dict(pairs)
    assert props.decode(props.put(data, name.encode(), value.encode())) == {**expected, name: value}
    expected.pop(name, None)
    assert props.decode(props.drop(data, name.encode())) == expected


# -- where a message goes


@pytest.mark.parametrize(
    ("pairs", "topic", "queue_id"),
    [
        ({"K": "v"}, "T", 3),
        ({"DELAY": "0"}, "T", 3),
        ({"DELAY": "-1"}, "T", 3),
        ({"DELAY": "x"}, "T", 3),
        ({"DELAY": "1"}, SCHEDULE_TOPIC, 0),
        ({"DELAY": "18"}, SCHEDULE_TOPIC, 17),
        ({"DELAY": "19"}, SCHEDULE_TOPIC, 17),
        ({"DELAY": "2", "TIMER_DELAY_SEC": "5"}, SCHEDULE_TOPIC, 1),
        ({"TIMER_DELAY_SEC": "5"}, TIMER_TOPIC, 0),
        ({"TIMER_DELAY_MS": "1"}, TIMER_TOPIC, 0),
        ({"TIMER_DELIVER_MS": str(NOW)}, "T", 3),
        ({"TIMER_DELIVER_MS": str(NOW + 1)}, TIMER_TOPIC, 0),
        ({"TIMER_DELIVER_MS": "-1"}, "T", 3),
        ({"TIMER_DELAY_SEC": "-9223372036854775808"}, "T", 3),
        ({"TIMER_DELAY_SEC": "5", "TIMER_OUT_MS": "7"}, "T", 3),
    ],
)
def test_message_when_placed_then_java_s_topic_and_queue(
    pairs: dict[str, str], topic: str, queue_id: int
) -> None:
    """A level wins over a timer; what passed its time is not delayed; nothing is delayed twice."""
    placed = place(message(**pairs), RULES, NOW)
    assert isinstance(placed, Message)
    assert (placed.topic, placed.queue_id) == (topic, queue_id)
    if topic != "T":
        assert real_place(placed.properties) == ("T", 3)


@pytest.mark.parametrize("topic", [*sorted(CLOSED_TOPICS), TIMER_TOPIC])
def test_message_when_it_says_that_it_belongs_to_a_service_then_it_belongs_nowhere(
    topic: str,
) -> None:
    """A service would act on it once more, for ever; those of 5.5 that are master next as well."""
    assert real_place(props.encode({"REAL_TOPIC": topic, "REAL_QID": "0"})) is None


@pytest.mark.parametrize(
    ("pairs", "rules", "code"),
    [
        ({"TIMER_DELAY_SEC": "101"}, RULES, 13),
        ({"TIMER_DELAY_SEC": "soon"}, RULES, 13),
        ({"TIMER_DELIVER_MS": "soon"}, RULES, 13),
        ({"TIMER_DELIVER_MS": "99999999999999999999"}, RULES, 13),
        ({"TIMER_DELAY_SEC": "1"}, RULES._replace(timers=False), 1),
        ({"TIMER_DELIVER_MS": "1", "TIMER_DEL_UNIQKEY": "T+U"}, RULES, 13),
    ],
)
def test_timer_when_impossible_then_java_s_code(
    pairs: dict[str, str], rules: DelayRules, code: int
) -> None:
    """An acknowledged timer must come."""
    refusal = place(message(**pairs), rules, NOW)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code


@given(ahead_ms=st.integers(1, 100_000))
def test_timer_when_rounded_then_at_most_one_step_early(ahead_ms: int) -> None:
    """Java rounds down to timerPrecisionMs, and takes one step off a round time."""
    placed = place(message(TIMER_DELIVER_MS=str(NOW + ahead_ms)), RULES, NOW)
    assert isinstance(placed, Message)
    out = props.find_integer(placed.properties, b"TIMER_OUT_MS")
    assert out is not None
    assert out % 1000 == 0
    assert 0 < NOW + ahead_ms - out <= 1000


def test_delay_when_the_clock_went_back_then_never_longer_than_its_level() -> None:
    """A delivery time further away than the level means that it was reckoned by another clock."""
    assert due_ms(NOW + 5_000, NOW, 5_000) == NOW + 5_000
    assert due_ms(NOW + 5_001, NOW, 5_000) == NOW


# -- recall handles


@given(
    topic=st.text("abT%_-", min_size=1), key=st.text("0AF", min_size=1), at=st.integers(1, 1 << 50)
)
def test_handle_when_encoded_then_read_back(topic: str, key: str, at: int) -> None:
    """Producers keep it as text."""
    handle = RecallHandle(topic, "broker-a", at, key)
    assert decode_handle(encode_handle(handle)) == handle


@given(text=st.text(max_size=40))
def test_handle_when_garbage_then_604(text: str) -> None:
    """Anything may come as a handle."""
    found = decode_handle(text)
    assert isinstance(found, RecallHandle) or found.code == 604


@pytest.mark.parametrize(
    ("changes", "good"),
    [
        ({}, True),
        ({"topic": "other"}, False),
        ({"broker_name": "other"}, False),
        ({"deliver_ms": NOW}, False),
        ({"deliver_ms": NOW + 100_000}, False),
    ],
)
def test_recall_when_checked_then_only_here_and_in_time(
    changes: dict[str, str], good: bool
) -> None:
    """A handle of another broker or moment recalls nothing."""
    handle = RecallHandle("T", "b", NOW + 500, "U")._replace(**changes)  # type: ignore[arg-type]
    refusal = check_recall(handle, "T", "b", RULES, NOW)
    assert (refusal is None) == good
    assert refusal is None or refusal.code == 604


# -- the fields of a send

NUMBERS = st.one_of(
    st.integers(-5, 1 << 40).map(str),
    st.sampled_from(["", "x", "1_0", " 1", "٣", "+1", "0" * 30, "9" * 12, "2147483648"]),
)
TRUTHS = st.sampled_from(["true", "false", "TRUE", "", "1"])


@pytest.mark.slow
@settings(max_examples=400)
@given(
    fields=st.fixed_dictionaries(
        dict.fromkeys("defgh", NUMBERS) | {"b": st.just("T"), "c": st.just("TBW102")},
        optional={"j": NUMBERS, "l": NUMBERS, "k": TRUTHS, "m": TRUTHS, "i": VALUES, "a": VALUES},
    )
)
def test_send_when_parsed_the_quick_way_then_as_the_lenient_way(fields: dict[str, str]) -> None:
    """The hot path must take no number for another one."""
    assert parse_send(310, fields) == parse_any_send(310, fields)


# -- delay offsets


def test_delay_offsets_when_passed_then_kept_only_when_said_so() -> None:
    """What is kept before it is safe is lost with a master."""
    offsets = DelayOffsets({1: 5, 2: 90})
    assert [offsets.begin(1, 0, 50), offsets.begin(2, 0, 50), offsets.begin(3, 7, 9)] == [5, 50, 7]
    offsets.passed(1, 6)
    assert offsets.members()["offsetTable"] == {"1": 5, "2": 90}
    assert offsets.keep(NOW, 3)
    assert not offsets.keep(NOW, 3)
    assert DelayOffsets.of(offsets.members()).kept == {1: 6, 2: 50, 3: 7}
    assert offsets.version.state_version == 3


@pytest.mark.parametrize("table", [[], {"x": 1}, {"1": -1}, {"1": True}, {"1": "2"}])
def test_delay_offsets_when_garbage_then_refused(table: object) -> None:
    """A slave must not take over what is no table."""
    with pytest.raises(RemoteProtocolError):
        DelayOffsets.of({"offsetTable": table or [1]})


# -- the table of timers

ENOUGH = 400


@dataclass
class Timers:
    """A log of timers and lives of tables over it."""

    held_max: int
    log: list[tuple[int, str, str]] = field(default_factory=list)  # due, key, recalls
    delivered: list[str] = field(default_factory=list)
    late_ms: int = 0

    def live(self, mark: TimerMark, first: int) -> TimerTable:
        """A new table."""
        return TimerTable(self.held_max, mark, first)

    def read(self, table: TimerTable, count: int) -> bool:
        """Read some more of the log."""
        for _ in range(count):
            if table.position >= len(self.log):
                return False
            at = table.position
            due, _, recalls = self.log[at]
            table.add(Due(due, at, 1000 + at), recalls)
            assert len(table) <= self.held_max
        return True

    def deliver(self, table: TimerTable, now: int, count: int) -> None:
        """Deliver what is due."""
        for one in table.take(now, count):
            due, key, recalls = self.log[one.queue_offset]
            assert due == one.due_ms <= now
            if not recalls and not table.is_recalled(key, due):
                self.delivered.append(key)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_timers_when_tables_come_and_go_then_all_are_delivered_in_time(seed: int) -> None:
    """Any restarts, crashes, and more timers than a table may hold: none is lost, none early.

    Without a crash none comes twice, and a recalled one never comes.
    """
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        for name, values in {"RUN": (1, 4), "GONE_MAX": (1, 3), "STALE_MAX": (0, 5)}.items():
            patch.setattr(timer_table, name, dice.choice(values))
        _live(dice)


def _live(dice: random.Random) -> None:
    world = Timers(held_max=dice.choice((2, 3, 8, ENOUGH)))
    now, mark, crashed = 1_000, TimerMark(), False
    recalled: set[str] = set()
    table = world.live(mark, 0)
    for _ in range(dice.randint(1, 40)):
        for _ in range(dice.randint(0, 6)):
            number = len(world.log)
            if world.log and dice.random() < 0.1 and world.held_max == ENOUGH:
                due, key, recalls = dice.choice(world.log)
                if due > now and not recalls:
                    world.log.append((due, f"r{number}", key))
                    recalled.add(key)
                    continue
            world.log.append((now + dice.randint(1, 900), f"t{number}", ""))
        world.read(table, dice.randint(0, 12))
        now += dice.randint(0, 120)
        world.deliver(table, now, dice.randint(1, 6))
        dies = dice.random()
        if dies < 0.1:
            crashed = True
            table = world.live(mark, mark.first)
        elif dies < 0.2:
            table.settled()
            mark = table.mark(now)
            table = world.live(mark, mark.first)
        else:
            table.settled()
            if dice.random() < 0.5:
                mark = table.mark(now)
    now += 2_000
    for _ in range(20 * len(world.log) + 20):
        world.read(table, 50)
        world.deliver(table, now, 50)
        table.settled()
    expected = {key for _, key, recalls in world.log if not recalls} - recalled
    assert set(world.delivered) - recalled == expected
    if not crashed and world.held_max == ENOUGH:
        # A table that overflows with late timers may repeat some after a restart.
        assert len(world.delivered) == len(set(world.delivered))
    last = table.mark(now)
    assert (last.read_to, last.first, last.late) == (len(world.log), len(world.log), ())
    assert last.read_ms >= now


def test_timer_mark_when_java_s_then_the_second_it_names_is_still_to_be_delivered() -> None:
    """A slave of ours that took it for delivered would lose it when Java's master dies.

    Watched at 5.3.3: the mark names a second for as long as it lasts, and its timers come after it.
    """
    second_ms = 1_795_342_816_000
    for next_ms in (second_ms, second_ms + 123, second_ms + 999):
        mark = TimerMark.decode(struct.pack(">4q", next_ms, 0, 2, 2), 1000)
        assert mark == TimerMark(second_ms - 1, 2)
        table = TimerTable(10, mark, 0)
        table.add(Due(second_ms - 1_000, 0, 100))
        table.add(Due(second_ms, 1, 200))
        assert table.take(second_ms + 5_000, 10) == [Due(second_ms, 1, 200)]
    for read_ms, said_ms in ((999, 1000), (1000, 1000), (1998, 1000), (1999, 2000)):
        own = TimerMark(second_ms + read_ms, 2).encode(DataVersion(0, 0, 0), 1000)
        assert struct.unpack_from(">q", own) == (second_ms + said_ms,)


def test_timer_mark_when_sent_to_a_slave_then_java_s_bytes() -> None:
    """60 is a row of longs; older brokers send four."""
    mark = TimerMark(4_999, 7, 3)
    data = mark.encode(DataVersion(2, 0, 0), 1000)
    assert len(data) == 56
    whole, old = TimerMark.decode(data, 1000), TimerMark.decode(data[:32], 1000)
    assert whole == old == TimerMark(4_999, 7, 0)
    late = TimerMark(4_999, 7, 3, 2, (4, 6))
    assert TimerMark.decode(late.encode(DataVersion(), 1000), 1000) == TimerMark(4_999, 4, 0)
    assert TimerMark.decode(bytes(32), 1000) == TimerMark()
    assert TimerMark.of(late.members()) == late
    with pytest.raises(RemoteProtocolError):
        TimerMark.decode(data[:31], 1000)
    with pytest.raises(RemoteProtocolError):
        TimerMark.of({"readTimeMs": "5"})


# -- open transactions


@pytest.mark.costly
@settings(max_examples=200, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_transactions_when_read_in_any_order_then_exactly_the_open_ones_are_asked(
    seed: int,
) -> None:
    """Ops are read before their halves or behind them; a table may begin anew where one was kept."""
    dice = random.Random(seed)
    halves, ops, ended = 0, [], set()
    table = OpenTransactions(0, 0, open_max=1_000)
    for _ in range(dice.randint(1, 60)):
        action = dice.random()
        if action < 0.4:
            halves += 1
        elif action < 0.7 and halves > len(ended):
            chosen = dice.choice([n for n in range(halves) if n not in ended])
            ended.add(chosen)
            ops.append([chosen])
            if table.to_end(chosen, chosen):
                table.answered([chosen])
        elif action < 0.85:
            _read(table, dice.randint(0, halves), dice.randint(0, len(ops)), ops)
        else:
            half, op = table.kept()
            table = OpenTransactions(half, op, open_max=1_000)
    _read(table, halves, len(ops), ops)
    open_now = {one.queue_offset for one in table.to_ask(NOW, table.half_next, 1_000)}
    assert open_now == set(range(halves)) - ended
    assert all(not table.to_end(number, number) for number in ended)
    half, op = table.kept()
    assert half == min(open_now, default=halves)
    assert all(max(one) < half for one in ops[:op])


def _read(table: OpenTransactions, halves: int, ops: int, log: list[list[int]]) -> None:
    while table.op_next < ops:
        table.op(table.op_next, log[table.op_next])
    while table.half_next < halves:
        at = table.half_next
        table.half(Open(at, at, 0, at))


def test_transactions_when_there_are_too_many_then_reading_stops() -> None:
    """Memory is bounded by transactionsOpenMax; the log keeps the rest."""
    table = OpenTransactions(0, 0, open_max=2)
    for at in range(2):
        table.half(Open(at, at, 0, at))
    assert table.is_full
    table.op(0, [0])
    assert not table.is_full


def test_transaction_when_renewed_then_an_end_of_either_ends_both() -> None:
    """The producer may answer the question, or send its late 37."""
    for named in (0, 1):
        table = OpenTransactions(0, 0, open_max=9)
        table.half(Open(0, 0, 0, 0))
        table.half(Open(1, 100, 0, first=0))
        assert sorted(table.to_end(named, 0)) == [0, 1]
        table.answered([0, 1])
        assert table.to_end(named, 0) == []
        assert table.to_ask(NOW, table.half_next, 9) == []


def test_transaction_when_an_older_question_is_answered_then_the_newest_half_message_ends() -> None:
    """A producer that needs longer than from one question to the next would never come to an end."""
    table = OpenTransactions(0, 0, open_max=9)
    for at in range(3):
        table.half(Open(at, at * 100, 0, first=0))
    table.op(0, [0])
    table.op(1, [1])
    assert table.to_end(1, 0) == [2]
    table.answered([2])
    assert table.to_end(1, 0) == table.to_end(2, 0) == table.to_end(0, 0) == []


def test_end_when_it_was_read_before_its_half_message_then_who_goes_on_reads_it_again() -> None:
    """By what was kept the half message has not been read, and its end would be passed over."""
    table = OpenTransactions(0, 0, open_max=9)
    table.half(Open(0, 0, 0, 0))
    table.op(0, [1])
    table.op(1, [0])
    assert table.kept() == (1, 0)
    table.half(Open(1, 100, 0, 1))
    assert table.kept() == (2, 2)


def test_transaction_when_renewed_twice_before_a_failover_then_one_end_ends_all() -> None:
    """A master that died between a renewed half message and the end of the one before leaves both open;
    each was committed, so consumers got the message twice."""
    table = OpenTransactions(0, 0, open_max=9)
    table.half(Open(0, 0, 0, 0))
    table.half(Open(1, 100, 0, first=0))
    table.half(Open(2, 200, 0, first=0))
    for named in (0, 1, 2):
        assert sorted(table.to_end(named, 0)) == [0, 1, 2]
    # The end of one that was renewed tells of no other.
    table.op(0, [2])
    assert sorted(table.to_end(0, 0)) == [0, 1]
    table.op(1, [1])
    assert table.to_end(0, 0) == [0]
    table.op(2, [0])
    assert table.to_end(0, 0) == []


@pytest.mark.costly
def test_ended_transactions_behind_an_open_one_take_no_memory() -> None:
    """One half message that stays open for an hour held 18 million entries, 2.3 GB."""
    table = OpenTransactions(0, 0, open_max=9)
    table.half(Open(0, 0, 0, 0))
    count = 20 * OP_BLOCKS_MAX
    for at in range(1, count):
        table.half(Open(at, at, 0, at))
        table.op(at - 1, [at])
        assert len(table._ops) <= OP_BLOCKS_MAX
    assert table.kept() == (0, 0)
    table.op(count - 1, [0])
    assert table.kept() == (count, count)


@settings(max_examples=100, deadline=None)
@given(seed=st.integers(0, 1 << 32))
def test_joined_blocks_of_ops_forget_no_end(seed: int) -> None:
    """Who goes on from what was kept must meet every op message of a half message it reads."""
    dice = random.Random(seed)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rmqha.broker.deferred.open_transactions.OP_BLOCKS_MAX", dice.randint(1, 5))
        table, log, open_now = OpenTransactions(0, 0, open_max=1_000), [], list(range(60))
        for at in open_now:
            table.half(Open(at, at, 0, at))
        while open_now:
            # Mostly the oldest, as in life.
            place = 0 if dice.random() < 0.5 else dice.randrange(len(open_now))
            log.append([open_now.pop(place)])
            table.op(len(log) - 1, log[-1])
            half, op = table.kept()
            assert half == (open_now[0] if open_now else 60)
            assert all(max(one) < half for one in log[:op])


# -- retries, topics


@pytest.mark.parametrize(
    ("times", "most", "level", "dead"),
    [(0, 16, 0, False), (15, 16, 0, False), (16, 16, 0, True), (0, 16, -1, True), (0, 0, 0, True)],
)
def test_returned_message_when_too_often_or_given_up_then_dead(
    times: int, most: int, level: int, dead: bool
) -> None:
    """The client's maximum counts from 3.4.9 on, else the group's."""
    assert goes_to_dead_letters(times, most, level) is dead
    assert reconsume_max(16, 3, 121) == 3
    assert reconsume_max(16, 3, 120) == reconsume_max(16, None, 500) == 16


@pytest.mark.parametrize(
    ("text", "result"),
    [
        ("", {}),
        ("+a=b", {"+a": "b"}),
        ("+a=b,-c", {"+a": "b", "-c": ""}),
        ("a=b", None),
        ("+a", None),
        ("-a=b", None),
        ("+=b", None),
        ("+a=b,,", None),
    ],
)
def test_attributes_when_parsed_then_signs_and_values(
    text: str, result: dict[str, str] | None
) -> None:
    """The little language of updateTopic -a."""
    found = parse_attributes(text)
    assert found == result if result is not None else isinstance(found, Refusal)


@pytest.mark.parametrize(
    ("old", "change", "result"),
    [
        (None, {"+message.type": "FIFO"}, {"message.type": "FIFO"}),
        (None, {"-message.type": ""}, None),
        (None, {"+message.type": "NONSENSE"}, None),
        (None, {"+color": "red"}, None),
        ({"message.type": "FIFO"}, {"+message.type": "DELAY"}, {"message.type": "DELAY"}),
        ({"message.type": "FIFO"}, {"-message.type": ""}, {}),
        ({}, {"-message.type": ""}, None),
        ({"queue.type": "BatchCQ"}, {"+queue.type": "SimpleCQ"}, None),
        ({}, {"+reserve.time": "-1"}, {"reserve.time": "-1"}),
        ({}, {"+reserve.time": "-2"}, None),
    ],
)
def test_attributes_when_altered_then_java_s_rules(
    old: dict[str, str] | None, change: dict[str, str], result: dict[str, str] | None
) -> None:
    """Some may never change; none is made up."""
    found = alter_attributes(old, change)
    assert found == result if result is not None else isinstance(found, Refusal)


@pytest.mark.parametrize("promise", ["queue.type=BatchCQ", "cleanup.policy=COMPACTION"])
def test_topic_when_it_would_promise_what_nobody_keeps_then_it_is_refused(promise: str) -> None:
    """17 and 18 answered success, and batches were stored singly and old values not compacted."""
    name, _, value = promise.partition("=")
    refused = checked_topic(TopicConfig("T", 4, 4, attributes={"+" + name: value}), None)
    assert refused == Refusal(1, f"this broker does not serve {promise}")
    # One of a Java broker's can still be changed otherwise.
    old = TopicConfig("T", 4, 4, attributes={name: value})
    changed = checked_topic(TopicConfig("T", 8, 8, attributes={"+message.type": "FIFO"}), old)
    assert isinstance(changed, TopicConfig)
    assert changed.attributes == {name: value, "message.type": "FIFO"}


def asked(**changes: str) -> dict[str, str]:
    """The fields of 17 as mqadmin sends them."""
    return {
        "topic": "T", "defaultTopic": "TBW102", "readQueueNums": "4", "writeQueueNums": "4",
        "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
        "attributes": "", **changes,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"topic": ""}, 29),
        ({"topic": "a b"}, 29),
        ({"topic": "x" * 128}, 29),
        ({"topic": "TBW102"}, 29),
        ({"topic": "rmq_sys_wheel_timer"}, 29),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, 29),
        ({"topic": "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC"}, 29),
        ({"attributes": "+message.type=LITE"}, 1),
        ({"writeQueueNums": "0"}, 29),
        ({"readQueueNums": "70000"}, 29),
        ({"perm": "99"}, 29),
        ({"attributes": "x"}, 1),
        ({"attributes": "+queue.type=Other"}, 1),
    ],
)
def test_topic_when_illegal_then_java_s_code(changes: dict[str, str], code: int) -> None:
    """17 must leave the table as it is."""
    refusal = parse_topic(asked(**changes), lambda _: None, is_system_topic)
    assert isinstance(refusal, Refusal)
    assert refusal.code == code


def test_topic_when_altered_then_its_other_attributes_stay() -> None:
    """updateTopic names what changes only."""
    old = TopicConfig("T", attributes={"message.type": "FIFO", "reserve.time": "5"})
    topic = parse_topic(asked(attributes="+reserve.time=9"), lambda _: old, is_system_topic)
    assert isinstance(topic, TopicConfig)
    assert topic.attributes == {"message.type": "FIFO", "reserve.time": "9"}
    assert (topic.read_queue_nums, topic.perm) == (4, 6)


def test_topic_when_its_messages_have_priorities_then_it_says_so() -> None:
    """Pops of it begin with the most urgent."""
    wanted = asked(attributes="+message.type=PRIORITY")
    topic = parse_topic(wanted, lambda _: None, is_system_topic)
    assert isinstance(topic, TopicConfig)
    assert has_priorities(topic)


@pytest.mark.parametrize("body", [b"", b"[]", b'{"topicConfigList":3}', b'{"topicConfigList":[1]}'])
def test_topics_when_the_list_is_garbage_then_refused(body: bytes) -> None:
    """18 is all or none."""
    with pytest.raises(RemoteProtocolError):
        parse_topics(body, lambda _: None, is_system_topic)
