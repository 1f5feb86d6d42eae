"""Who may ask what: a server's check, request by request."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from rmqha.auth.accounts import (
    Account,
    Decision,
    Entry,
    Policy,
    PolicyType,
    UserStatus,
    UserType,
)
from rmqha.auth.check import Check, by_policies
from rmqha.auth.contexts import BODIES, FREE, RULES, SPECIAL, contexts_of, record_contexts
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.resources import Action, ResourceType, topic
from rmqha.auth.server_rules import by_server_rules
from rmqha.auth.settings import AuthSettings
from rmqha.auth.signature import Credentials
from rmqha.base.errors import HeaderMalformed
from rmqha.broker.send.plain_request import decode_message
from rmqha.broker.send.signed_request import BrokerCheck, SignedFields, decode_signed_message
from rmqha.remoting import codec_json, fastjson
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.repeats import HeaderCache

NOBODY: frozenset[int] = frozenset()
SETTINGS = AuthSettings(True, True, NOBODY, NOBODY, {}, None)
ANN, ROOT = Account("ann", "ann-secret"), Account("root", "root-secret", UserType.SUPER)
BROKER = Account("shop", "shop-secret", broker_names=("broker-a", "shop-*"))
PEER = "10.0.0.1:5000"
CLUSTER = "C"


def signed(code: int, by: Account, body: bytes = b"", **fields: str) -> RemotingCommand:
    """A request with a user's signature."""
    command = RemotingCommand(code, ext_fields=fields, body=body)
    Credentials(by.name, by.password).sign(command)
    return command


def why_not(check: Check, request: RemotingCommand, peer: str = PEER) -> Reason | None:
    """Why a request is refused; None when it passes."""
    try:
        check(request, peer)
    except Refused as refused:
        return refused.reason
    return None


def servers(*accounts: Account, settings: AuthSettings = SETTINGS) -> Check:
    """The check of a controller or a name server."""
    users = {one.name: one for one in accounts}
    return Check(settings, users.get, by_server_rules)


@pytest.mark.parametrize("code", [103, 104, 904, 1001, 1002, 1003, 1013])
def test_broker_when_it_speaks_for_a_set_then_only_for_its_own(code: int) -> None:
    """S5: a forged broker; and a normal user is none."""
    check = servers(ANN, BROKER, ROOT)
    for name, reason in (
        ("broker-a", None), ("shop-7", None), ("shop-", None), ("broker-ab", Reason.NOT_SUPER),
        ("shop", Reason.NOT_SUPER), ("", Reason.NOT_SUPER),
    ):  # fmt: skip
        assert why_not(check, signed(code, BROKER, brokerName=name)) is reason
        assert why_not(check, signed(code, ANN, brokerName=name)) is Reason.NOT_SUPER
        assert why_not(check, signed(code, ROOT, brokerName=name)) is None
    assert why_not(check, signed(code, BROKER)) is Reason.NOT_SUPER


@pytest.mark.parametrize(
    "code", [1009, 1011, 60013, 318, 100, 102, 205, 216, 217, 327, 1008, 70_000]
)
def test_change_when_no_super_user_asks_then_it_is_refused(code: int) -> None:
    """Also what nobody knows."""
    check = servers(ANN, BROKER, ROOT)
    assert why_not(check, signed(code, BROKER, brokerName="broker-a")) is Reason.NOT_SUPER
    assert why_not(check, signed(code, ROOT)) is None


@pytest.mark.parametrize("code", [105, 106, 1004, 1005, 1006, 1010, 1012, 319])
def test_question_when_any_user_asks_then_it_is_answered(code: int) -> None:
    """Clients need routes; no secret is in any answer."""
    assert why_not(servers(ANN), signed(code, ANN, topic="T")) is None


def test_repeated_request_when_its_code_is_another_then_it_is_looked_at_again() -> None:
    """A signature covers no code, so the fields of a question fit a change as well."""
    check = servers(ANN)
    asked = signed(1004, ANN)
    assert why_not(check, asked) is None
    change = RemotingCommand(1009, ext_fields=asked.ext_fields)
    assert why_not(check, change) is Reason.NOT_SUPER
    assert why_not(check, asked) is None


def test_repeated_request_when_the_user_changes_then_it_is_looked_at_again() -> None:
    """What was found once counts for the same bytes and the same account only."""
    users = {"ann": ANN}
    check = Check(SETTINGS, users.get, by_server_rules)
    cache = HeaderCache()
    request = signed(1004, ANN, brokerName="broker-a")

    def again(opaque: int, body: bytes = b"") -> RemotingCommand:
        request.opaque = opaque
        return cache.decode(codec_json.encode_header(request), body)

    assert [why_not(check, again(number)) for number in range(4)] == [None] * 4
    assert cache.hits > 0
    assert why_not(check, again(9, b"a body")) is Reason.WRONG_SIGNATURE
    users["ann"] = replace(ANN, user_status=UserStatus.DISABLE)
    assert why_not(check, again(10)) is Reason.DISABLED_USER
    users["ann"] = replace(ANN, password="another")
    assert why_not(check, again(11)) is Reason.WRONG_SIGNATURE
    users.clear()
    assert why_not(check, again(12)) is Reason.UNKNOWN_USER
    users["ann"] = ANN
    assert why_not(check, again(13)) is None


def test_header_when_it_was_signed_with_a_body_then_alone_it_does_not_pass() -> None:
    """The signature covers the body: who has seen the one has not signed the other."""
    check, cache = servers(ANN), HeaderCache()
    header = codec_json.encode_header(signed(1004, ANN, b"a body", brokerName="broker-a"))
    for _ in range(3):
        assert why_not(check, cache.decode(header, b"a body")) is None
        assert why_not(check, cache.decode(header, b"")) is Reason.WRONG_SIGNATURE
    assert cache.hits > 0


def test_broker_when_it_names_no_set_then_no_prefix_has_it() -> None:
    """What is missing begins with nothing."""
    letters = [chr(one) for one in range(ord("!"), ord("~") + 1) if chr(one) != "*"]
    names = (*letters, *(f"{one}*" for one in letters))
    check = servers(broker := replace(BROKER, broker_names=names))
    assert why_not(check, signed(103, broker, brokerName="x")) is None
    assert why_not(check, signed(103, broker)) is Reason.NOT_SUPER


def test_whitelist_when_a_code_is_on_it_then_it_is_free() -> None:
    """Of signatures, or of policies alone."""
    code = frozenset({1009})
    free = replace(SETTINGS, authentication_free=code, authorization_free=code)
    assert why_not(servers(settings=free), RemotingCommand(1009)) is None
    free = replace(SETTINGS, authentication_free=code, authorization=False)
    assert why_not(servers(settings=free), RemotingCommand(1009)) is None
    free = replace(SETTINGS, authorization_free=frozenset({1009}))
    assert why_not(servers(ANN, settings=free), signed(1009, ANN)) is None
    assert why_not(servers(ANN, settings=free), RemotingCommand(1009)) is Reason.UNSIGNED


def broker_check(settings: AuthSettings, *accounts: Account) -> BrokerCheck:
    """The check of a broker."""
    return BrokerCheck(settings, {one.name: one for one in accounts}.get, CLUSTER)


def test_whitelist_when_a_code_needs_no_signature_then_who_may_is_asked_all_the_same() -> None:
    """As Java does: authenticationWhitelist alone let anybody make super users."""
    codes = frozenset({17, 310, 3001})
    check = broker_check(replace(SETTINGS, authentication_free=codes), ANN, ROOT)
    message = codec_json.encode_header(RemotingCommand(310, ext_fields=dict(MESSAGE)))
    requests = [RemotingCommand(17, ext_fields={"topic": "T"}), RemotingCommand(3001),
                decode_message(message, b"x"), decode_signed_message(message, b"x")]  # fmt: skip
    assert [why_not(check, one) for one in requests] == [Reason.UNSIGNED] * 4
    assert why_not(check, signed(17, ANN, topic="T")) is Reason.NO_POLICY
    assert why_not(check, signed(17, ROOT, topic="T")) is None
    with pytest.raises(Refused):
        check.require(requests[0], PEER, topic("T"), (Action.PUB,))
    check = broker_check(replace(SETTINGS, authentication_free=codes, authorization_free=codes))
    assert [why_not(check, one) for one in requests] == [None] * 4
    check.require(requests[0], PEER, topic("T"), (Action.PUB,))
    check = broker_check(replace(SETTINGS, authentication_free=codes, authorization=False))
    assert [why_not(check, one) for one in requests] == [None] * 4


AT_HOME = replace(
    ANN,
    policies=(
        Policy(
            PolicyType.CUSTOM,
            (Entry(topic("T"), (Action.PUB, Action.GET), Decision.ALLOW, ("10.0.0.1",)),),
        ),
    ),
)
ELSEWHERE = "10.0.0.2:5000"


def test_request_when_it_comes_again_from_another_host_then_it_is_looked_at_again() -> None:
    """A policy may count for some addresses alone, and what has passed is remembered."""
    check, cache = broker_check(SETTINGS, AT_HOME), HeaderCache()
    header = codec_json.encode_header(signed(351, AT_HOME, topic="T"))
    for peer, reason in ((PEER, None), (PEER, None), (PEER, None), (ELSEWHERE, Reason.NO_POLICY),
                         ("10.0.0.1:7", None), (ELSEWHERE, Reason.NO_POLICY)):  # fmt: skip
        assert why_not(check, cache.decode(header, b""), peer) is reason
    assert cache.hits > 0


def test_message_when_the_next_comes_from_another_host_then_it_is_looked_at_again() -> None:
    """The same, of the quick way of messages."""
    check = broker_check(SETTINGS, AT_HOME)
    header = codec_json.encode_header(signed(310, AT_HOME, b"x", **MESSAGE))
    for peer, reason in ((PEER, None), (ELSEWHERE, Reason.NO_POLICY), (PEER, None)):
        assert why_not(check, decode_signed_message(header, b"x"), peer) is reason


MESSAGE = {
    "a": "PG", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000",
    "h": "0", "i": "UNIQ_KEY\x01U1\x02WAIT\x01true\x02", "j": "0", "k": "false", "m": "false",
}  # fmt: skip
# Every field that the quick way knows: one that it did not sign would pass for another's.
NAMES = st.sampled_from(
    sorted(
        {one.encode_name for one in msgspec.structs.fields(SignedFields)}
        - {"AccessKey", "Signature"}
        | {"zone"}
    )
)


@pytest.mark.costly
@given(
    st.dictionaries(NAMES, st.text(st.characters(exclude_categories=["Cs"]), max_size=5)),
    st.sets(st.sampled_from(sorted(MESSAGE))),
    st.binary(max_size=30),
    st.one_of(st.none(), NAMES),
)
def test_message_when_read_the_quick_way_then_it_is_checked_as_any_other(
    more: dict[str, str], less: set[str], body: bytes, changed: str | None
) -> None:
    """Whatever fields a client sends, and whichever is changed on the way."""
    fields = {k: v for k, v in {**MESSAGE, **more}.items() if k not in less}
    request = signed(310, ROOT, body, **fields)
    assert request.ext_fields is not None
    if changed is not None:
        request.ext_fields[changed] = request.ext_fields.get(changed, "") + "x"
    header = codec_json.encode_header(request)
    check = BrokerCheck(SETTINGS, {"root": ROOT}.get, CLUSTER)
    plain = Check(SETTINGS, {"root": ROOT}.get, by_policies(CLUSTER))
    quick = why_not(check, decode_signed_message(header, body))
    assert quick is why_not(plain, codec_json.decode_command(header, body))
    assert (quick is None) == (changed is None)


def test_message_when_its_header_is_deep_then_it_is_refused_as_any_other() -> None:
    """A RecursionError would be a stack trace for each such frame, on a port that asks who sends."""
    deep = b'{"code":310,"zone":' + b"[" * 100_000
    for decode in (codec_json.decode_command, decode_message, decode_signed_message):
        with pytest.raises(HeaderMalformed):
            decode(deep, b"")


def test_contexts_when_asked_of_every_known_code_then_something_or_free() -> None:
    """No code passes because nobody has thought of it."""
    for code in {*range(1, 420), *range(500, 520), *range(900, 1020), *range(3001, 3011), 200_050}:
        if code in FREE or code in SPECIAL or code in BODIES:
            continue
        found = contexts_of(RemotingCommand(code), CLUSTER)
        assert [one.resource.key for one in found] == [f"Cluster:{CLUSTER}"]
        if code not in RULES:
            assert found[0].actions == (Action.UPDATE,)


@pytest.mark.parametrize(
    ("code", "body", "keys"),
    [
        (34, {"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [
            {"topic": "T"}, {"topic": "%RETRY%G"}]}]}, ["Group:G", "Topic:T"]),
        (41, {"consumerGroup": "G", "mqSet": [{"topic": "T"}]}, ["Group:G", "Topic:T"]),
        (42, {"consumerGroup": "G", "mqSet": []}, ["Group:G"]),
        (400, {"consumerGroup": "G", "topic": "T"}, ["Group:G", "Topic:T"]),
        (401, {"consumerGroup": "G", "topic": "T"}, ["Group:G"]),
        (200, {"groupName": "G"}, ["Group:G"]),
        (225, {"groupConfigList": [{"groupName": "G"}, {"groupName": "H"}]}, ["Group:G", "Group:H"]),
        (18, {"topicConfigList": [{"topicName": "T"}]}, ["Topic:T"]),
        (200_151, {"acks": [{"c": "G", "t": "%RETRY%G"}, {"c": "H", "t": "T"}]},
         ["Group:G", "Group:H", "Topic:T"]),
    ],
)  # fmt: skip
def test_contexts_when_the_body_names_resources_then_all_of_them(
    code: int, body: dict[str, Any], keys: list[str]
) -> None:
    """A body that cannot be read asks for nothing that could be allowed."""
    found = contexts_of(RemotingCommand(code, body=fastjson.dumps(body)), CLUSTER)
    assert [one.resource.key for one in found] == keys
    for wrong in (b"[1]", b"{", b'{"consumerDataSet":7,"mqSet":7,"acks":7,"groupConfigList":7,'
                  b'"topicConfigList":7,"consumerGroup":7}'):  # fmt: skip
        with pytest.raises(Refused) as caught:
            contexts_of(RemotingCommand(code, body=wrong), CLUSTER)
        assert caught.value.reason is Reason.MALFORMED


def test_contexts_when_a_retry_topic_is_meant_then_its_group_is() -> None:
    """Clients use these topics without a policy of their own."""
    pull = {"topic": "%RETRY%G", "consumerGroup": "G"}
    for code in (11, 361, 14, 15):
        keys = [
            one.resource.key for one in contexts_of(RemotingCommand(code, ext_fields=pull), "C")
        ]
        assert keys == ["Group:G"]
    found = contexts_of(RemotingCommand(10, ext_fields={"topic": "%RETRY%G"}), CLUSTER)
    assert [(one.resource.kind, one.actions) for one in found] == [
        (ResourceType.GROUP, (Action.SUB,))
    ]


def test_contexts_when_topics_are_listed_then_each_of_them() -> None:
    """208: who may see one topic's positions must not get another's beside it."""
    fields = {"consumerGroup": "G", "topicList": "A;B;;A; ", "topic": ""}
    asked = RemotingCommand(208, ext_fields=fields)
    assert [one.resource.key for one in contexts_of(asked, CLUSTER)] == [
        "Group:G", "Topic:A", "Topic:B",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "name", "keys"),
    [
        (11, "%RETRY%H", ["Group:H", "Group:G"]),
        (361, "%RETRY%G+T", ["Topic:T", "Group:G"]),
        (11, "%RETRY%H+T", ["Group:H", "Topic:T", "Group:G"]),
        # It may be the retry topic of a group of that name, and a pull gives its messages.
        (11, "%RETRY%G_T", ["Group:G_T", "Group:G"]),
        (200_051, "%RETRY%G_T", ["Topic:T", "Group:G"]),
        (200_053, "%RETRY%G+T", ["Topic:T", "Group:G"]),
        (200_053, "%RETRY%H_T", ["Group:H_T", "Group:G"]),
        (200_051, "T", ["Topic:T", "Group:G"]),
        (14, "%RETRY%G_T", ["Topic:T", "Group:G"]),
        (15, "%RETRY%H", ["Group:H", "Group:G"]),
    ],
)
def test_contexts_when_a_retry_topic_is_not_the_group_s_own_then_whose_it_is(
    code: int, name: str, keys: list[str]
) -> None:
    """Java asks for the consuming group alone; of pops for a group by the whole name."""
    asked = RemotingCommand(code, ext_fields={"topic": name, "consumerGroup": "G"})
    assert [one.resource.key for one in contexts_of(asked, CLUSTER)] == keys


@pytest.mark.parametrize(
    ("name", "keys"),
    [
        ("T", ["Topic:T"]), ("%RETRY%G", ["Group:G"]), ("%RETRY%H", ["Group:H"]),
        ("%RETRY%G+T", ["Topic:T"]), ("%RETRY%H+T", ["Group:H", "Topic:T"]),
        # Who is given a record might read what another group of that name could not handle.
        ("%RETRY%G_T", ["Group:G_T"]),
    ],
)  # fmt: skip
def test_contexts_when_a_record_is_given_by_its_place_then_what_it_is_of(
    name: str, keys: list[str]
) -> None:
    """For a consumer of group G, whatever topic its request has named."""
    assert [one.resource.key for one in record_contexts(name, "G", (Action.SUB,))] == keys


@pytest.mark.parametrize(
    ("code", "body", "keys"),
    [
        (34, {"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [
            {"topic": "%RETRY%H"}]}]}, ["Group:G", "Group:H"]),
        (41, {"consumerGroup": "G", "mqSet": [{"topic": "%RETRY%H"}]}, ["Group:G", "Group:H"]),
        (400, {"consumerGroup": "G", "topic": "%RETRY%H"}, ["Group:G", "Group:H"]),
        (200_151, {"acks": [{"c": "G", "t": "%RETRY%H"}]}, ["Group:G", "Group:H"]),
    ],
)  # fmt: skip
def test_contexts_when_a_body_names_another_group_s_retry_topic_then_that_group(
    code: int, body: dict[str, Any], keys: list[str]
) -> None:
    """The same, of requests whose bodies say what is asked for."""
    found = contexts_of(RemotingCommand(code, body=fastjson.dumps(body)), CLUSTER)
    assert [one.resource.key for one in found] == keys


HOLDING = [
    "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC",
    "TRANS_CHECK_MAX_TIME_TOPIC", "RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC",
    "RMQ_SYS_ROCKSDB_TRANS_OP_HALF_TOPIC", "rmq_sys_wheel_timer",
    "rmq_sys_REVIVE_LOG_DefaultCluster",
]  # fmt: skip


@pytest.mark.parametrize("code", [11, 361, 200050, 200052, 12, 321])
@pytest.mark.parametrize("name", HOLDING)
def test_reader_when_messages_of_others_wait_in_a_topic_then_he_reads_the_cluster(
    code: int, name: str
) -> None:
    """A topic that is denied to him is in there."""
    found = contexts_of(RemotingCommand(code, ext_fields={"topic": name}), CLUSTER)
    assert [one.actions for one in found if one.resource.kind is ResourceType.CLUSTER] == [
        (Action.GET,)
    ]


@pytest.mark.parametrize("name", ["OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC", "TBW102", "Orders"])
def test_reader_when_a_topic_holds_nobodys_messages_then_it_is_one_like_others(name: str) -> None:
    """Java's MonitorService consumes the first of these: its user had no more than Sub of it."""
    found = contexts_of(RemotingCommand(11, ext_fields={"topic": name}), CLUSTER)
    assert all(one.resource.kind is not ResourceType.CLUSTER for one in found)
