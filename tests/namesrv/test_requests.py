"""KV configuration, versions, permissions, single topics, the configuration; and garbage."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import StoreCorrupted
from rmqha.namesrv.kv_config import ENTRY_BYTES, KvConfig
from rmqha.namesrv.machine import SMALL_BODY_BYTES_MAX, Request
from rmqha.namesrv.messages import Stored
from rmqha.remoting import fastjson
from rmqha.runtime.properties import CHANGE_BYTES_MAX, CHANGE_LINES_MAX
from tests.namesrv.node import (
    MASTER,
    NAME,
    SLAVE,
    Node,
    broker_fields,
    registration_body,
    topic,
)

ORDER = "ORDER_TOPIC_CONFIG"
CODES = (
    100, 101, 102, 103, 104, 105, 106, 205, 206, 216, 217, 219, 224, 304, 311, 312, 313, 318, 319,
    322, 327, 901, 904,
)  # fmt: skip


def kv(namespace: str, key: str, value: str | None = None) -> dict[str, str]:
    """The fields of 100, 101 and 102."""
    fields = {"namespace": namespace, "key": key}
    return fields if value is None else {**fields, "value": value}


# -- KV configuration --------------------------------------------------------------------------


def test_kv_when_put_then_it_is_found_listed_and_stored_before_the_answer() -> None:
    """What is answered must survive a restart."""
    node = Node()
    put = node.ask(100, kv("n", "k", "v"))
    assert (0, Stored.KV_CONFIG) == (put.code, put.stored)
    assert {"value": "v"} == node.ask(101, kv("n", "k")).ext_fields
    assert b'{"table":{"k":"v"}}' == node.ask(219, {"namespace": "n"}).body
    assert Stored.KV_CONFIG is node.ask(102, kv("n", "k")).stored
    assert 22 == node.ask(101, kv("n", "k")).code
    assert 22 == node.ask(219, {"namespace": "n"}).code
    node.ask(100, kv(ORDER, "k", "v"))
    node.ask(102, kv(ORDER, "k"))
    assert b'{"table":{}}' == node.ask(219, {"namespace": ORDER}).body


@pytest.mark.parametrize(
    ("code", "fields", "expected", "remark"),
    [
        (101, kv("n", "k"), 22, "No config item, Namespace: n Key: k"),
        (101, {}, 22, "No config item, Namespace: null Key: null"),
        (219, {"namespace": "n"}, 22, "No config item, Namespace: n"),
        (219, {}, 22, "No config item, Namespace: null"),
        (100, {"key": "k"}, 1, "namespace or key is null"),
        (100, {"namespace": "n"}, 1, "namespace or key is null"),
        (100, kv("n", "k"), 1, "the custom field <value> is null"),
        (102, {}, 1, "the custom field <namespace> is null"),
    ],
)
def test_kv_when_something_misses_then_its_code_and_remark(
    code: int, fields: dict[str, str], expected: int, remark: str
) -> None:
    """Java keeps a null value under the key, and says nothing."""
    node = Node()
    answer = node.ask(code, fields)
    assert (expected, remark, None) == (answer.code, answer.remark, answer.stored)
    assert b'{"configTable":{}}' == node.machine.kv.content()


@pytest.mark.parametrize("returned", ["true", "false"])
def test_registration_when_topics_are_ordered_then_their_order_is_returned(returned: str) -> None:
    """The broker marks its topics by it; absent without the namespace or the setting."""
    node = Node({"returnOrderTopicConfigToBroker": returned})
    assert b"" == node.register().body
    node.ask(100, kv(ORDER, "A", "b:4"))
    assert (b'{"table":{"A":"b:4"}}' if returned == "true" else b"") == node.register().body


def test_kv_when_it_is_full_then_1_and_what_is_there_stays() -> None:
    """Bounded by kvBytesMax, with what a key and a namespace cost besides their characters."""
    limit = 2 * ENTRY_BYTES + len("nskeyvalue")
    node = Node({"kvBytesMax": str(limit)})
    assert 0 == node.ask(100, kv("ns", "key", "value")).code
    assert 0 == node.ask(100, kv("ns", "key", "other")).code
    assert limit == node.machine.kv.content_bytes
    for fields in (kv("ns", "key", "longer"), kv("ns", "", ""), kv("x", "", "")):
        answer = node.ask(100, fields)
        assert 1 == answer.code
        assert f"{limit} bytes" in str(answer.remark)
    assert {"value": "other"} == node.ask(101, kv("ns", "key")).ext_fields
    node.ask(102, kv("ns", "key"))
    assert 0 == node.machine.kv.content_bytes
    assert 0 == node.ask(100, kv("o", "k", "value")).code, "its namespace gave its room back"


def test_kv_when_namespaces_come_and_go_then_nothing_is_left_of_them() -> None:
    """A hundred thousand of them took 28 MiB, and each one stood in the file for ever."""
    kv_config = KvConfig(10 * ENTRY_BYTES)
    for number in range(100):
        assert kv_config.put(str(number), "k", "v")
        kv_config.delete(str(number), "k")
        kv_config.delete(str(number), "k")
    assert (0, b'{"configTable":{}}') == (kv_config.content_bytes, kv_config.content())


def test_kv_file_when_an_older_release_took_more_then_it_is_read_and_no_more_is_taken() -> None:
    """It counted characters only: a name server must not refuse to start after its upgrade."""
    old = KvConfig(1 << 20)
    for number in range(50):
        assert old.put("n", f"{number}", "")
    new = KvConfig(1_000)
    new.load(old.content())
    assert new.content() == old.content()
    assert new.content_bytes == old.content_bytes > 1_000
    assert not new.put("n", "one more", "")
    new.delete("n", "7")
    assert new.get("n", "7") is None


texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)


@given(st.dictionaries(texts, st.dictionaries(texts, texts, max_size=3), max_size=3))
def test_kv_file_when_written_then_it_is_read_back(table: dict[str, dict[str, str]]) -> None:
    """A restart must lose nothing."""
    one, other = KvConfig(10_000), KvConfig(10_000)
    for namespace, values in table.items():
        for key, value in values.items():
            assert one.put(namespace, key, value)
    other.load(one.content())
    assert one.content() == other.content()


def test_kv_file_when_java_wrote_it_then_it_is_read() -> None:
    """Pretty-printed, as KVConfigManager persists it."""
    kv_config = KvConfig(1000)
    kv_config.load(b'{\n\t"configTable":{"ORDER_TOPIC_CONFIG":{\n\t\t"A":"b:4"\n\t}}\n}\n')
    assert "b:4" == kv_config.get(ORDER, "A")
    KvConfig(1000).load(b" ")


@pytest.mark.parametrize(
    "content", [b"garbage", b"[]", b"{}", b'{"configTable":5}', b'{"configTable":{"n":5}}',
                b'{"configTable":{"n":{"k":5}}}', b'{"configTable":{"n":{"k":"%s"}}}' % (b"v" * 2000)]
)  # fmt: skip
def test_kv_file_when_it_is_damaged_then_it_is_refused(content: bytes) -> None:
    """Going on would overwrite what can still be mended."""
    with pytest.raises(StoreCorrupted):
        KvConfig(1000).load(content)


# -- versions and permissions ------------------------------------------------------------------


def test_data_version_when_it_is_the_same_then_nothing_has_changed() -> None:
    """Brokers with forceRegister=false register only when this says true."""
    node = Node()
    node.register(epoch=2, counter=3)
    same = b'{"counter":3,"stateVersion":2,"timestamp":5}'
    for asked, changed in ((same, "false"), (b'{"counter":4}', "true"), (b"", "true")):
        answer = node.ask(322, broker_fields(), asked)
        assert (0, {"changed": changed}, same) == (answer.code, answer.ext_fields, answer.body)
    assert 1 == node.ask(322, broker_fields(), b"garbage").code


def test_write_permission_when_wiped_and_added_then_java_s_bits() -> None:
    """205 clears a bit; 327 sets 6 exactly, and so drops what TBW102 lets inherit."""
    node = Node()
    node.register([topic("TBW102", perm=7), topic("A")])
    assert {"wipeTopicCount": "2"} == node.ask(205, {"brokerName": NAME}).ext_fields
    assert {"TBW102": 5, "A": 4} == node.perms()
    assert {"addTopicCount": "2"} == node.ask(327, {"brokerName": NAME}).ext_fields
    assert {"TBW102": 6, "A": 6} == node.perms()
    assert {"wipeTopicCount": "0"} == node.ask(205, {"brokerName": "none"}).ext_fields


# -- single topics -----------------------------------------------------------------------------


def queue_data(name: str) -> dict[str, object]:
    """A QueueData as a broker with enableSingleTopicRegister sends it."""
    return {
        "brokerName": name, "perm": 6, "readQueueNums": 3, "topicSysFlag": 0, "writeQueueNums": 3
    }  # fmt: skip


def test_single_topic_when_its_brokers_are_known_then_it_is_listed() -> None:
    """217 of 5.x brokers."""
    node = Node()
    node.register()
    body = fastjson.dumps({"queueDatas": [queue_data(NAME)]})
    assert 0 == node.ask(217, {"topic": "N"}, body).code
    assert [queue_data(NAME)] == node.route("N")["queueDatas"]


def test_single_topic_when_a_broker_is_unknown_then_all_of_it_is_dropped() -> None:
    """With success, as in Java, but not the half of it that came before the unknown one."""
    node = Node()
    node.register()
    body = fastjson.dumps({"queueDatas": [{**queue_data(NAME), "perm": 4}, queue_data("none")]})
    assert 0 == node.ask(217, {"topic": "A"}, body).code
    assert {"A": 6, "B": 6} == node.perms()


@pytest.mark.parametrize(
    "body", [b"garbage", b'{"queueDatas":7}', b'{"queueDatas":[7]}', b'{"queueDatas":[{}]}']
)
def test_single_topic_when_the_body_is_garbage_then_1(body: bytes) -> None:
    """Nothing is listed of it."""
    node = Node()
    node.register()
    assert 1 == node.ask(217, {"topic": "N"}, body).code
    assert {"A", "B"} == set(node.perms())


def test_single_topic_when_the_limit_is_reached_then_it_is_refused() -> None:
    """Not only registrations can fill the table."""
    node = Node({"routesMax": "2"})
    node.register()
    body = fastjson.dumps({"queueDatas": [queue_data(NAME)]})
    assert 1 == node.ask(217, {"topic": "N"}, body).code


@pytest.mark.parametrize(
    ("cluster", "left"), [("C", ["other"]), ("D", [NAME]), ("none", [NAME, "other"]), (None, [])]
)
def test_delete_topic_when_a_cluster_is_named_then_only_its_brokers_lose_it(
    cluster: str | None, left: list[str]
) -> None:
    """216 of mqadmin deleteTopic."""
    node = Node()
    node.register()
    node.register(brokerName="other", brokerAddr=SLAVE, clusterName="D")
    fields = {"topic": "A"} if cluster is None else {"topic": "A", "clusterName": cluster}
    assert 0 == node.ask(216, fields).code
    assert left == [one["brokerName"] for one in node.route().get("queueDatas", [])]
    assert ("A" in fastjson.loads(node.ask(206).body)["topicList"]) == bool(left)


# -- configuration -----------------------------------------------------------------------------


def test_config_when_asked_then_every_key_is_a_line_and_unknown_ones_are_kept() -> None:
    """mqadmin getNamesrvConfig."""
    node = Node({"someKey": "x=y", "somePassword": "secret"})
    lines = node.ask(319).body.decode().splitlines()
    assert sorted(lines) == lines
    assert {"listenPort=9876", "someKey=x=y", "somePassword=******"} <= set(lines)


def test_config_when_it_is_changed_then_it_holds_at_once_and_is_stored_first() -> None:
    """mqadmin updateNamesrvConfig."""
    node = Node()
    answer = node.ask(318, body=b"enableTopicList = false\n")
    assert (0, Stored.CONFIG) == (answer.code, answer.stored)
    assert 1 == node.ask(224, {"cluster": "C"}).code
    assert b"enableTopicList=false\n" in node.ask(319).body


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"kvConfigPath=/x", 16, "Can not update config in black list."),
        (b"configStorePath=/x", 16, "Can not update config in black list."),
        (b"rocketmqHome=/x", 16, "Can not update config in black list."),
        (b"configBlackList=", 16, "Can not update config in black list."),
        (b"productEnvName=x", 16, "Can not update config in black list."),
        (b"listenPort=1", 16, "listenPort is read at start only; change the file and restart the name server"),
        (b"enableTopicList=maybe", 1, "enableTopicList=maybe is neither true nor false"),
        (b"waitSecondsForService=x", 1, "waitSecondsForService=x is not a number"),
        (b"a=\\u12", 1, "string2Properties error"),
        (b"\xff", 1, "string2Properties error"),
        (b"", 0, None),
        (b"nosuch=1", 1, "there is no key nosuch; nothing was changed"),
    ],
)  # fmt: skip
def test_config_when_a_key_may_not_change_then_nothing_does(
    body: bytes, code: int, remark: str | None
) -> None:
    """CVE-2023-37582: paths from outside would write files anywhere."""
    node = Node({"configBlackList": "configBlackList;productEnvName"})
    before = node.ask(319).body
    answer = node.ask(318, body=b"supportActingMaster=true\n" + body if code else body)
    assert (code, remark, None) == (answer.code, answer.remark, answer.stored)
    assert before == node.ask(319).body


# -- garbage -----------------------------------------------------------------------------------


def test_code_when_no_name_server_knows_it_then_the_core_has_no_answer() -> None:
    """The shell answers 3; a controller's codes are asked on the controller's port."""
    request = Request(0, 1, 479, {}, b"")
    assert [None] * 3 == [Node().machine.request(code, request) for code in (10, 99, 1005)]


@pytest.mark.parametrize("code", CODES)
@pytest.mark.parametrize("body", [b"", b"garbage", b"{}", b"[]", b'{"queueDatas":{}}', b"\xff\xfe"])
def test_request_when_fields_or_body_are_garbage_then_it_is_answered(
    code: int, body: bytes
) -> None:
    """No input may raise, and none may take away what is listed."""
    node = Node()
    node.register()
    before = node.ask(106).body
    for fields in ({}, {"topic": "\x00" * 600, "brokerName": "", "cluster": "", "brokerId": "x"}):
        assert node.ask(code, fields, body).code in (0, 1, 16, 17, 22)
    assert before == node.ask(106).body


@pytest.mark.costly
@given(
    st.sampled_from(CODES),
    st.dictionaries(
        st.sampled_from(
            ("brokerName", "brokerAddr", "clusterName", "brokerId", "topic", "compressed", "cluster",
             "namespace", "key", "value", "bodyCrc32", "heartbeatTimeoutMillis")
        ),
        st.sampled_from(("", "b", "C", "A", "true", "0", "-1", "x", str(2**63), MASTER)),
    ),
    st.binary(max_size=60)
    | st.text('{}[]",:01ab', max_size=60).map(str.encode)
    | st.sampled_from([registration_body([topic("A"), topic("B")])[:n] for n in range(0, 700, 50)]),
)  # fmt: skip
def test_request_when_it_is_noise_then_the_tables_stay_consistent(
    code: int, fields: dict[str, str], body: bytes
) -> None:
    """Whatever was accepted, routes can be answered afterwards."""
    node = Node()
    node.register()
    node.ask(code, fields, body)
    for asked in (106, 206, 304, 311, 319):
        assert 0 == node.ask(asked).code
    for name in list(node.machine.table.topics):
        assert node.ask(105, {"topic": name}).code in (0, 17)


@given(st.lists(st.tuples(texts, texts, st.none() | texts), max_size=20))
def test_kv_file_when_keys_come_and_go_then_it_is_what_a_table_of_them_would_be(
    steps: list[tuple[str, str, str | None]],
) -> None:
    """Its members are made once, when they change, and in order."""
    kv_config, table = KvConfig(10_000), dict[str, dict[str, str]]()
    for namespace, key, value in steps:
        if value is None:
            kv_config.delete(namespace, key)
            table.get(namespace, {}).pop(key, None)
            if not table.get(namespace):
                table.pop(namespace, None)
        else:
            assert kv_config.put(namespace, key, value)
            table.setdefault(namespace, {})[key] = value
    ordered = {name: dict(sorted(table[name].items())) for name in sorted(table)}
    assert kv_config.content() == fastjson.dumps({"configTable": ordered})
    for name, values in ordered.items():
        assert kv_config.namespace_body(name) == fastjson.dumps({"table": values})


# -- bodies that are larger than any that is right ----------------------------------------------


@pytest.mark.parametrize(
    ("body", "code"),
    [
        (b"supportActingMaster=true\n".ljust(CHANGE_BYTES_MAX, b"#"), 0),
        (b"supportActingMaster=true\n".ljust(CHANGE_BYTES_MAX + 1, b"#"), 1),
        (b"supportActingMaster=true".ljust(CHANGE_LINES_MAX + 23, b"\n"), 0),
        (b"supportActingMaster=true".ljust(CHANGE_LINES_MAX + 24, b"\n"), 1),
        (b"supportActingMaster=true".ljust(CHANGE_LINES_MAX + 24, b"\r"), 1),
    ],
)
def test_config_when_a_change_is_larger_than_any_then_it_is_not_read(
    body: bytes, code: int
) -> None:
    """16 MiB of lines kept everybody waiting for half a minute."""
    node = Node()
    answer = node.ask(318, body=body)
    assert answer.code == code
    assert node.config.boolean("supportActingMaster") is (code == 0)
    assert code == 0 or answer.remark == "a change has 65536 bytes and 1000 lines at most"


@pytest.mark.parametrize("code", [217, 322])
@pytest.mark.parametrize("more", [0, 1])
def test_request_when_its_body_is_larger_than_any_then_it_is_not_read(code: int, more: int) -> None:
    """A broker sends one topic's queues and a DataVersion; 16 MB of brackets took eight seconds."""
    node = Node()
    node.register()
    body = b'{"counter":1,"queueDatas":[]}'.ljust(SMALL_BODY_BYTES_MAX + more)
    answer = node.ask(code, {**broker_fields(), "topic": "T"}, body)
    assert answer.code == more
    assert not more or answer.remark == f"the body is larger than {SMALL_BODY_BYTES_MAX} bytes"


def test_registration_when_the_order_of_topics_is_as_before_then_its_answer_is_not_made_anew() -> (
    None
):
    """Up to 16 MiB were joined for each broker, every 30 s."""
    node = Node()
    node.ask(100, kv(ORDER, "A", "b:4"))
    first = node.register().body
    assert node.register().body is first
    node.ask(100, kv(ORDER, "B", "b:5"))
    second = node.register().body
    assert fastjson.loads(second) == {"table": {"A": "b:4", "B": "b:5"}}
    node.ask(101, kv(ORDER, "A"))
    node.ask(102, kv(ORDER, "A"))
    assert fastjson.loads(node.register().body) == {"table": {"B": "b:5"}}
