"""The quick way of ordinary messages: the same records and answers as the long way gives."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from rmqha.base.errors import HeaderMalformed
from rmqha.broker.send.plain_request import PlainSend, decode_message
from rmqha.broker.send.request import parse_any_send
from rmqha.remoting.codec_json import decode_command
from tests.broker.replicas import TOPIC, ReplicaCluster, send_fields

KEY = "7F0000012BDB512DDF17%012X"
SINGLES: dict[str, list[str]] = {
    "b": ["other", "%RETRY%g", "SCHEDULE_TOPIC_XXXX", "bad topic", "", "ordered"],
    "e": ["0", "1", "01", "-1", "7", "99", "x", "٣", "+1"],
    "f": ["1", "2", "3", "4", "8", "16", "128", "257", "4096", "x", "-1", "00"],
    "g": ["x", "", "-5", "9" * 18, "9" * 19, "1_0", "٣"],
    "h": ["7", "x", "00"],
    "j": ["1", "x", ""],
    "k": ["true"],
    "l": ["3", "x"],
    "m": ["true", "TRUE", ""],
    "i": [
        "", "UNIQ_KEY\x01\x02", "UNIQ_KEY\x01a%b\x02", "UNIQ_KEY\x01ä\x02", "XUNIQ_KEY\x01a\x02",
        "UNIQ_KEY\x01a", "UNIQ_KEY\x01a\x02UNIQ_KEY\x01b\x02", 'UNIQ_KEY\x01a"\x02',
        "UNIQ_KEY\x01a\x02WAIT\x01false\x02", "UNIQ_KEY\x01a\x02WAIT\x01true", "A\x01b\x02UNIQ_KEY\x01c",
        "UNIQ_KEY\x01a\x02DELAY\x011\x02", "UNIQ_KEY\x01a\x02TIMER_DELAY_SEC\x011\x02",
        "UNIQ_KEY\x01a\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02", "UNIQ_KEY\x01a\x02POP_CK\x01x y\x02",
        "UNIQ_KEY\x01a\x02INNER_NUM\x012\x02", "TAGS\x01t\x02KEYS\x01k %s\x02UNIQ_KEY\x01a\x02A\x01ß",
        "UNIQ_KEY\x01a\x02B\x01" + "b" * 32_700, "UNIQ_KEY\x01a\x02B\x01" + "b" * 40_000,
        *(f"UNIQ_KEY\x01{'a' * size}\x02WAIT\x01true" for size in (32_600, 32_700, 40_000)),
    ],
}  # fmt: skip


def _messages() -> list[tuple[dict[str, str], bytes]]:
    """Ordinary ones, each unusual value in one that is ordinary otherwise, and mixtures."""
    rng, made = random.Random(3), []
    every = [(name, value) for name, values in SINGLES.items() for value in values]
    chosen: list[list[tuple[str, str]]] = [*([] for _ in range(40)), *([one] for one in every), []]
    chosen += [rng.sample(every, 3) for _ in range(60)]
    for number, changes in enumerate(chosen):
        fields = {**send_fields(number), "i": f"UNIQ_KEY\x01{KEY % number}\x02WAIT\x01true"}
        made.append(({**fields, **dict(changes)}, b"body-%d" % number))
    ordinary = made[0][0]
    bodies = b"", b"x" * 65_536, b"x" * 65_537, b"x" * (4 << 20), b"x" * ((4 << 20) + 1)
    return [*made, *((ordinary, body) for body in bodies)]


Answers = list[tuple[int, str | None, dict[str, str] | None]]


def _send_all(*, quick: bool, together: bool, **keys: object) -> tuple[Answers, bytes, list[int]]:
    """All answers, the log, and how many messages took the quick way at a time."""
    with ReplicaCluster(seed=9, replicas=1, **keys) as cluster:
        cluster.boot_all()
        master = cluster.master()
        assert master is not None
        plain: Any = master._send.sends._plain
        plain._usable = quick
        taken, write = [], plain.write_all

        def counted(*those: Any) -> Any:
            written = write(*those)
            taken.append(len(written))
            return written

        plain.write_all = counted
        address, messages = master.config.address, _messages()
        if together:
            found = cluster.ask_together(address, 310, messages)
        else:
            found = [cluster.ask(address, 310, *one) for one in messages]
        answers = [(one.code, one.remark, one.ext_fields) for one in found]
        segments = master.store.commit_log.segments()
        return answers, b"".join(bytes(one.buffer) for one in segments), taken


@pytest.mark.slow
@pytest.mark.parametrize("together", [False, True], ids=["one by one", "together"])
@pytest.mark.parametrize(
    "keys",
    [
        {"regionId": "a%d/QUEUE/"},
        {"flushDiskType": "SYNC_FLUSH", "allAckInSyncStateSet": "true", "brokerPermission": 4},
        {"mappedFileSizeCommitLog": 16 << 10},
        {"sendsInFlightMax": 30, "allAckInSyncStateSet": "true"},
    ],
    ids=["at once", "waiting", "small files", "few may wait"],
)
def test_messages_when_sent_the_quick_way_then_as_the_long_way(
    keys: dict[str, object], together: bool
) -> None:
    """Byte by byte, with all that producers may get wrong."""
    answers, log, taken = _send_all(quick=True, together=together, **keys)
    expected, expected_log, none = _send_all(quick=False, together=together, **keys)
    assert [one for one in answers if one[0] == 0]
    assert answers == expected
    assert log == expected_log
    assert not any(none)
    assert sum(taken) > 5
    assert max(taken) > 4 if together else max(taken) == 1


TEXTS = st.text(max_size=6)
FIELDS = st.fixed_dictionaries(
    dict.fromkeys("bcdefgh", TEXTS),
    optional=dict.fromkeys("aijklmn", TEXTS),
)
ODD: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(), st.lists(st.integers(), max_size=2)
)


@pytest.mark.slow
@settings(max_examples=120)
@given(
    fields=FIELDS,
    odd=st.dictionaries(st.sampled_from(list("abcdefghijklmn")), ODD, max_size=2),
    head=st.dictionaries(
        st.sampled_from(["opaque", "flag", "version", "remark", "language", "extFields"]),
        st.one_of(st.integers(-(1 << 33), 1 << 33), ODD), max_size=3,
    ),
    missing=st.sets(st.sampled_from(list("bcdefgh")), max_size=1),
)  # fmt: skip
def test_header_when_read_in_one_go_then_as_all_headers_are(
    fields: dict[str, str], odd: dict[str, Any], head: dict[str, Any], missing: set[str]
) -> None:
    """Whatever is in it: the same fields, or the same error."""
    members = {name: value for name, value in {**fields, **odd}.items() if name not in missing}
    header = json.dumps({"code": 310, "extFields": members, **head}, separators=(",", ":")).encode()
    try:
        expected = decode_command(header, b"x")
    except HeaderMalformed:
        with pytest.raises(HeaderMalformed):
            decode_message(header, b"x")
        return
    found = decode_message(header, b"x")
    if isinstance(found, PlainSend):
        found.general()
    same = ("code", "opaque", "flag", "version", "body", "serialize_type")
    assert [getattr(found, name) for name in same] == [getattr(expected, name) for name in same]
    assert parse_any_send(310, found.ext_fields) == parse_any_send(310, expected.ext_fields)


@pytest.mark.slow
def test_topic_when_changed_then_the_next_message_goes_by_what_it_is_now() -> None:
    """What is kept of a topic holds for one configuration only."""
    with ReplicaCluster(seed=9, replicas=1) as cluster:
        cluster.boot_all()
        master = cluster.master()
        assert master is not None
        number, codes = 0, []
        for queues in (4, 2, 4):
            create = {
                "topic": TOPIC, "defaultTopic": "TBW102", "readQueueNums": str(queues),
                "writeQueueNums": str(queues), "perm": "6", "topicFilterType": "SINGLE_TAG",
                "topicSysFlag": "0", "order": "false",
            }  # fmt: skip
            assert cluster.ask(master.config.address, 17, create).code == 0
            for queue in ("1", "3"):
                number += 1
                pairs = f"UNIQ_KEY\x01{KEY % number}\x02"
                fields = {**send_fields(number), "e": queue, "i": pairs}
                answer = cluster.ask(master.config.address, 310, fields, b"x")
                codes.append(answer.code)
        assert codes == [0, 0, 0, 29, 0, 0]


@pytest.mark.costly
@pytest.mark.parametrize("flush", ["ASYNC_FLUSH", "SYNC_FLUSH"])
def test_sends_when_they_wait_then_all_are_answered_without_a_task_each(flush: str) -> None:
    """Thousands may wait while a slave is slow."""
    with ReplicaCluster(seed=9, allAckInSyncStateSet="true", flushDiskType=flush) as cluster:
        cluster.boot_all()
        cluster.until(cluster.in_sync, "SyncStateSet of three")
        master = cluster.master()
        assert master is not None
        waited, started = [], []
        add, start = master._send.sends._waiting.add, master.tasks.start

        def counted_add(one: Any) -> None:
            add(one)
            waited.append(len(master._send.sends._waiting))

        def counted_start(work: Any, *, name: str) -> Any:
            started.append(name)
            return start(work, name=name)

        master._send.sends._waiting.add = counted_add  # type: ignore[method-assign]
        master.tasks.start = counted_start  # type: ignore[method-assign]
        cluster.send_without_waiting(50)
        cluster.run_for(1_000)
        assert len(waited) == 50
        assert max(waited) > 20
        assert not master._send.sends.waiting_count
        assert master.store.confirm_offset == master.store.max_offset
        # The others are heartbeats, and questions to a controller.
        sends = [name for name in started if not name.startswith(("beat ", "ask "))]
        assert len(sends) <= (5 if flush == "SYNC_FLUSH" else 0)
