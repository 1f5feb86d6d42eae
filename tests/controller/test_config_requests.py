"""1005, 1009 and 1010: what a node tells about itself, and what it lets change."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rmqha.controller.config_requests import config_text, metadata_info, update_config
from rmqha.controller.settings import BLACK_LIST, DEFAULTS, MUTABLE, ControllerConfig, load_config
from rmqha.remoting.frame import FrameDecoder
from rmqha.runtime.properties import parse_properties

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "5.3.3" / "remoting.jsonl"
NO_PERMISSION, SYSTEM_ERROR, SUCCESS = 16, 1, 0
START_ONLY = sorted(set(DEFAULTS) - MUTABLE - set(BLACK_LIST))


def dledger(**more: str) -> ControllerConfig:
    """Three nodes, this is the second."""
    return load_config(
        {
            "controllerDLegerGroup": "g",
            "controllerDLegerPeers": "n0-h0:9878;n1-h1:9868;n2-h2:9858",
            "controllerDLegerSelfId": "n1",
            **more,
        },
        home="/opt/rocketmq",
        user_home="/home/rocketmq",
    )


def jraft() -> ControllerConfig:
    """The same in jRaft's spelling."""
    return load_config(
        {
            "controllerType": "jRaft",
            "jRaftGroupId": "g",
            "jRaftServerId": "h1:9881",
            "jRaftInitConf": "h0:9880,h1:9881",
            "jRaftControllerRPCAddr": "h0:9770,h1:9771",
        },
        home="",
        user_home="/home/rocketmq",
    )


# -- 1010 ------------------------------------------------------------------------------------


def test_the_text_is_complete_and_sorted() -> None:
    """mqadmin prints it as it comes; a missing key looks like an unset one."""
    config = dledger(zone="z1")
    keys = [line.partition("=")[0] for line in config_text(config).decode().splitlines()]
    assert sorted([*DEFAULTS, "zone"]) == keys


def test_the_text_ends_each_line_as_java_does() -> None:
    """Java's Properties reader must get the values back."""
    config = dledger()
    text = config_text(config).decode()
    assert text.endswith("\n")
    assert "\n\n" not in text
    assert config.values == parse_properties(text)


@pytest.mark.parametrize(
    "key",
    ["tls.server.keyPassword", "aclSecretKey", "adminAccessKey", "someCredentials", "apiToken",
     "metricsGrpcExporterHeader"],
)  # fmt: skip
def test_a_secret_is_hidden(key: str) -> None:
    """Anyone who reaches the port may ask for 1010."""
    text = config_text(dledger(**{key: "open sesame"})).decode()
    assert f"{key}=******\n" in text
    assert "sesame" not in text


# -- 1009 ------------------------------------------------------------------------------------


def test_nothing_happens_when_the_body_is_empty() -> None:
    """Java answers success."""
    assert (SUCCESS, None, {}) == update_config(dledger(), b"")


@pytest.mark.parametrize("body", [b"\xff\xfe", b"a=\\u12"])
def test_the_answer_is_javas_when_the_body_is_no_properties_text(body: bytes) -> None:
    """Tools look for this remark."""
    assert (SYSTEM_ERROR, "string2Properties error", {}) == update_config(dledger(), body)


@pytest.mark.parametrize("key", [*BLACK_LIST])
def test_a_black_listed_key_is_refused_in_javas_words(key: str) -> None:
    """Changing configStorePath is how CVE-2023-37582 wrote any file."""
    config = dledger()
    before = dict(config.values)
    body = f"notifyBrokerRoleChanged=false\n{key}=/etc/passwd\n".encode()
    expected = (NO_PERMISSION, "Can not update config in black list.", {})
    assert expected == update_config(config, body)
    assert before == config.values


@pytest.mark.parametrize("key", ["isProcessReadEvent", "processReadEvent"])
def test_a_key_of_the_configured_black_list_is_refused_by_either_name(key: str) -> None:
    """An alias must not be a way around the list."""
    config = dledger(configBlackList="configBlackList; isProcessReadEvent")
    answer = update_config(config, f"{key}=true".encode())
    assert (NO_PERMISSION, "Can not update config in black list.", {}) == answer


@pytest.mark.parametrize("key", START_ONLY)
def test_a_key_read_at_start_only_is_refused_by_name(key: str) -> None:
    """Java accepts it without effect, or moves its store; here the operator is told."""
    config = dledger()
    before = dict(config.values)
    answer = update_config(config, f"notifyBrokerRoleChanged=false\n{key}=1\n".encode())
    remark = f"{key} is read at start only; change the file and restart the controller"
    assert (NO_PERMISSION, remark, {}) == answer
    assert before == config.values


def test_an_unknown_key_changes_nothing_and_is_named() -> None:
    """Java answers success, and an operator who mistyped a key waits for its effect."""
    config = dledger()
    before = dict(config.values)
    body = b"nobodyKnows=1\nnotifyBrokerRoleChanged=false\n"
    remark = "there is no key nobodyKnows; nothing was changed"
    assert (SYSTEM_ERROR, remark, {}) == update_config(config, body)
    assert before == config.values


@pytest.mark.parametrize(
    ("line", "remark"),
    [
        ("electMasterMaxRetryCount=many", "electMasterMaxRetryCount=many is not a number"),
        ("electMasterMaxRetryCount=", "electMasterMaxRetryCount= is not a number"),
        ("electMasterMaxRetryCount=²", "electMasterMaxRetryCount=² is not a number"),
        ("electMasterMaxRetryCount=" + "9" * 5000, "is not a number"),
        ("slaveNotifyDelayMs=-1", "slaveNotifyDelayMs=-1 must not be negative"),
        ("enableElectUncleanMaster=1", "enableElectUncleanMaster=1 is neither true nor false"),
        ("processReadEvent=on", "processReadEvent=on is neither true nor false"),
    ],
)
def test_a_malformed_value_is_refused_and_nothing_else_is_changed(line: str, remark: str) -> None:
    """Java ignores it silently and answers success; half an update is worse than none."""
    config = dledger()
    before = dict(config.values)
    answer = update_config(config, f"scanInactiveMasterInterval=7\n{line}\n".encode())
    assert (SYSTEM_ERROR, {}) == (answer.code, answer.changed)
    assert remark in str(answer.remark)
    assert before == config.values


def test_every_mutable_key_changes_and_is_reported() -> None:
    """What 1009 accepts must be what 1010 shows next."""
    config = dledger()
    asked = {key: "9" if DEFAULTS[key].isdigit() else "true" for key in sorted(MUTABLE)}
    body = "".join(f"{key}= {value} \n" for key, value in asked.items()).encode()
    assert (SUCCESS, None, asked) == update_config(config, body)
    assert asked == {key: config.values[key] for key in asked}


def test_the_alias_changes_the_field() -> None:
    """Java applies by setter name: processReadEvent."""
    config = dledger()
    answer = update_config(config, b"processReadEvent=TRUE")
    assert {"isProcessReadEvent": "TRUE"} == answer.changed
    assert config.boolean("isProcessReadEvent")


# -- 1005 ------------------------------------------------------------------------------------


def test_metadata_equals_the_captured_answer_of_a_java_leader() -> None:
    """Brokers find the leader, and mqadmin its text, by these fields alone."""
    config = load_config(
        {
            "controllerDLegerGroup": "g",
            "controllerDLegerPeers": "n0-127.0.0.1:19878",
            "controllerDLegerSelfId": "n0",
        },
        home="",
        user_home="/home/rocketmq",
    )
    captured = []
    for line in GOLDEN.read_text().splitlines():
        frame = json.loads(line)
        if frame["request_code"] == 1005 and frame["response"]:
            (answer,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
            captured.append(answer)
    assert captured
    ours = metadata_info(config, config.peers, "n0", is_leader=True)
    assert [ours] * len(captured) == [answer.ext_fields for answer in captured]
    assert {b""} == {answer.body for answer in captured}


def test_metadata_names_another_leader_when_this_node_follows() -> None:
    """A broker that asks a follower is sent to the leader."""
    assert {
        "group": "g",
        "isLeader": "false",
        "peers": "n0:h0:9878;n1:h1:9868;n2:h2:9858;",
        "controllerLeaderId": "n2",
        "controllerLeaderAddress": "h2:9858",
    } == metadata_info(dledger(), dledger().peers, "n2", is_leader=False)


@pytest.mark.parametrize("leader", [None, "gone"])
def test_metadata_has_no_leader_fields_when_there_is_no_leader(leader: str | None) -> None:
    """Brokers take an empty address for an address; the field must be absent."""
    fields = metadata_info(dledger(), dledger().peers, leader, is_leader=False)
    assert {"group", "isLeader", "peers"} == set(fields)


def test_metadata_is_in_jrafts_spelling_when_so_configured() -> None:
    """Ids are host:port of jRaft, the address is the RPC address, peers have no ids."""
    assert {
        "group": "g",
        "controllerLeaderId": "h0:9880",
        "controllerLeaderAddress": "h0:9770",
        "isLeader": "false",
        "peers": "h0:9880;h1:9881;",
    } == metadata_info(jraft(), jraft().peers, "h0:9880", is_leader=False)


def test_metadata_of_jraft_has_an_empty_leader_id_when_there_is_none() -> None:
    """As Java's JRaftController answers."""
    fields = metadata_info(jraft(), jraft().peers, None, is_leader=False)
    expected = {"group": "g", "controllerLeaderId": "", "isLeader": "false"}
    assert {**expected, "peers": "h0:9880;h1:9881;"} == fields
