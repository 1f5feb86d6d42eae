"""The commands of a cluster against captured Java answers, and where they are not like Java's."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Any

import pytest

from rmqha.admin.messages import decode_messages, parse_offset_id
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Call, NotFound, Refused, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.store import record
from tests.admin.driving import by_code, run, usage_error

SERVERS = "-n ns:1"
BROKER = "10.0.0.1:10911"
RESET_ONE = f"resetOffsetByTime -g G -t T -s 0 -b {BROKER} -q 1"
QUEUE_1 = b'{"brokerName":"a","queueId":1,"topic":"T"}'
ENDS_1 = b'{"offsetTable":{%s:{"minOffset":%%d,"maxOffset":%%d}}}' % QUEUE_1


def reply(
    code: int = 0, body: Any = b"", remark: str = "", **fields: object
) -> Callable[[Call], RemotingCommand]:
    """An answer for the script."""
    raw = body if isinstance(body, bytes) else fastjson.dumps(body)
    ext = {name: str(value) for name, value in fields.items()}
    return lambda call: call.command.reply(code, remark, ext, raw)


def cluster(*names: str) -> Callable[[Call], RemotingCommand]:
    """106: sets of one broker each, at ``<name>:1``."""
    table = {
        name: {"brokerAddrs": {"0": f"{name}:1"}, "brokerName": name, "cluster": "C"}
        for name in names
    }
    return reply(0, {"brokerAddrTable": table, "clusterAddrTable": {"C": list(names)}})


def route(*names: str, perm: int = 6, queues: int = 2) -> Callable[[Call], RemotingCommand]:
    """105: sets of one broker each, at ``<name>:1``."""
    groups = [
        {"brokerAddrs": {"0": f"{name}:1"}, "brokerName": name, "cluster": "C"} for name in names
    ]
    rows = [
        {"brokerName": name, "perm": perm, "readQueueNums": queues, "writeQueueNums": queues,
         "topicSysFlag": 0}
        for name in names
    ]  # fmt: skip
    return reply(0, {"brokerDatas": groups, "queueDatas": rows, "filterServerTable": {}})


def stored(
    body: bytes, *, queue: int = 0, offset: int = 0, flag: int = 0, properties: bytes = b"",
) -> bytes:  # fmt: skip
    """A record as brokers hand it out."""
    host = record.pack_host("10.0.0.1", 10911)
    message = record.Message("T", queue, body, properties, 1000, host, host, sys_flag=flag)
    size = record.encoded_size(message, property_crc=False)
    buffer = bytearray(size)
    record.encode_into(
        buffer, 0, message, size=size, queue_offset=offset, physical_offset=500 + offset,
        store_timestamp=2000,
    )  # fmt: skip
    return bytes(buffer)


# -- one that is down hides no other ---------------------------------------------------------------


def test_cluster_list_when_a_broker_is_down_then_it_stays_in_the_list() -> None:
    """The list is looked at because something is down."""

    def runtime(call: Call) -> RemotingCommand:
        if call.address == "a:1":
            raise Unreachable("a:1 is down")
        return call.command.reply(0, body=b'{"table":{"brokerVersionDesc":"V5_3_3"}}')

    report, _ = run(f"clusterList {SERVERS}", by_code({106: cluster("a", "b"), 28: runtime}))
    rows = [line.split() for line in report.plain.splitlines()[1:]]
    assert [row[1] for row in rows] == ["a", "b"]
    assert rows[1][4] == "V5_3_3"
    assert [type(failure) for failure in report.failures] == [Unreachable]


@pytest.mark.parametrize(
    "line",
    ["updateTopic -c C -t T", "updateSubGroup -c C -g G", "updateBrokerConfig -c C -k k -v v",
     "brokerStatus -c C", "getBrokerConfig -c C", "haStatus -c C"],
)  # fmt: skip
def test_cluster_wide_when_one_broker_refuses_then_the_others_are_done_and_told(line: str) -> None:
    """The Java tool stops at the first, and nobody knows where it was."""

    def answer(call: Call) -> RemotingCommand:
        if call.command.code == 106:
            return cluster("a", "b")(call)
        if call.address == "a:1":
            return call.command.reply(16, "no")
        return call.command.reply(0, body=b"{}" if call.command.code in {28, 907} else b"")

    report, calls = run(f"{line} {SERVERS}", answer)
    assert [call.address for call in calls if call.command.code != 106] == ["a:1", "b:1"]
    assert [str(failure).split(":")[0] for failure in report.failures] == ["a"]


def test_delete_topic_when_a_broker_keeps_it_then_name_servers_are_not_asked() -> None:
    """They would be told of it again at once, by that broker."""
    table = {106: cluster("a"), 215: reply(1, remark="busy"), 216: reply()}
    report, calls = run(f"deleteTopic {SERVERS} -t T -c C", by_code(table))
    assert [106, 215] == [call.command.code for call in calls]
    assert ("", 1) == (report.plain, len(report.failures))


def test_unknown_cluster_when_named_then_nothing_is_changed() -> None:
    """The Java tool prints an error and goes on: it deletes the topic at the name servers."""
    for line in ("deleteTopic -t T -c X", "updateTopic -t T -c X", "updateSubGroup -g G -c X",
                 "updateBrokerConfig -k k -v v -c X", "clusterList -c X", "brokerStatus -c X"):  # fmt: skip
        with pytest.raises(NotFound, match="X"):
            run(f"{line} {SERVERS}", by_code({106: cluster("a")}))


# -- ids and messages --------------------------------------------------------------------------------


def test_by_id_when_the_producers_id_looks_like_a_place_then_nobody_strange_is_dialled() -> None:
    """Every 5.x id has the form of an address; the Java tool waits for a connection to it."""
    table = {105: route("a"), 12: reply(22), 106: cluster("a")}
    with pytest.raises(NotFound, match="no message"):
        run(f"queryMsgById {SERVERS} -t T -i {'0123456789ABCDEF' * 2}", by_code(table))


def test_by_id_when_it_is_a_place_of_a_broker_then_that_broker_is_asked() -> None:
    """An offset id has no index entry."""
    host = record.pack_host("10.0.0.1", 10911)
    table = {
        105: reply(17), 33: reply(0, stored(b"x")),
        106: reply(0, {"brokerAddrTable": {"a": {"brokerAddrs": {"0": BROKER}}}}),
    }  # fmt: skip
    place = record.message_id(host, 500)
    assert parse_offset_id(place) == (BROKER, 500)
    line = f"queryMsgById {SERVERS} -t T -i {place}"
    report, calls = run(line, by_code(table))
    assert [call.address for call in calls if call.command.code == 33] == [BROKER]
    assert report.data[0]["offsetMsgId"] == place
    # Who consumes it could not be asked: the message is shown, and the exit code tells.
    assert [failure.code for failure in report.failures if isinstance(failure, Refused)] == [17]
    table[33] = reply(1, remark="can not find message by the offset")
    with pytest.raises(Refused, match="can not find"):
        run(line, by_code(table))


def test_body_file_when_the_id_is_a_path_then_it_is_named_by_the_place() -> None:
    """The producer chooses the id; the Java tool would write wherever it says."""
    properties = b"UNIQ_KEY\x01../../etc/passwd\x02"
    (message,) = decode_messages(stored(b"x", properties=properties))
    assert message.message_id == "../../etc/passwd"
    assert message.body_path == f"/tmp/rocketmq/msgbodys/{message.offset_message_id}"


def test_body_when_compressed_then_it_is_shown_plain_and_bombs_are_not() -> None:
    """zlib is what Java clients use unless told otherwise; the flag goes with the compression."""
    (message,) = decode_messages(stored(zlib.compress(b"abc" * 2000), flag=record.COMPRESSED))
    assert (message.body, message.sys_flag) == (b"abc" * 2000, 0)
    (broken,) = decode_messages(stored(b"no zlib", flag=record.COMPRESSED))
    assert broken.body == b"no zlib"
    (unknown,) = decode_messages(stored(b"what", flag=record.COMPRESSED | 0x400))
    assert (unknown.body, unknown.sys_flag) == (b"what", record.COMPRESSED | 0x400)
    assert "bodyBase64" in decode_messages(stored(b"\xff"))[0].data()


@pytest.mark.parametrize("cut", [1, 50, 100])
def test_message_when_it_is_cut_off_then_a_protocol_error(cut: int) -> None:
    """Not a traceback, nor half a message."""
    whole = stored(b"body" * 10)
    with pytest.raises(RemoteProtocolError):
        decode_messages(whole + whole[:cut])


def test_by_offset_when_there_is_none_then_an_error_says_where_to_look() -> None:
    """The Java tool prints nothing at all."""
    table = {105: route("a"), 11: reply(21, nextBeginOffset=7)}
    with pytest.raises(NotFound, match="next is 7"):
        run(f"queryMsgByOffset {SERVERS} -t T -b a -i 0 -o 99", by_code(table))
    with pytest.raises(NotFound, match="no broker set b"):
        run(f"queryMsgByOffset {SERVERS} -t T -b b -i 0 -o 0", by_code(table))
    with pytest.raises(NotFound, match="key"):
        run(f"queryMsgByKey {SERVERS} -t T -k x", by_code({105: route("a"), 12: reply(22)}))


def test_by_key_when_only_the_hash_is_equal_then_left_out() -> None:
    """The index knows hashes."""
    body = stored(b"1", properties=b"KEYS\x01Aa other\x02") + stored(
        b"2", offset=1, properties=b"KEYS\x01BB\x02"
    )
    report, _ = run(
        f"queryMsgByKey {SERVERS} -t T -k Aa", by_code({105: route("a"), 12: reply(0, body)})
    )
    assert [one["body"] for one in report.data] == ["1"]


def test_pushed_when_group_and_client_are_given_then_the_consumers_word_is_shown() -> None:
    """309, through the broker that has the message."""
    result = {
        "order": False,
        "autoCommit": True,
        "consumeResult": "CR_SUCCESS",
        "spentTimeMills": 3,
    }
    unique = "A" * 32
    found = stored(b"x", properties=f"UNIQ_KEY\x01{unique}\x02".encode())
    table = {105: route("a"), 12: reply(0, found), 309: reply(0, result)}
    report, calls = run(f"queryMsgById {SERVERS} -t T -i {unique} -g G -d c", by_code(table))
    assert (
        "ConsumeMessageDirectlyResult [order=false, autoCommit=true, consumeResult=CR_SUCCESS, "
        "remark=null, spentTimeMills=3]\n"
    ) == report.plain
    assert (calls[-1].address, calls[-1].command.ext_fields["clientId"]) == (BROKER, "c")  # type: ignore[index]


def test_resent_when_asked_then_as_a_new_message_with_its_properties() -> None:
    """Also what the producer had put there; only the id is another."""
    unique = "B" * 32
    found = stored(b"x", properties=f"KEYS\x01k\x02UNIQ_KEY\x01{unique}\x02mine\x011\x02".encode())
    table = {105: route("a"), 12: reply(0, found), 310: reply(queueId=1, queueOffset=9)}
    report, calls = run(f"queryMsgById {SERVERS} -t T -i {unique} -s true", by_code(table))
    fields = calls[-1].command.ext_fields or {}
    assert (fields["a"], calls[-1].command.body) == ("ReSendMsgById", b"x")
    assert "mine\x011\x02" in fields["i"]
    assert unique not in fields["i"]
    assert report.data[0]["originalMsgId"] == unique
    assert "SEND_OK" in report.plain
    shown, calls = run(
        f"queryMsgById {SERVERS} -t T -i {unique} -s false",
        by_code({**table, 300: reply(0, {"groupList": []})}),
    )
    assert 310 not in [call.command.code for call in calls]
    assert "WARN: No Consumer" in shown.plain


# -- sending and consuming ---------------------------------------------------------------------------


def test_send_when_a_set_is_given_without_a_queue_then_it_goes_there() -> None:
    """The Java tool forgets the set then, and sends anywhere."""
    table = {105: route("a", "b"), 310: reply(msgId="X", queueId=1, queueOffset=4)}
    report, calls = run(f"sendMessage {SERVERS} -t T -p hello -b b -k k -c t", by_code(table))
    call = calls[-1]
    assert call.address == "b:1"
    fields = call.command.ext_fields or {}
    assert (fields["b"], fields["n"], call.command.body) == ("T", "b", b"hello")
    assert "KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01" in fields["i"]
    assert (report.data["sendStatus"], report.data["queueOffset"]) == ("SEND_OK", 4)
    assert report.data["msgId"] in fields["i"]


@pytest.mark.parametrize(
    ("code", "status"),
    [(10, "FLUSH_DISK_TIMEOUT"), (11, "SLAVE_NOT_AVAILABLE"), (12, "FLUSH_SLAVE_TIMEOUT")],
)
def test_send_when_stored_but_not_safe_then_the_status_says_so(code: int, status: str) -> None:
    """The message is there and may be lost: neither success nor failure."""
    report, _ = run(
        f"sendMessage {SERVERS} -t T -p x", by_code({105: route("a"), 310: reply(code, queueId=0)})
    )
    assert status in report.plain


def test_send_when_nobody_has_the_topic_then_by_the_template_or_an_error() -> None:
    """As producers do; without TBW102 it is the topic that is missing."""

    def only_template(call: Call) -> RemotingCommand:
        wanted = (call.command.ext_fields or {})["topic"]
        return route("a", perm=7, queues=8)(call) if wanted == "TBW102" else reply(17)(call)

    line = f"sendMessage {SERVERS} -t New -p x"
    _, calls = run(line, by_code({105: only_template, 310: reply(queueId=0)}))
    fields = calls[-1].command.ext_fields or {}
    assert (fields["b"], fields["c"], int(fields["e"]) < 4) == ("New", "TBW102", True)
    with pytest.raises(Refused, match="17"):
        run(line, by_code({105: reply(17)}))
    with pytest.raises(NotFound, match="writes"):
        run(line, by_code({105: route("a", perm=4)}))
    with pytest.raises(Refused, match="16"):
        run(line, by_code({105: route("a"), 310: reply(16)}))


def test_consume_when_a_count_is_given_then_exactly_so_many_over_all_queues() -> None:
    """The Java tool loses one a queue, and then asks for -1."""

    def pulled(call: Call) -> RemotingCommand:
        fields = call.command.ext_fields or {}
        start, count = int(fields["queueOffset"]), int(fields["maxMsgNums"])
        queue = int(fields["queueId"])
        if start >= 4:
            return reply(19, nextBeginOffset=4)(call)
        end = min(4, start + count)
        body = b"".join(stored(b"m", queue=queue, offset=at) for at in range(start, end))
        return reply(0, body, nextBeginOffset=end, minOffset=0, maxOffset=4)(call)

    table = {105: route("a", queues=3), 31: reply(offset=0), 30: reply(offset=4), 11: pulled}
    report, _ = run(f"consumeMessage {SERVERS} -t T -c 6", by_code(table))
    assert [(one["queueId"], one["queueOffset"]) for one in report.data] == [
        (0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1),
    ]  # fmt: skip
    assert "The older 2 message of the 1 queue will be provided\n" in report.plain
    beyond, _ = run(f"consumeMessage {SERVERS} -t T -b a -i 0 -o 9", by_code(table))
    assert "no matched msg, offset=9" in beyond.plain


def test_consume_when_a_broker_sends_it_back_then_it_ends() -> None:
    """A next offset that does not advance would be asked for ever."""
    table = {
        105: route("a"), 31: reply(offset=0), 30: reply(offset=4), 11: reply(20, nextBeginOffset=0),
    }  # fmt: skip
    report, calls = run(f"consumeMessage {SERVERS} -t T -b a -i 0", by_code(table))
    assert [105, 31, 30, 11] == [call.command.code for call in calls]
    assert "NO_MATCHED_MSG" in report.plain


# -- offsets -----------------------------------------------------------------------------------------


def set_to(offset: int, queue: bytes = QUEUE_1) -> bytes:
    """222's body of one queue."""
    return b'{"offsetTable":{%s:%d}}' % (queue, offset)


def test_reset_when_one_queue_goes_to_zero_then_it_is_committed() -> None:
    """The Java tool prints it and does nothing: it takes 0 for "not found"."""
    table = {29: reply(offset=0), 202: reply(0, ENDS_1 % (0, 5)), 222: reply(0, set_to(0))}
    report, calls = run(RESET_ONE, by_code(table))
    assert [29, 202, 222] == [call.command.code for call in calls]
    assert (calls[2].command.ext_fields or {})["offset"] == "0"
    assert report.plain.endswith("reset consumer offset to 0\n")


def test_reset_when_the_broker_does_not_set_one_queue_then_nothing_is_changed() -> None:
    """15 is taken for whatever offset and queue: sent first, it moved what was refused then."""
    table = {202: reply(0, ENDS_1 % (0, 99)), 222: reply(29, remark="not in it any more")}
    with pytest.raises(Refused, match="not in it any more"):
        run(f"{RESET_ONE} -o 99", by_code(table))


@pytest.mark.parametrize(
    ("offset", "queue", "words"),
    [(5, 1, None), (2, 1, None), (6, 1, "offset 6 is not in queue 1: 2 to 5"),
     (1, 1, "offset 1 is not in queue 1: 2 to 5"),
     (3, 77, f"{BROKER} has no queue 77 of T")],
)  # fmt: skip
def test_reset_when_one_queue_needs_a_member_then_its_offset_is_stored_if_it_can_be(
    offset: int, queue: int, words: str | None
) -> None:
    """206 of brokers before 5.2. Others as well take queues and offsets that they do not have."""
    table = {222: reply(206, remark="not online"), 202: reply(0, ENDS_1 % (2, 5)), 15: reply()}
    line = f"resetOffsetByTime -g G -t T -s 0 -b {BROKER} -q {queue} -o {offset}"
    if words is not None:
        del table[15], table[222]
        with pytest.raises(NotFound, match=words):
            run(line, by_code(table))
        return
    _, calls = run(line, by_code(table))
    assert [202, 222, 15] == [call.command.code for call in calls]
    assert (calls[2].command.ext_fields or {})["commitOffset"] == str(offset)


@pytest.mark.parametrize(
    ("stored", "after", "codes"),
    [
        (2, 2, [29, 202, 14]),
        (3, 3, [29, 202, 14]),
        (4, 4, [29, 202, 14, 222]),
        (7, 4, [29, 202, 14, 222]),
        (None, 4, [29, 202, 14, 222]),
    ],
)
def test_reset_when_one_queue_may_only_go_back_then_it_does_not_go_on(
    stored: int | None, after: int, codes: list[int]
) -> None:
    """Neither Java's tool nor a broker looks at -f where one queue is meant."""
    was = reply(22) if stored is None else reply(offset=stored)
    table = {
        29: reply(offset=4), 202: reply(0, ENDS_1 % (0, 5)), 14: was, 222: reply(0, set_to(4)),
    }  # fmt: skip
    report, calls = run(f"{RESET_ONE} -f false", by_code(table))
    assert codes == [call.command.code for call in calls]
    assert report.data["queues"][0]["offset"] == after
    assert (calls[2].command.ext_fields or {})["setZeroIfNotFound"] == "false"


def test_reset_when_where_the_group_is_cannot_be_told_then_nothing_is_changed() -> None:
    table = {
        29: reply(offset=4), 202: reply(0, ENDS_1 % (0, 5)), 14: reply(1, remark="broken"),
    }  # fmt: skip
    with pytest.raises(Refused, match="broken"):
        run(f"{RESET_ONE} -f false", by_code(table))


def test_reset_when_the_topic_is_static_then_all_requests_mean_the_brokers_own_queue() -> None:
    """222 has always; 29 and 15 name logical queues else, and two queues were moved."""
    table = {
        29: reply(offset=4), 14: reply(offset=5), 222: reply(206), 202: reply(0, ENDS_1 % (0, 5)),
        15: reply(),
    }  # fmt: skip
    _, calls = run(f"{RESET_ONE} -f false", by_code(table))
    assert {
        call.command.code for call in calls if (call.command.ext_fields or {}).get("lo") == "false"
    } == {29, 14, 15}


def test_reset_when_the_broker_wants_a_member_then_offsets_are_set_one_by_one() -> None:
    """206 of brokers before 5.2; without force a queue only goes back."""
    rows = b'{"offsetTable":{%s}}' % b",".join(
        b'{"brokerName":"a","queueId":%d,"topic":"%s"}:{"brokerOffset":9,"consumerOffset":%d}' % one
        for one in ((0, b"T", 8), (1, b"T", 2), (0, b"Other", 5))
    )
    table = {
        105: route("a"), 222: reply(206, remark="not online"), 208: reply(0, rows),
        29: reply(offset=4), 15: reply(),
    }  # fmt: skip
    report, calls = run(f"resetOffsetByTime {SERVERS} -g G -t T -s 1 -f false", by_code(table))
    commits = [c.command.ext_fields or {} for c in calls if c.command.code == 15]
    assert [(one["queueId"], one["commitOffset"]) for one in commits] == [("0", "4")]
    asked = [c.command.ext_fields or {} for c in calls if c.command.code == 29]
    assert [one["lo"] for one in asked] == ["false"] * 2, "of a static topic, as what is stored"
    assert [(one["queueId"], one["resetOffset"]) for one in report.data["queues"]] == [
        (0, 4), (1, 2),
    ]  # fmt: skip
    table[208] = reply(0, b'{"offsetTable":{}}')
    table[202] = reply(0, rows.replace(b"brokerOffset", b"maxOffset"))
    _, calls = run(f"resetOffsetByTime {SERVERS} -g G -t T -s 1", by_code(table))
    assert [105, 222, 208, 202] == [call.command.code for call in calls][:4]
    table[222] = reply(1, remark="broken")
    with pytest.raises(Refused, match="broken"):
        run(f"resetOffsetByTime {SERVERS} -g G -t T -s 1", by_code(table))


def test_progress_when_a_group_has_no_offsets_then_the_error_says_why() -> None:
    """Broadcasting groups keep them at home."""
    empty = reply(0, b'{"offsetTable":{}}')
    line = f"consumerProgress {SERVERS} -g G"
    with pytest.raises(NotFound, match="not online"):
        run(line, by_code({105: route("a"), 208: empty, 203: reply(206)}))
    online = {
        "connectionSet": [{"clientId": "c@1", "version": 479}],
        "messageModel": "BROADCASTING",
    }
    with pytest.raises(NotFound, match="broadcasting"):
        run(line, by_code({105: route("a"), 208: empty, 203: reply(0, online)}))
    with pytest.raises(Refused, match="17"):
        run(line, by_code({105: reply(17)}))


def test_progress_when_asked_for_clients_then_each_queue_has_its_own() -> None:
    """203 and 307; a queue that nobody holds has none."""
    row = b'{"brokerName":"a","queueId":%d,"topic":"T"}:{"brokerOffset":5,"consumerOffset":3}'
    stats = b'{"offsetTable":{%s,%s}}' % (row % 0, row % 1)
    held = b'{"mqTable":{{"brokerName":"a","queueId":0,"topic":"T"}:{}}}'
    online = {"connectionSet": [{"clientId": "10.1.1.1@9", "version": 479}]}
    table = {105: route("a"), 208: reply(0, stats), 203: reply(0, online), 307: reply(0, held)}
    report, _ = run(f"consumerProgress {SERVERS} -g G -s true", by_code(table))
    assert [one["clientIP"] for one in report.data["queues"]] == ["10.1.1.1", None]
    assert "N/A" in report.plain
    table[203] = reply(206)
    offline, _ = run(f"consumerProgress {SERVERS} -g G -s true", by_code(table))
    assert [one["clientIP"] for one in offline.data["queues"]] == [None, None]


@pytest.mark.parametrize(
    ("version", "shown"),
    [(515, "V5_5_1"), (479, "V5_3_3"), (409, "V4_9_8"), (399, "V4_9_3"), (317, "V4_5_2")],
)
def test_progress_of_all_when_members_are_of_several_releases_then_the_oldest(
    version: int, shown: str
) -> None:
    """It is what holds a group back."""
    online = {
        "connectionSet": [{"clientId": "a", "version": 515}, {"clientId": "b", "version": version}],
        "consumeType": "CONSUME_PASSIVELY", "messageModel": "CLUSTERING",
    }  # fmt: skip
    table = {
        206: reply(0, {"topicList": ["%RETRY%G", "T"]}), 105: route("a"), 203: reply(0, online),
        208: reply(0, b'{"offsetTable":{}}'),
    }  # fmt: skip
    report, _ = run(f"consumerProgress {SERVERS}", by_code(table))
    (group,) = report.data
    assert (group["group"], group["count"], group["version"]) == ("G", 2, shown)


def test_topics_by_cluster_when_a_broker_does_not_answer_then_the_topic_stays_listed() -> None:
    """Its consumers are unknown then, and the exit code tells."""
    table = {
        206: reply(0, {"topicList": ["T"]}), 105: route("a"), 106: cluster("a"),
        300: Unreachable("a:1 is down"),
    }  # fmt: skip
    report, _ = run(f"topicList -c {SERVERS}", by_code(table))
    assert report.data == [{"topic": "T", "clusterName": "C", "consumerGroups": []}]
    assert [type(failure) for failure in report.failures] == [Unreachable]


# -- ordered topics ----------------------------------------------------------------------------------


def test_ordered_topic_when_made_at_one_broker_then_the_others_stay_in_its_configuration() -> None:
    """100 replaces the whole value."""
    table = {
        106: cluster("a", "b"), 17: reply(), 101: reply(value="a:4;b:8"), 100: reply(),
    }  # fmt: skip
    line = f"updateTopic {SERVERS};ns:2 -b b:1 -t T -w 2 -o true"
    _, calls = run(line, by_code(table))
    written = [call for call in calls if call.command.code == 100]
    assert ["ns:1", "ns:2"] == [call.address for call in written]
    assert {(call.command.ext_fields or {})["value"] for call in written} == {"a:4;b:2"}
    table[101] = reply(22)
    _, calls = run(line, by_code(table))
    assert (calls[-1].command.ext_fields or {})["value"] == "b:2"
    with pytest.raises(NotFound, match="c:1"):
        run(f"updateTopic {SERVERS} -b c:1 -t T -o true", by_code(table))


def test_setting_when_it_is_so_already_then_it_is_not_shown_as_updated() -> None:
    """Who reads "Updated" of a key that is read at the start believes that it can be changed."""
    said = {"a:1": None, "b:1": "it is so already: nothing was changed"}
    answers = {106: cluster("a", "b"), 25: lambda call: call.command.reply(0, said[call.address])}
    report, _ = run(
        f"updateBrokerConfig {SERVERS} -c C -k minInSyncReplicas -v 1", by_code(answers)
    )
    updated, unchanged = report.tables
    assert (updated.title, updated.rows) == ("Updated", [("a:1", "minInSyncReplicas", "1")])
    assert (unchanged.title, [row[0] for row in unchanged.rows]) == ("Not changed", ["b:1"])
    assert (report.data["updated"], report.data["unchanged"]) == (["a:1"], ["b:1"])
    assert report.plain == (
        "update broker config success, a:1\nupdate broker config success, b:1\n"
    )


def test_consume_stats_when_the_broker_hangs_then_it_is_found_out_by_a_short_question() -> None:
    """The answer itself may take 50 s, and so long nobody knew what was wrong."""
    stats = {"consumeStatsList": [], "totalDiff": 0}
    _, calls = run("brokerConsumeStats -b b:1", by_code({28: reply(16), 317: reply(0, stats)}))
    assert [(call.command.code, call.timeout_ms) for call in calls] == [(28, 3_000), (317, 50_000)]
    with pytest.raises(Unreachable, match="in time"):
        run("brokerConsumeStats -b b:1", by_code({28: Unreachable("b:1 did not answer in time")}))


# -- usage -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        ("updateTopic -t T", "-b or a cluster"),
        ("updateTopic -t T -b a:1 -c C", "exclude"),
        ("updateTopic -t T -b a:1 -a x=1", "-a"),
        ("updateTopic -t T -b a:1 -a +x=1,+x=2", "twice"),
        ("updateTopic -t T -b a:1 -o maybe", "maybe"),
        ("updateTopic -t T -b a:1 -p 9", "9"),
        ("updateTopic -t T -b a:1;b:1", "one address"),
        ("updateSubGroup -g G -b a:1 -p {", "JSON"),
        ('updateSubGroup -g G -b a:1 -p {"type":"X"}', "type"),
        ('updateSubGroup -g G -b a:1 -p {"type":"CUSTOMIZED","customizedRetryPolicy":{"next":["a"]}}',
         "next"),
        ("updateBrokerConfig -b a:1 -k a=b -v c", "a=b"),
        ("consumerProgress -n a:1 -t T", "-g"),
        ("queryMsgById -n a:1 -t T -i X -g G", "-d"),
        ("queryMsgByKey -n a:1 -t T -k K -b 2 -e 1", "later"),
        ("queryMsgByOffset -n a:1 -t T -b b -i 0 -o -1", "-1"),
        ("queryMsgByOffset -n a:1 -t T -b b -i 0 -o 1 -f klingon", "klingon"),
        ("sendMessage -n a:1 -t T -p x -i 1", "-b"),
        ("sendMessage -n a:1 -t T -p x -m true", "traces"),
        ("consumeMessage -n a:1 -t T -i 1", "-b"),
        ("consumeMessage -n a:1 -t T -b b -o 1", "-i"),
        ("consumeMessage -n a:1 -t T -s yesterday", "yesterday"),
        ("consumeMessage -n a:1 -t T -s 9999999999999", "future"),
        ("consumeMessage -n a:1 -t T -s 5 -e 4", "later"),
        ("consumeMessage -n a:1 -t T -c 0", "0"),
        ("resetOffsetByTime -n a:1 -g G -t T -s soon", "soon"),
        ("resetOffsetByTime -n a:1 -g G -t T -s now -b a:1", "-q"),
        ("resetOffsetByTime -n a:1 -g G -t T -s now -o 5", "-q"),
    ],
)  # fmt: skip
def test_wrong_usage_when_given_then_told_before_anything_is_asked(line: str, word: str) -> None:
    """A typing error must not change another topic, group, queue or setting."""
    assert word in usage_error(line)


def test_blank_name_when_given_then_a_usage_error() -> None:
    """A variable that is empty in a script."""
    for name in ("topicRoute", "topicStatus"):
        with pytest.raises(Exception, match="is empty"):
            run([name, "-n", "a:1", "-t", "  "], by_code({}))


@pytest.mark.parametrize(
    ("line", "code", "field"),
    [("wipeWritePerm", 205, "wipeTopicCount"), ("addWritePerm", 327, "addTopicCount")],
)
def test_write_perm_when_a_name_server_routes_nothing_to_the_set_then_it_is_not_done(
    line: str, code: int, field: str
) -> None:
    """A typing error was answered with OK, and writes went on."""

    def counted(call: Call) -> RemotingCommand:
        return call.command.reply(0, None, {field: "0" if call.address == "b:1" else "3"})

    report, _ = run(f"{line} -n a:1;b:1 -b broker-z", by_code({code: counted}))
    assert [str(one) for one in report.failures] == [
        "b:1: no topic is routed to a broker set broker-z"
    ]
    assert report.data["topicCounts"] == {"a:1": 3, "b:1": 0}
    assert report.tables[0].rows == [("a:1", "broker-z", 3)]
    assert report.plain.endswith("in name server[b:1] OK, 0\n"), "Java's text stays"
