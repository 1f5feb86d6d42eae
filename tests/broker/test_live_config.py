"""Request 25: what changes at once, what needs a restart, and the file that keeps it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import DiskFailed
from rmqha.broker.admin.config_changes import (
    CONTROLLERS_MAX,
    LIVE,
    UNCHANGED,
    ConfigRefused,
    read_update,
)
from rmqha.broker.common.settings import DEFAULTS
from rmqha.runtime.properties import edited, parse_properties
from tests.broker.replicas import TOPIC, ReplicaCluster, master_of
from tests.broker.subscriber import pull_fields

PATH = "/etc/broker.conf"
FILE = b"""# written by hand
brokerName=broker-a
slaveReadEnable = false
transactionTimeOut=\\
  6000
"""


@pytest.fixture
def cluster() -> Iterator[ReplicaCluster]:
    """One replica that was started with a file."""
    with ReplicaCluster(seed=31, replicas=1, config_path=PATH) as one:
        disk = one.disks[one.broker_hosts[0]]
        one.loop.run_until_complete(disk.make_dirs("/etc"))
        one.loop.run_until_complete(disk.write_atomic(PATH, FILE))
        one.boot_all()
        yield one


def update(cluster: ReplicaCluster, text: bytes) -> Any:
    """Send 25."""
    return cluster.ask(master_of(cluster).config.address, 25, {}, text)


def file_of(cluster: ReplicaCluster) -> str:
    """What the file says now."""
    disk = cluster.disks[cluster.broker_hosts[0]]
    return bytes(cluster.loop.run_until_complete(disk.read(PATH))).decode()


def shown(cluster: ReplicaCluster) -> dict[str, str]:
    """The answer to 26."""
    body = cluster.ask(master_of(cluster).config.address, 26).body.decode()
    return dict(line.split("=", 1) for line in body.splitlines())


def test_update_when_a_key_may_change_then_it_takes_effect_and_the_file_keeps_it(
    cluster: ReplicaCluster,
) -> None:
    """The lines of other keys, and remarks, stay."""
    assert update(cluster, b"slaveReadEnable=true\ntransactionTimeOut=9000\n").code == 0
    assert shown(cluster)["slaveReadEnable"] == "true"
    text = file_of(cluster)
    assert text.startswith("# written by hand\nbrokerName=broker-a\nslaveReadEnable=true\n")
    assert parse_properties(text)["transactionTimeOut"] == "9000"
    before = text
    assert update(cluster, b"slaveReadEnable=true").code == 0
    assert file_of(cluster) == before


@pytest.mark.parametrize(
    ("text", "code", "words"),
    [
        (b"storePathRootDir=/elsewhere", 16, "black list"),
        (b"listenPort=1\nslaveReadEnable=true", 16, "listenPort: read at start only"),
        (b"transactionCheckMax=many", 1, "transactionCheckMax=many is not a number"),
        (b"transactionCheckMax=0", 1, "must be positive"),
        (b"brokerPermission=99", 1, "brokerPermission=99 is not from 0 to 7"),
        (b"brokerPermission=-1", 1, "brokerPermission=-1 must not be negative"),
        (b"brokerPermission=", 1, "brokerPermission= is not a number"),
        (b"controllerAddr=c0:1", 1, "this broker has no controllers"),
        (b"slaveReadEnable=perhaps", 1, "neither true nor false"),
        (b"\xff", 1, "string2Properties error"),
        (b"noSuchKey=1\nslaveReadEnable=true", 1, "there is no key noSuchKey; nothing was changed"),
        (b"fileReservedTime=1", 16, "fileReservedTime: read at start only"),
        (b"deleteWhen=05\nmessageDelayLevel=1s", 16, "deleteWhen, messageDelayLevel: read at"),
    ],
)
def test_update_when_refused_then_nothing_changes(text: bytes, code: int, words: str) -> None:
    """All or nothing: a change that silently does half is found out in the next incident."""
    found = read_update(text, DEFAULTS)
    assert isinstance(found, ConfigRefused)
    assert (found.code, words in found.remark) == (code, True)


@pytest.mark.parametrize("key", ["minInSyncReplicas", "slaveReadEnable"])
def test_update_when_the_value_is_this_one_already_then_the_answer_says_so(
    cluster: ReplicaCluster, key: str
) -> None:
    """The answer "Updated" of a key that is read at the start made believe that it can be changed."""
    answer = update(cluster, f"{key}={shown(cluster)[key]}".encode())
    assert (answer.code, answer.remark) == (0, UNCHANGED)
    assert file_of(cluster) == FILE.decode()
    assert update(cluster, b"slaveReadEnable=true").remark is None


def test_update_when_only_the_file_has_a_key_then_it_is_named_as_unknown() -> None:
    """The file of a Java broker has keys that do nothing here; changing one looked like a success to come."""
    known = {**DEFAULTS, "sendMessageThreadPoolNums": "4"}
    for value in (b"4", b"8"):
        found = read_update(b"sendMessageThreadPoolNums=" + value, known)
        assert isinstance(found, ConfigRefused)
        assert "there is no key sendMessageThreadPoolNums" in found.remark


def test_update_when_the_file_cannot_be_written_then_nothing_changes(
    cluster: ReplicaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A change that a restart would undo must not look like one."""
    disk = cluster.disks[cluster.broker_hosts[0]]
    write = disk.write_atomic

    async def read_only(path: str, data: bytes) -> None:
        if path == PATH:
            raise DiskFailed("read-only file system")
        await write(path, data)

    monkeypatch.setattr(disk, "write_atomic", read_only)
    answer = update(cluster, b"slaveReadEnable=true")
    assert answer.code == 1
    assert "nothing is changed" in answer.remark
    assert "have the broker read its file again (SIGHUP" in answer.remark, "the other way"
    assert shown(cluster)["slaveReadEnable"] == "false"


@pytest.mark.costly
def test_transfer_limits_when_changed_then_the_next_pull_carries_as_much(
    cluster: ReplicaCluster,
) -> None:
    """32 messages at a time was all, whatever was set; Java with 1024 gives as many as are asked for."""
    cluster.send_many(160)
    broker = master_of(cluster)
    (queue_id,) = {one.queue_id for one in cluster.acked[:1]}
    count = sum(one.queue_id == queue_id for one in cluster.acked)
    assert count > 32

    def pulled() -> int:
        more = {"queueId": queue_id, "maxMsgNums": 1_000, "sysFlag": 4}
        fields = pull_fields("G", TOPIC, **more)
        texts = {name: str(value) for name, value in fields.items()}
        return int(cluster.ask(broker.config.address, 11, texts).ext_fields["nextBeginOffset"])

    assert pulled() == min(count, 32)
    assert update(cluster, b"maxTransferCountOnMessageInMemory=11").code == 0
    assert pulled() == 11
    assert update(cluster, b"maxTransferCountOnMessageInMemory=1000").code == 0
    assert pulled() == count
    assert update(cluster, b"maxTransferBytesOnMessageInMemory=1").code == 0
    assert pulled() == 1
    # As if the consumer were far behind: Java's defaults are 8 messages and 64 KiB.
    broker.near_bytes = -1
    assert pulled() == 8
    assert update(cluster, b"maxTransferCountOnMessageInDisk=9").code == 0
    assert pulled() == 9
    assert update(cluster, b"maxTransferBytesOnMessageInDisk=1").code == 0
    assert pulled() == 1


def test_short_polling_when_its_time_is_changed_then_a_pull_waits_as_long(
    cluster: ReplicaCluster,
) -> None:
    """Without long polling each pull waited for a second, whatever was set."""
    cluster.send_many(1)
    assert update(cluster, b"longPollingEnable=false\nshortPollingTimeMills=300").code == 0
    (sent,) = cluster.acked
    fields = pull_fields("G", TOPIC, sent.queue_offset + 1, queueId=sent.queue_id)
    texts = {name: str(value) for name, value in fields.items()}
    began_ms = cluster.loop.time() * 1000
    assert cluster.ask(master_of(cluster).config.address, 11, texts).code == 19
    assert 290 <= cluster.loop.time() * 1000 - began_ms <= 400


def test_broker_permission_when_taken_away_then_clients_and_name_servers_see_it(
    cluster: ReplicaCluster,
) -> None:
    """4 takes writes away in routes; 2 takes pulls away as well; 6 gives all back."""
    cluster.send_many(2)
    address = master_of(cluster).config.address

    def perm() -> int:
        _, body = cluster.name_server.registered[-1]
        return int(body["topicConfigSerializeWrapper"]["topicConfigTable"][TOPIC]["perm"])

    def pull() -> int:
        fields = pull_fields("G", TOPIC, sysFlag=4)
        return cluster.ask(address, 11, {name: str(value) for name, value in fields.items()}).code

    cluster.until(lambda: perm() == 6, "registration")
    assert pull() in (0, 19)
    assert update(cluster, b"brokerPermission=4").code == 0
    cluster.until(lambda: perm() == 4, "registration without writes")
    assert pull() in (0, 19)
    assert update(cluster, b"brokerPermission=2").code == 0
    cluster.until(lambda: perm() == 2, "registration without reads")
    assert pull() == 16
    assert cluster.ask(address, 200050, {
        "consumerGroup": "G", "topic": TOPIC, "queueId": "-1", "maxMsgNums": "1",
        "invisibleTime": "9000", "pollTime": "0", "initMode": "0",
    }).code == 16  # fmt: skip
    assert update(cluster, b"brokerPermission=6").code == 0
    cluster.until(lambda: perm() == 6, "registration with all")
    assert master_of(cluster).topics.table.topics[TOPIC].perm == 6


IN_A_SET = {**DEFAULTS, "enableControllerMode": "true", "controllerAddr": "c0:1;c1:1"}


@pytest.mark.parametrize(
    ("value", "words"),
    [
        ("", "controllerAddr names nobody"),
        (" ; ", "controllerAddr names nobody"),
        ("c0", "controllerAddr: address 'c0' is not host:port"),
        ("c0:1,c1:1", "controllerAddr: address 'c0:1,c1:1' is not host:port"),
        ("c0:1;c1:99999", "has a port outside 1..65535"),
        ("c0:1;c1:1;c0:1", "controllerAddr names c0:1 more than once"),
        (";".join(f"c{i}:1" for i in range(CONTROLLERS_MAX + 1)), f"{CONTROLLERS_MAX} at most"),
    ],
)
def test_controllers_when_the_list_cannot_be_meant_then_it_is_refused(
    value: str, words: str
) -> None:
    """A majority is counted of it: a typing error would be one controller too many, or none at all."""
    found = read_update(f"controllerAddr={value}".encode(), IN_A_SET)
    assert isinstance(found, ConfigRefused)
    assert (found.code, words in found.remark) == (1, True), found.remark


def test_controllers_when_the_list_is_good_then_it_is_taken_as_it_stands() -> None:
    """With blanks, as people write it; the largest that is taken, too."""
    for text in ("c0:1; c3:1", ";".join(f"c{i}:1" for i in range(CONTROLLERS_MAX))):
        assert read_update(f"controllerAddr={text}".encode(), IN_A_SET) == {"controllerAddr": text}


def test_controllers_when_changed_then_they_are_asked_at_once_and_the_file_keeps_them(
    cluster: ReplicaCluster,
) -> None:
    """Java looks at the key every two minutes, and at whom it reaches every three seconds."""
    broker = master_of(cluster)
    listed = ";".join(broker.config.controllers[::-1])
    assert update(cluster, f"controllerAddr={listed}".encode()).code == 0
    assert parse_properties(file_of(cluster))["controllerAddr"] == listed
    assert broker.replicas.search.configured == tuple(listed.split(";"))
    assert broker.config.controllers == tuple(listed.split(";"))


def test_controllers_when_the_file_of_a_broker_alone_names_some_then_a_reload_takes_the_rest() -> (
    None
):
    """It does not look at them at its start either."""
    with ReplicaCluster(seed=32, replicas=1, enableControllerMode="false") as alone:
        alone.boot_all()
        broker = master_of(alone)
        wanted = {"controllerAddr": "c0:1", "slaveReadEnable": "true"}
        assert broker.admin.change_config(wanted) is None
        assert broker.config.values["slaveReadEnable"] == "true"
        assert broker.config.values["controllerAddr"] == ""


def test_live_keys_when_settings_are_read_then_all_of_them_are_listed() -> None:
    """In an incident nobody has the time to try which keys are taken without a restart."""
    text = (Path(__file__).parents[2] / "docs" / "SETTINGS.md").read_text()
    (listed,) = [line for line in text.splitlines() if line.startswith("A running broker takes ")]
    names = set(re.findall(r"`(\w+)`", listed))
    assert names >= LIVE
    assert names & set(DEFAULTS) == LIVE


def test_live_keys_are_known() -> None:
    """A key that is renamed would be refused for ever."""
    assert set(DEFAULTS) >= LIVE


WORDS = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=12)


@pytest.mark.slow
@given(
    before=st.dictionaries(st.sampled_from("abc"), WORDS), extra=WORDS,
    changed=st.dictionaries(st.sampled_from("abd"), WORDS.map(str.strip)),
    style=st.sampled_from(["{k}={v}\n", "{k} : {v}\r\n", "{k}\\\n  ={v}\n"]),
)  # fmt: skip
def test_files_when_edited_then_other_keys_and_remarks_stay(
    before: dict[str, str], extra: str, changed: dict[str, str], style: str
) -> None:
    """Whatever people have written there."""
    plain = {key: "".join(c for c in value if c.isalnum()) for key, value in before.items()}
    remark = "# " + "".join(c for c in extra if c.isalnum()) + "\n"
    text = remark + "".join(style.format(k=key, v=value) for key, value in plain.items())
    after = edited(text, changed)
    assert parse_properties(after) == plain | changed
    assert after.startswith(remark)
