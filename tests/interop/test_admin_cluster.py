"""mqadmin of both kinds against clusters of both kinds: four outputs of every command, compared.

A Java and a Python cluster have the same topics, messages and groups. On one cluster the real
mqadmin and ours must print the same bytes, but for what :func:`comparable` names. Between the
clusters the same lines must come, but for what :func:`shared` names.
"""

from __future__ import annotations

import base64
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from rmqha.admin import messages
from rmqha.cli.mqadmin import main
from rmqha.testing.real import wire
from rmqha.testing.real.java import CLUSTER_NAME, JavaBroker, NameServer
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from tests.interop import required
from tests.interop.client_peer import ClientPeer

SOURCE = Path(__file__).parent / "java" / "AdminPeer.java"
BROKER = "broker-a"
TOPIC = "Shown"
QUEUES = 2
MESSAGES = 6
ALONE = {
    "enableControllerMode": False, "brokerRole": "ASYNC_MASTER", "brokerId": 0,
    "messageIndexEnable": True, "timerWheelEnable": True,
}  # fmt: skip
JAVA, PYTHON = "java", "python"


@dataclass
class Side:
    """One cluster."""

    name: str
    servers: str
    broker: JavaBroker
    ids: list[str] = field(default_factory=list)
    members: list[wire.Connection] = field(default_factory=list)

    def words(self, args: tuple[str, ...], own: str) -> list[str]:
        """A command's words with this cluster's addresses and ids in their places."""
        places = {"{b}": self.broker.address, "{c}": CLUSTER_NAME, "{own}": own}
        places |= {f"{{id{number}}}": text for number, text in enumerate(self.ids)}
        found = []
        for word in args:
            for place, text in places.items():
                word = word.replace(place, text)
            found.append(word)
        return found


@dataclass
class Stage:
    """Both clusters, and a JVM that runs the real mqadmin's commands."""

    sides: dict[str, Side]
    peer: ClientPeer

    def real(self, side: Side, name: str, *args: str) -> str:
        """What the real mqadmin prints."""
        words = [name, "-n", side.servers, *side.words(args, "MadeByJava")]
        text = base64.b64decode(self.peer.ask("\t".join(words))).decode()
        # It writes all tracks of a message into one line.
        return _TRACKS.sub("]\n", text) if name == "queryMsgByUniqueKey" else text

    def ours(self, side: Side, name: str, *args: str, style: str = "--plain") -> str:
        """What ours prints; it must succeed."""
        words = [name, "-n", side.servers, *side.words(args, "MadeByUs"), style]
        result = CliRunner().invoke(main, words)
        assert result.exit_code == 0, f"{words}: {result.output}"
        return str(result.stdout)

    def four(self, name: str, *args: str) -> None:
        """Compare the outputs of both tools on both clusters."""
        lines = {}
        for side in self.sides.values():
            real, ours = self.real(side, name, *args), self.ours(side, name, *args)
            assert comparable(name, ours) == comparable(name, real), side.name
            lines[side.name] = shared(real)
        assert lines[PYTHON] == lines[JAVA]


_TRACKS = re.compile(r"\](?=MessageTrack \[|\Z)")

_MOVING = [
    # Rates of the last seconds; the real topicStatus always says 0.0.
    (re.compile(r"((?:T|t)ps *: |TPS: ).*"), r"\1RATE"),
    (re.compile(r" +\d+\.\d+(\(\d+,\d+ms)"), r" RATE\1"),
    # How many seconds the timer wheel is behind.
    (re.compile(r"\d+-\d+(\(\d+\.\dw, )"), r"BEHIND\1"),
    # The age of the oldest message, how full the disk is, and figures that grow while we look.
    (re.compile(r"(ms\).* )\d+\.\d\d( +)0\.\d{4} "), r"\1HOURS\2SPACE "),
    (re.compile(r"((?:runtime|\S*Latency\S*|put(?:Rate|MessageEntireTimeMax|MessageSizeTotal|"
                r"MessageTimesTotal|MessageDistributeTime)|getMessageEntireTimeMax|heldPulls|"
                r"pageCacheLockTimeMills|timer(?:Read|Offset)Behind|dispatchBehindBytes|\S*DiskRatio\S*|commitLogDirCapacity|"
                r"remainHowManyDataToFlush|\S*HeadWaitTimeMills|\S*QueueSize|(?:scrubbed|scrubCompared)Bytes|msg(?:Get|Put)TotalTodayNow) *: ).*"), r"\1FIGURE"),
    # Why a group without a retry topic has no track: the client's exception, with its stack.
    (re.compile(r"(trackType=UNKNOWN, exceptionDesc=).*?(?=\]\n)", re.DOTALL), r"\1WHY"),
    # The names that each tool made for itself.
    (re.compile(r"MadeBy(Java|Us)"), "Own"),
    (re.compile(r"timestamp\(string\)\[\d+\], timestamp\(long\)\[\d+\]"), "TIMESTAMP"),
]  # fmt: skip
_UNSORTED = {
    "getBrokerConfig",
    "getNamesrvConfig",
    "consumerConnection",
    "resetOffsetByTime",
    "consumeMessage",
}
"""Lines, or queues, in the order of a hash table; ours are sorted."""


def comparable(name: str, text: str) -> list[str]:
    """The lines that both tools must print of one cluster."""
    for pattern, words in _MOVING:
        text = pattern.sub(words, text)
    lines = text.rstrip("\n").split("\n")
    return sorted(lines) if name in _UNSORTED else lines


_OWN = [
    # Each cluster has its ports, ids and moments, and its records lie where they do.
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"\b[0-9A-F]{32,56}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d(,\d{3})?"), "TIME"),
    (re.compile(r"(imestamp=|ommitLogOffset=|CommitLog Offset: +|MaxOffset\t)\d+"), r"\1N"),
    # Each broker names its own release.
    (re.compile(r"V5_\d_\d|rmqha_\d+\.\d+\.\d+"), "VERSION"),
    (re.compile(r"\d+\.\d+"), "N"),
    # How many topics the brokers' own are.
    (re.compile(r"OK, \d+"), "OK, N"),
    # Columns follow the width of addresses.
    (re.compile(r" +"), " "),
]
# A Java 5.3.3 broker names a topic as one of its own consumers; ours keeps offsets of the group that
# ends transactions.
_EXTRA = re.compile(rf" {TOPIC} {TOPIC} $|consumerGroup={TOPIC},")
_TRANSACTIONS = "CID_RMQ_SYS_TRANS"


def shared(text: str) -> list[str]:
    """The lines that both clusters must have."""
    for pattern, words in _MOVING + _OWN:
        text = pattern.sub(words, text)
    lines = (line.replace(_TRANSACTIONS, "") for line in text.rstrip("\n").split("\n"))
    return sorted(re.sub(" +", " ", line) for line in lines if not _EXTRA.search(line))


def heartbeat(group: str, kind: str, tags: list[str]) -> bytes:
    """34's body of one consumer."""
    subscription = {
        "classFilterMode": False, "codeSet": [], "expressionType": "TAG", "subString": "*",
        "subVersion": 1, "tagsSet": tags, "topic": TOPIC,
    }  # fmt: skip
    consumer = {
        "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET", "consumeType": kind, "groupName": group,
        "messageModel": "CLUSTERING", "subscriptionDataSet": [subscription], "unitMode": False,
    }  # fmt: skip
    members = {"clientID": f"127.0.0.1@{group}", "consumerDataSet": [consumer],
               "heartbeatFingerprint": 0, "withoutSub": False,
               "producerDataSet": [{"groupName": f"ProducerOf{group}"}]}  # fmt: skip
    return json.dumps(members).encode()


def prepare(stage: Stage, side: Side) -> None:
    """The topic, its messages, and groups of every kind: online, filtered, pulling, offline."""
    stage.ours(side, "updateTopic", "-c", "{c}", "-t", TOPIC, "-r", str(QUEUES), "-w", str(QUEUES))
    wait_for_route(side, TOPIC)
    for number in range(MESSAGES):
        sent = stage.ours(
            side, "sendMessage", "-t", TOPIC, "-p", f"body-{number}", "-k", f"key-{number} all",
            "-c", "TagA", "-b", BROKER, "-i", str(number % QUEUES), style="--json",
        )  # fmt: skip
        side.ids.append(json.loads(sent)["msgId"])
    for group, kind, tags in (
        ("Pushed", "CONSUME_PASSIVELY", []), ("Filtered", "CONSUME_PASSIVELY", ["TagB"]),
        ("Pulling", "CONSUME_ACTIVELY", []), ("Offline", "CONSUME_PASSIVELY", []),
    ):  # fmt: skip
        member = wire.Connection(side.broker.address)
        member.ask(34, {}, heartbeat(group, kind, tags))
        for queue, offset in ((0, 2), (1, 3)):
            member.ask(15, {"consumerGroup": group, "topic": TOPIC, "queueId": queue,
                            "commitOffset": offset})  # fmt: skip
        if group == "Offline":
            member.close()
        else:
            side.members.append(member)
    with wire.Connection(side.broker.address) as connection:
        wait_until(
            lambda: connection.invoke(203, {"consumerGroup": "Offline"}).code == 206, 20.0,
            "the group to be offline",
        )  # fmt: skip
    for group in ("Pushed", "Filtered", "Pulling", "Offline"):
        wait_for_route(side, f"%RETRY%{group}")
    wait_until(lambda: len(json.loads(_found(side))) == MESSAGES, 20.0, "the index of the messages")


def wait_for_route(side: Side, topic: str) -> None:
    """Wait until the name server knows a topic: our broker tells it after it has answered."""
    with wire.Connection(side.servers) as connection:
        wait_until(
            lambda: wire.broker_addresses(connection, topic, BROKER), 20.0, f"a route of {topic}"
        )


def _found(side: Side) -> str:
    words = ["queryMsgByKey", "-n", side.servers, "-t", TOPIC, "-k", "all", "--json"]
    result = CliRunner().invoke(main, words)
    return result.stdout if result.exit_code == 0 else "[]"


@pytest.fixture(scope="module")
def stage(folder: Path) -> Iterator[Stage]:
    """Both clusters with the same in them."""
    required.require_classpath()
    servers = {
        JAVA: NameServer(folder / "java-namesrv", allocate_ports()[0]),
        PYTHON: PythonNameServer(folder / "python-namesrv", allocate_ports()[0]),
    }
    sides = {
        name: Side(name, server.address, JavaBroker(
            folder / f"{name}-broker", allocate_ports(), 1, server.address, "",
            broker_name=BROKER, settings=ALONE,
        ))
        for name, server in servers.items()
    }  # fmt: skip
    ours = sides[PYTHON].broker
    command = [sys.executable, "-m", "rmqha.cli.mqbroker", "-c",
               str(ours.home / "broker.properties")]  # fmt: skip
    ours.child = Child("python1", command, ours.home / "out.log")
    try:
        for server in servers.values():
            server.start()
        for side in sides.values():
            servers[side.name].wait_ready()
            side.broker.start()
        with ClientPeer(folder / "mqadmin", name="mqadmin", source=SOURCE) as peer:
            stage = Stage(sides, peer)
            for side in sides.values():
                side.broker.wait_ready()
                with wire.Connection(side.servers) as connection:
                    wait_until(
                        lambda to=connection: wire.broker_addresses(to, BROKER, BROKER), 30.0,
                        "the broker",
                    )  # fmt: skip
                prepare(stage, side)
            yield stage
    finally:
        for side in sides.values():
            for member in side.members:
                member.close()
            side.broker.child.kill()
            servers[side.name].child.kill()


READING = [
    "clusterList", "clusterList -m", "clusterList -c {c}",
    "topicList", "topicList -c",
    f"topicRoute -t {TOPIC}", f"topicRoute -t {TOPIC} -l", "topicRoute -t TBW102",
    f"topicStatus -t {TOPIC}", f"topicStatus -t {TOPIC} -c {{c}}",
    "consumerProgress", "consumerProgress -g Pushed", f"consumerProgress -g Pushed -t {TOPIC}",
    "consumerProgress -g Offline", "brokerConsumeStats -b {b}", "brokerConsumeStats -b {b} -l 1",
    "haStatus -b {b}", "haStatus -c {c}",
    f"queryMsgById -t {TOPIC} -i {{id2}} -f UTF-8", f"queryMsgById -t {TOPIC} -i {{id5}},{{id0}}",
    f"queryMsgByUniqueKey -t {TOPIC} -i {{id2}}", f"queryMsgByUniqueKey -t {TOPIC} -i {{id1}} -a",
    "consumerConnection -g Filtered", "consumerConnection -g Pushed -b {b}",
    f"producerConnection -g ProducerOfPushed -t {TOPIC}",
    f"queryMsgByKey -t {TOPIC} -k all", f"queryMsgByKey -t {TOPIC} -k key-3 -m 1",
    f"queryMsgByOffset -t {TOPIC} -b {BROKER} -i 1 -o 2 -f UTF-8",
    f"consumeMessage -t {TOPIC}", f"consumeMessage -t {TOPIC} -b {BROKER} -i 1",
    f"consumeMessage -t {TOPIC} -b {BROKER} -i 1 -o 1 -c 1",
]  # fmt: skip


@pytest.mark.parametrize("line", READING)
def test_reading_command_when_run_by_both_on_both_then_the_same(stage: Stage, line: str) -> None:
    """What operators look at must not depend on the tool, nor on who wrote the broker."""
    name, *args = line.split()
    stage.four(name, *args)


@pytest.mark.parametrize("line", READING)
def test_json_when_asked_of_both_clusters_then_of_one_shape(stage: Stage, line: str) -> None:
    """A program written for one cluster works with the other."""
    name, *args = line.split()
    shapes = []
    for side in stage.sides.values():
        data = json.loads(stage.ours(side, name, *args, style="--json"))
        shapes.append(_shape(data))
    assert shapes[0] == shapes[1]


def _shape(value: Any) -> Any:
    """Names and types; of a list the first item's; figures by name differ by broker."""
    if isinstance(value, dict):
        return {name: _shape(item) for name, item in value.items() if name != "runtime"}
    if isinstance(value, list):
        return [_shape(value[0])] if value else []
    return "null or text" if value is None or isinstance(value, str) else type(value).__name__


WRITING = [
    "updateTopic -c {c} -t {own} -r 4 -w 3", "updateTopic -b {b} -t {own} -p 4 -u true",
    "updateTopic -c {c} -t {own} -o true", "updateTopic -c {c} -t {own}2 -a +message.type=FIFO",
    "updateSubGroup -c {c} -g {own} -r 3 -d true", "updateSubGroup -b {b} -g {own} -s false -q 2",
    f"resetOffsetByTime -g Pushed -t {TOPIC} -s 0",
    f"resetOffsetByTime -g Offline -t {TOPIC} -s 9999999999999 -f true",
    f"resetOffsetByTime -g Pushed -t {TOPIC} -s 0 -b {{b}} -q 1 -o 2",
    "updateBrokerConfig -b {b} -k messageIndexEnable -v true",
    "updateBrokerConfig -c {c} -k messageIndexEnable -v true",
    f"wipeWritePerm -b {BROKER}", f"addWritePerm -b {BROKER}",
    "updateTopicPerm -c {c} -t {own}2 -p 4", "deleteTopic -c {c} -t {own}2",
    "deleteSubGroup -b {b} -g {own}", "deleteSubGroup -c {c} -g {own} -r true",
]  # fmt: skip


def test_writing_commands_when_run_by_both_on_both_then_the_same(stage: Stage) -> None:
    """In order: each builds on what those before it have done."""
    for line in WRITING:
        name, *args = line.split()
        stage.four(name, *args)


def test_changes_when_made_by_either_then_the_cluster_has_them(stage: Stage) -> None:
    """To print success is not to have done it: made by one tool, looked at by the other."""
    for side in stage.sides.values():
        for made, make, look in (("Ua", stage.ours, stage.real), ("Ub", stage.real, stage.ours)):
            make(side, "updateTopic", "-b", "{b}", "-t", made, "-r", "5", "-w", "5", "-p", "4")
            wait_for_route(side, made)
            row = look(side, "topicRoute", "-t", made, "-l").splitlines()[1].split()
            assert row[-3:] == ["5", "5", "4"], side.name
            make(side, "wipeWritePerm", "-b", BROKER)
            assert '"perm":4' in look(side, "topicRoute", "-t", "BenchmarkTest"), side.name
            make(side, "addWritePerm", "-b", BROKER)
            assert '"perm":6' in look(side, "topicRoute", "-t", "BenchmarkTest"), side.name
            make(side, "resetOffsetByTime", "-g", "Offline", "-t", TOPIC, "-s", "0")
            progress = look(side, "consumerProgress", "-g", "Offline").splitlines()
            assert [line.split()[4] for line in progress if line.startswith(TOPIC)] == ["0", "0"]
            make(side, "deleteTopic", "-c", "{c}", "-t", made)
            assert made not in look(side, "topicList").splitlines(), side.name


def test_sent_by_either_when_consumed_by_the_other_then_whole(stage: Stage) -> None:
    """310 of both tools, and the other's 11."""
    for side in stage.sides.values():
        stage.ours(side, "updateTopic", "-b", "{b}", "-t", "Sent", "-r", "1", "-w", "1")
        wait_for_route(side, "Sent")
        outputs = [
            tool(side, "sendMessage", "-t", "Sent", "-p", "grüße", "-k", "k1 k2", "-c", "tag",
                 "-b", BROKER, "-i", "0")
            for tool in (stage.ours, stage.real)
        ]  # fmt: skip
        assert shared(outputs[0]) == shared(outputs[1])
        read = [
            tool(side, "consumeMessage", "-t", "Sent", "-b", BROKER, "-i", "0")
            for tool in (stage.ours, stage.real)
        ]
        assert comparable("consumeMessage", read[0]) == comparable("consumeMessage", read[1])
        assert read[0].count("BODY: grüße") == 2, side.name
        assert read[0].count("KEYS=k1 k2") == 2, side.name


def test_figures_when_asked_of_both_then_ours_lacks_none(stage: Stage) -> None:
    """brokerStatus; both tools print all that a broker says."""
    names = {}
    for side in stage.sides.values():
        for args in (("-b", "{b}"), ("-c", "{c}")):
            real = stage.real(side, "brokerStatus", *args)
            ours = stage.ours(side, "brokerStatus", *args)
            assert comparable("brokerStatus", ours) == comparable("brokerStatus", real), side.name
        text = stage.ours(side, "brokerStatus", "-b", "{b}")
        names[side.name] = {line.split(":")[0].strip() for line in text.splitlines()}
    # One figure is named by the store's path.
    lacking = {one for one in names[JAVA] - names[PYTHON] if "commitLogDiskRatio_" not in one}
    assert not lacking


def test_settings_when_asked_and_changed_by_either_then_the_same(stage: Stage) -> None:
    """getBrokerConfig and updateBrokerConfig, in the unit of the broker that is asked."""
    for side in stage.sides.values():
        for args in (("-b", "{b}"), ("-c", "{c}")):
            real = stage.real(side, "getBrokerConfig", *args)
            ours = stage.ours(side, "getBrokerConfig", *args)
            assert comparable("getBrokerConfig", ours) == comparable("getBrokerConfig", real)
        real, ours = stage.real(side, "getNamesrvConfig"), stage.ours(side, "getNamesrvConfig")
        assert comparable("getNamesrvConfig", ours) == comparable("getNamesrvConfig", real)
        config = json.loads(stage.ours(side, "getBrokerConfig", "-b", "{b}", style="--json"))
        values = config[side.broker.address]
        expected = {"brokerName": BROKER, "brokerClusterName": CLUSTER_NAME, "brokerId": "0",
                    "listenPort": str(side.broker.port), "messageIndexEnable": "true"}  # fmt: skip
        assert expected.items() <= values.items(), side.name


COMMANDS = sorted(
    {line.split()[0] for line in (*READING, *WRITING)}
    | {"brokerStatus", "getBrokerConfig", "sendMessage", "getNamesrvConfig", "updateNamesrvConfig"}
)
_FLAG = re.compile(r"^ (?:-(\w+),)?(?:--(\w+)| *-(\w+) )", re.MULTILINE)


@pytest.mark.parametrize("name", COMMANDS)
def test_flags_when_java_has_them_then_ours_has_them_too(stage: Stage, name: str) -> None:
    """Short and long: scripts use either."""
    help_text = base64.b64decode(stage.peer.ask(f"help\t{name}")).decode()
    theirs = {f"-{one[0] or one[2]}" for one in _FLAG.findall(help_text) if one[0] or one[2]}
    theirs |= {f"--{one[1]}" for one in _FLAG.findall(help_text) if one[1]}
    assert {"-n", "--namesrvAddr", "-h", "--help"} <= theirs, help_text
    ours = {flag for option in main.commands[name].params for flag in option.opts}
    assert theirs - ours - {"-h", "--help"} == set()


ERRORS = [
    ("topicRoute -t Nobody", 17), ("topicStatus -t Nobody", 17), ("consumerProgress -g Nobody", 17),
    (f"resetOffsetByTime -g Nobody -t {TOPIC} -s 0", 26),
    (f"queryMsgByKey -t {TOPIC} -k nobody", None), ("updateTopic -b {b} -t a/b", 29),
    ("sendMessage -t SCHEDULE_TOPIC_XXXX -p x", None),
    ("updateBrokerConfig -b {b} -k brokerConfigPath -v x", 16),
]  # fmt: skip


@pytest.mark.parametrize(("line", "code"), ERRORS)
def test_refused_when_asked_by_both_then_one_line_and_exit_code_1(
    stage: Stage, line: str, code: int | None
) -> None:
    """The real tool prints a stack trace and exits with 0."""
    name, *args = line.split()
    for side in stage.sides.values():
        real = stage.real(side, name, *args)
        result = CliRunner().invoke(
            main, [name, "-n", side.servers, *side.words(tuple(args), ""), "--plain"]
        )
        assert (result.exit_code, result.stdout) == (1, ""), side.name
        assert result.stderr.count("\n") == 1, result.stderr
        assert "Exception" in real, side.name
        if code is not None:
            assert f"CODE: {code} " in real, side.name
            assert f"CODE: {code} " in result.stderr, side.name


@pytest.fixture(scope="module", autouse=True)
def _bodies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Remove the files that both tools leave in the machine's /tmp, where Java wants them."""
    folder = Path(messages.BODY_FOLDER)
    before = set(folder.iterdir()) if folder.exists() else set()
    yield
    for path in set(folder.iterdir()) - before if folder.exists() else ():
        path.unlink()
