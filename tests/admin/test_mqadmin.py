"""The command line against an in-process controller: exit codes, renderings, usage."""

from __future__ import annotations

import asyncio
import errno
import json
import os
import re
import socket
import stat
import tempfile
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqha.admin import messages
from rmqha.admin.controller_state import ControllerState
from rmqha.admin.java_commands import NOT_HERE
from rmqha.admin.messages import decode_messages
from rmqha.cli.mqadmin import main
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer, unsupported
from rmqha.remoting.broker_set_state import BrokerSetState, RegisteredReplica
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from tests.admin.golden import CLUSTER, CONTROLLER, NAME_SERVER, last_answer

MEMBER = {"clientId": "c@1", "clientAddr": "10.0.0.9:1", "language": "JAVA", "version": 479}
Reply = Callable[[RemotingCommand], RemotingCommand]
FIRST = {
    code: answer for one in reversed(CLUSTER) for _, code, answer in reversed(one.answers)
    if answer.code == 0
}  # fmt: skip
"""The first captured success of each request of a cluster, but of the route of Shown."""
FIRST[105] = next(one.answers[0][2] for one in CLUSTER if one.line[0] == "topicStatus")
FIRST[1012] = RemotingCommand(0, ext_fields={"nextBrokerId": "3"})
FIRST[310] = RemotingCommand(0, ext_fields={"msgId": "X", "queueId": "0", "queueOffset": "7"})
FIRST[203] = RemotingCommand(0, body=fastjson.dumps({"connectionSet": [MEMBER]}))
FIRST[204] = FIRST[203]
FIRST[207] = FIRST[318] = RemotingCommand(0)
FIRST[319] = RemotingCommand(0, body=b"listenPort=9876\n")
UNIQUE_ID = decode_messages(FIRST[12].body)[0].message_id
MESSAGE_ID = next(one.line[-3] for one in CLUSTER if one.line[0] == "queryMsgById")


STATIC = {
    "topicName": "Static", "readQueueNums": 1, "writeQueueNums": 1, "perm": 6,
    "mappingDetail": {
        "topic": "Static", "bname": "broker-a", "totalQueues": 1, "epoch": 1,
        "hostedQueues": {"0": [{"bname": "broker-a"}]},
    },
}  # fmt: skip
"""A static topic as broker-a, the only one, knows it."""


VIEW = {
    "nodeId": "n0", "role": "leader", "term": 3, "leaderId": "n0", "appliedIndex": 9,
    "commitIndex": 9, "members": [{"id": "n0", "address": "HERE", "votes": True}],
    "brokerSets": {"broker-a": {"masterBrokerId": 1, "masterEpoch": 2, "syncStateSet": [1]}},
}  # fmt: skip
"""What one controller believes; no election is known."""
OWN = {60011: {"elections": []}, 60013: {}, 60020: {}, 60021: {}, 60022: VIEW}


_USER = b'{"username":"ann","password":"p","userType":"Super","userStatus":"enable"}'
_ACL = b'{"subject":"User:ann","policies":[]}'
KEPT = {3004: _USER, 3005: b"[" + _USER + b"]", 3009: _ACL, 3010: b"[" + _ACL + b"]"}
"""Users and their policies."""


class Cluster:
    """One port that answers as the captured name server, controller and broker do.

    Attributes:
        folder: for files that command lines name.
        replies: answers of a test's own, by request code.
        asked: request codes in order.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.replies: dict[int, Reply] = {}
        self.asked: list[int] = []
        self.server = RemotingServer(TcpNetwork(), SystemClock(), RemotingSettings(), self)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server.port}"

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        for command in commands:
            self.asked.append(command.code)
            connection.send(self._reply(command))

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        pass

    def _reply(self, command: RemotingCommand) -> RemotingCommand:
        if command.code in self.replies:
            return self.replies[command.code](command)
        if command.code == 1005:
            return self._here(command, last_answer(CONTROLLER, 1005))
        if command.code == 106:
            return self._here(command, last_answer(NAME_SERVER, 106))
        if command.code == 1007:
            return self._here(command, last_answer("127.0.0.1:30911", 1007))
        if command.code in {1002, 1006, 1009, 1010, 1011}:
            return self._here(command, last_answer(CONTROLLER, command.code))
        if command.code in OWN:
            return command.reply(
                0, body=fastjson.dumps(OWN[command.code]).replace(b"HERE", self.address.encode())
            )
        if command.code == 351:
            return command.reply(0, body=fastjson.dumps(STATIC))
        if 3001 <= command.code <= 3010 or command.code == 513:
            return command.reply(0, body=KEPT.get(command.code, b""))
        if command.code in FIRST:
            return self._here(command, FIRST[command.code])
        return unsupported(command)

    def _here(self, command: RemotingCommand, answer: RemotingCommand) -> RemotingCommand:
        """The captured answer, with this port in place of the captured ones."""
        fields = dict(answer.ext_fields or {})
        if "controllerLeaderAddress" in fields:
            fields["controllerLeaderAddress"] = self.address
        if "peers" in fields:
            fields["peers"] = f"n0:{self.address};"
        body = answer.body
        if command.code in {105, 106}:
            for port in (b"30911", b"30921", b"20022"):
                body = body.replace(port, str(self.server.port).encode())
        return command.reply(answer.code, answer.remark, fields, body)


@pytest.fixture(autouse=True)
def body_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Folders of the test's own in the place of the machine's."""
    folder = tmp_path / "rocketmq" / "msgbodys"
    monkeypatch.setattr(messages, "BODY_FOLDER", str(folder))
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    return folder


@pytest.fixture
async def cluster(tmp_path: Path) -> AsyncIterator[Cluster]:
    """A cluster on a free port."""
    cluster = Cluster(tmp_path)
    await cluster.server.start("127.0.0.1", 0)
    yield cluster
    await cluster.server.close()


async def mqadmin(*arguments: str, env: dict[str, str | None] | None = None) -> Result:
    """Run a command line in a thread; it brings its own event loop."""
    runner = CliRunner()
    return await asyncio.to_thread(runner.invoke, main, list(arguments), env=env)


def state_file(cluster: Cluster) -> str:
    """What an export of a set without a master would have written, of one that is new here."""
    replicas = (RegisteredReplica(1, free_address()),)
    known = BrokerSetState("DefaultCluster", "broker-z", 3, None, 3, (), 7, replicas)
    path = cluster.folder / "old.json"
    path.write_bytes(ControllerState(1, 0, (cluster.address,), (known,), {}, {}).encode())
    return str(path)


def lines_of(cluster: Cluster) -> dict[str, list[str]]:
    """A good command line of every command."""
    here = cluster.address
    return {
        "getControllerMetaData": ["-a", here],
        "getSyncStateSet": ["-a", here, "-b", "broker-a"],
        "controllerViews": ["-a", here],
        "addController": ["-a", here, "-i", "n9", "--address", here],
        "removeController": ["-a", here, "-i", "n9"],
        "transferControllerLeader": ["-a", here, "-i", "n1"],
        "exportControllerState": [
            "-a",
            here,
            "-n",
            here,
            "-o",
            f"{tempfile.gettempdir()}/state.json",
        ],
        "importControllerState": ["-a", here, "-f", state_file(cluster)],
        "getBrokerEpoch": ["-n", here, "-b", "broker-a"],
        "electionHistory": ["-a", here, "-b", "broker-a"],
        "switchMaster": ["-a", here, "-b", "2", "-bn", "broker-a", "-c", "DefaultCluster"],
        "electMaster": ["-a", here, "-b", "2", "-bn", "broker-a", "-c", "DefaultCluster"],
        "cleanBrokerMetadata": ["-a", here, "-b", "1", "-bn", "broker-a", "-c", "DefaultCluster"],
        "getControllerConfig": ["-a", here],
        "updateControllerConfig": ["-a", here, "-k", "notifyBrokerRoleChanged", "-v", "true"],
        "clusterList": ["-n", here],
        "topicList": ["-n", here],
        "topicRoute": ["-n", here, "-t", "Shown"],
        "topicStatus": ["-n", here, "-t", "Shown"],
        "updateTopic": ["-b", here, "-t", "Shown"],
        "deleteTopic": ["-n", here, "-c", "DefaultCluster", "-t", "Shown"],
        "updateSubGroup": ["-b", here, "-g", "G"],
        "consumerProgress": ["-n", here, "-g", "G"],
        "brokerStatus": ["-b", here],
        "brokerConsumeStats": ["-b", here],
        "haStatus": ["-b", here],
        "getBrokerConfig": ["-b", here],
        "updateBrokerConfig": ["-b", here, "-k", "key", "-v", "value"],
        "wipeWritePerm": ["-n", here, "-b", "broker-a"],
        "addWritePerm": ["-n", here, "-b", "broker-a"],
        "queryMsgById": ["-n", here, "-t", "Shown", "-i", MESSAGE_ID],
        "consumerConnection": ["-n", here, "-g", "G"],
        "producerConnection": ["-n", here, "-g", "PG", "-t", "Shown"],
        "deleteSubGroup": ["-n", here, "-c", "DefaultCluster", "-g", "G"],
        "getNamesrvConfig": ["-n", here],
        "updateNamesrvConfig": ["-n", here, "-k", "key", "-v", "value"],
        "updateTopicPerm": ["-b", here, "-t", "Static", "-p", "4"],
        "queryMsgByUniqueKey": ["-n", here, "-t", "Shown", "-i", UNIQUE_ID],
        "queryMsgByKey": ["-n", here, "-t", "Shown", "-k", "key-2"],
        "queryMsgByOffset": ["-n", here, "-t", "Shown", "-b", "broker-a", "-i", "1", "-o", "2"],
        "sendMessage": ["-n", here, "-t", "Shown", "-p", "hello"],
        "updateStaticTopic": ["-n", here, "-t", "Static", "-c", "DefaultCluster", "-qn", "2"],
        "remappingStaticTopic": ["-n", here, "-t", "Static", "-b", "broker-a"],
        "queryLogicalQueueMapping": ["-n", here, "-t", "Static"],
        "updateLogicalQueueNum": ["-n", here, "-t", "Static", "-b", "broker-a", "-qn", "2"],
        "migrateLogicalQueue": ["-n", here, "-t", "Static", "-i", "0", "-b", "broker-a"],
        "updateLogicalQueueMapping": ["-n", here, "-t", "Static", "-c", "DefaultCluster"],
        "deleteLogicalQueue": ["-n", here, "-t", "S", "-c", "DefaultCluster", "-fr", "true"],
        "consumeMessage": ["-n", here, "-t", "Shown", "-b", "broker-a", "-i", "1"],
        "resetOffsetByTime": ["-n", here, "-g", "G", "-t", "Shown", "-s", "now"],
        "createUser": ["-b", here, "-u", "ann", "-p", "p"],
        "updateUser": ["-b", here, "-u", "ann", "-p", "p"],
        "deleteUser": ["-b", here, "-u", "ann"],
        "getUser": ["-b", here, "-u", "ann"],
        "listUser": ["-b", here],
        "copyUser": ["-f", here, "-t", here],
        "createAcl": ["-b", here, "-s", "User:ann", "-r", "*", "-a", "All", "-d", "Allow"],
        "updateAcl": ["-b", here, "-s", "User:ann", "-r", "*", "-a", "All", "-d", "Allow"],
        "deleteAcl": ["-b", here, "-s", "User:ann"],
        "getAcl": ["-b", here, "-s", "User:ann"],
        "listAcl": ["-b", here],
        "copyAcl": ["-f", here, "-t", here],
    }


NAMES = sorted(main.commands)
ASKING = [name for name in NAMES if name not in {"rescueControllers", "convertStore"}]
"""Those want nobody to answer (``tests/cli/test_rescue_controllers.py``, ``test_convert_store.py``)."""
ASKS = {
    "addController": 60020, "removeController": 60020, "transferControllerLeader": 60021,
    "exportControllerState": 1006, "importControllerState": 60013,
    "controllerViews": 60022, "addWritePerm": 327, "brokerConsumeStats": 317, "brokerStatus": 28, "cleanBrokerMetadata": 1011,
    "clusterList": 106, "consumeMessage": 11, "consumerProgress": 208, "deleteTopic": 215,
    "electionHistory": 60011, "switchMaster": 1006, "electMaster": 1002, "getBrokerConfig": 26, "getBrokerEpoch": 1007, "getControllerConfig": 1010,
    "getControllerMetaData": 1005, "getSyncStateSet": 1006, "haStatus": 907, "queryMsgById": 12,
    "queryMsgByKey": 12, "queryMsgByOffset": 11, "resetOffsetByTime": 222, "sendMessage": 310,
    "topicList": 206, "topicRoute": 105, "topicStatus": 202, "updateBrokerConfig": 25,
    "consumerConnection": 203, "producerConnection": 204, "deleteSubGroup": 207,
    "getNamesrvConfig": 319, "updateNamesrvConfig": 318, "updateTopicPerm": 17,
    "queryMsgByUniqueKey": 12, "updateControllerConfig": 1009, "updateSubGroup": 200, "updateTopic": 17, "wipeWritePerm": 205,
    "deleteLogicalQueue": 215, "migrateLogicalQueue": 351, "queryLogicalQueueMapping": 351,
    "remappingStaticTopic": 351, "updateLogicalQueueMapping": 351, "updateLogicalQueueNum": 351,
    "updateStaticTopic": 351,
    "createUser": 3001, "updateUser": 3002, "deleteUser": 3003, "getUser": 3004, "listUser": 3005,
    "copyUser": 3005, "createAcl": 3006, "updateAcl": 3007, "deleteAcl": 3008, "getAcl": 3009,
    "listAcl": 3010, "copyAcl": 3010,
}  # fmt: skip
"""The request of each command that matters."""


def free_address() -> str:
    """An address where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{probe.getsockname()[1]}"


@pytest.mark.few
@pytest.mark.parametrize("name", ASKING)
async def test_command_succeeds_in_every_style(cluster: Cluster, name: str) -> None:
    """Exit code 0, and each style says something of its own."""
    line = lines_of(cluster)[name]
    tables = await mqadmin(name, *line)
    as_json = await mqadmin(name, *line, "--json")
    plain = await mqadmin(name, *line, "--plain")
    assert [0, 0, 0] == [result.exit_code for result in (tables, as_json, plain)], tables.output
    assert "┃" in tables.stdout
    assert 1 == as_json.stdout.count("\n")
    assert json.loads(as_json.stdout)
    assert "┃" not in plain.stdout
    assert plain.stdout.endswith("\n")
    assert "" == tables.stderr + as_json.stderr + plain.stderr


@pytest.mark.few
@pytest.mark.parametrize("name", ASKING)
async def test_refusal_exits_with_1_and_shows_code_and_remark(cluster: Cluster, name: str) -> None:
    """The Java tool exits with 0, so that scripts go on after a refused election."""
    cluster.replies[ASKS[name]] = lambda command: command.reply(2012, "Failed to elect")
    result = await mqadmin(name, *lines_of(cluster)[name], "--plain")
    assert 1 == result.exit_code
    assert "CODE: 2012  DESC: Failed to elect (CONTROLLER_ELECT_MASTER_FAILED)" in result.stderr
    failed = f"write perm of broker[broker-a] in name server[{cluster.address}] Failed\n"
    assert result.stdout in {"", f"wipe {failed}", f"add {failed}"}
    assert all(line.startswith("mqadmin: ") for line in result.stderr.splitlines())


@pytest.mark.few
@pytest.mark.parametrize("name", ASKING)
async def test_silence_exits_with_3(cluster: Cluster, name: str) -> None:
    """Nobody there is something else than "no"."""
    nobody = free_address()
    line = [nobody if part == cluster.address else part for part in lines_of(cluster)[name]]
    result = await mqadmin(name, *line)
    assert 3 == result.exit_code
    assert nobody in result.stderr


@pytest.mark.few
@pytest.mark.parametrize("name", NAMES)
async def test_wrong_usage_exits_with_2(name: str) -> None:
    """Missing options, unknown ones, and both styles at once."""
    assert 2 == (await mqadmin(name, env={"NAMESRV_ADDR": None})).exit_code
    assert 2 == (await mqadmin(name, "--nonsense")).exit_code


@pytest.mark.parametrize(
    "line",
    [
        ["getControllerMetaData", "-a", "nonsense"],
        ["getControllerMetaData", "-a", ";"],
        ["getControllerMetaData", "-a", "127.0.0.1:1", "--json", "--plain"],
        ["getSyncStateSet", "-a", "127.0.0.1:1"],
        ["getSyncStateSet", "-a", "127.0.0.1:1", "-c", "DefaultCluster"],
        ["getSyncStateSet", "-a", "127.0.0.1:1", "-b", "b", "-i", "0"],
        ["getBrokerEpoch", "-b", "b"],
        ["electMaster", "-a", "127.0.0.1:1", "-b", "x", "-bn", "b", "-c", "c"],
        ["cleanBrokerMetadata", "-a", "127.0.0.1:1", "-bn", "b"],
        ["updateControllerConfig", "-a", "127.0.0.1:1", "-k", "a=b", "-v", "c"],
        ["queryMsgByOffset", "-n", "127.0.0.1:1", "-t", "T", "-b", "b", "-o", "1"],
        ["queryMsgByOffset", "-n", "127.0.0.1:1", "-t", "T", "-b", "b", "-i", "1"],
        ["updateLogicalQueueNum", "-n", "127.0.0.1:1", "-t", "T", "-c", "c"],
        ["nonsense"],
    ],
)
async def test_wrong_values_exit_with_2_before_anything_is_asked(line: list[str]) -> None:
    """A usage error must not look like a cluster's."""
    result = await mqadmin(*line, env={"NAMESRV_ADDR": None})
    assert 2 == result.exit_code, result.output
    assert "Usage:" in result.stderr


async def test_next_address_is_tried_when_one_is_down(cluster: Cluster) -> None:
    """Operators pass the whole list."""
    both = f"{free_address()};{cluster.address};"
    result = await mqadmin("getSyncStateSet", "-a", both, "-b", "broker-a")
    assert 0 == result.exit_code
    assert "127.0.0.1:30921" in result.stdout


async def test_partial_failure_shows_what_is_there_and_exits_with_3(cluster: Cluster) -> None:
    """Half an answer is worth showing and is not success."""
    both = f"{free_address()};{cluster.address}"
    result = await mqadmin("getControllerConfig", "-a", both, "--plain")
    assert 3 == result.exit_code
    assert f"============{cluster.address}============" in result.stdout
    assert "cannot connect" in result.stderr


async def test_name_server_comes_from_the_environment(cluster: Cluster) -> None:
    """As with the Java tool."""
    result = await mqadmin(
        "getBrokerEpoch", "-c", "DefaultCluster", env={"NAMESRV_ADDR": cluster.address}
    )
    assert 0 == result.exit_code
    assert [106, 1007, 1007] == cluster.asked


async def test_name_server_is_taken_where_it_is_not_used(cluster: Cluster) -> None:
    """Scripts pass -n to every command."""
    result = await mqadmin("getControllerMetaData", "-a", cluster.address, "-n", "x:1")
    assert 0 == result.exit_code


async def test_one_that_refuses_beside_one_that_is_down_exits_with_1(cluster: Cluster) -> None:
    """Trying again helps against the other only: the code is that of the graver failure."""
    cluster.replies[1010] = lambda command: command.reply(1, "no")
    for addresses in (f"{cluster.address};127.0.0.1:1", f"127.0.0.1:1;{cluster.address}"):
        result = await mqadmin("getControllerConfig", "-a", addresses)
        assert (result.exit_code, len(result.stderr.splitlines())) == (1, 2)


async def test_name_server_that_is_down_beside_one_that_answers_is_a_warning(
    cluster: Cluster,
) -> None:
    """One of three that is down must not fail every script."""
    cluster.replies[28] = lambda command: command.reply(0, body=b"{}")
    nobody = free_address()
    result = await mqadmin("brokerStatus", "-n", f"{nobody};{cluster.address}",
                           "-c", "DefaultCluster")  # fmt: skip
    assert (result.exit_code, len(result.stderr.splitlines())) == (0, 1)
    assert result.stderr.startswith("mqadmin: warning: ")
    assert nobody in result.stderr


async def test_unreadable_answer_exits_with_1(cluster: Cluster) -> None:
    """Not with a traceback."""
    cluster.replies[1006] = lambda command: command.reply(0, body=b"<html>")
    result = await mqadmin("getSyncStateSet", "-a", cluster.address, "-b", "broker-a")
    assert 1 == result.exit_code
    assert "body is not JSON" in result.stderr


async def test_watch_repeats_through_failures_until_interrupted(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A watch that ends with the first refusal is of no use during a failover."""
    slept: list[float] = []

    async def sleep(self: SystemClock, delay_ms: float) -> None:
        slept.append(delay_ms)
        cluster.replies[1006] = lambda command: command.reply(2007, "moving")
        if len(slept) == 2:
            raise KeyboardInterrupt

    monkeypatch.setattr(SystemClock, "sleep", sleep)
    result = await mqadmin(
        "getSyncStateSet", "-a", cluster.address, "-b", "broker-a", "-i", "7", "--json"
    )
    assert 130 == result.exit_code
    assert [7000, 7000] == slept
    assert 1 == result.stdout.count("\n")
    assert "moving" in result.stderr


async def test_command_when_the_java_tool_alone_has_it_then_that_is_said() -> None:
    """Who comes from Java's types it, and would look for a typing error."""
    result = await mqadmin("statsAll", "-n", "127.0.0.1:1")
    assert result.exit_code == 2
    assert "statsAll is not in this tool; the Java tool's mqadmin has it" in result.stderr


def test_commands_of_the_java_tool_when_not_here_then_the_document_lists_them() -> None:
    text = (Path(__file__).parents[2] / "docs" / "COMMANDS.md").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith("Of the Java tool's commands")]
    assert set(re.findall(r"`(\w+)`", line)) == NOT_HERE
    assert not NOT_HERE & set(main.commands)


@pytest.mark.parametrize("flag", ["--json", "--plain"])
async def test_style_when_given_before_the_command_then_its_place_is_told(flag: str) -> None:
    result = await mqadmin(flag, "clusterList", "-n", "127.0.0.1:1")
    assert result.exit_code == 2
    assert f"{flag} stands behind the command: clusterList {flag}" in result.stderr


async def test_names_are_never_markup(cluster: Cluster) -> None:
    """A broker called [red] must stay readable."""
    body = last_answer(CONTROLLER, 1006).body.replace(b"broker-a", b"[red]b")
    cluster.replies[1006] = lambda command: command.reply(0, body=body)
    result = await mqadmin("getSyncStateSet", "-a", cluster.address, "-b", "[red]b")
    assert 0 == result.exit_code
    assert "[red]b" in result.stdout


async def test_body_is_written_where_the_text_says_but_not_for_machines(
    cluster: Cluster, body_folder: Path
) -> None:
    """People look at the file; a program has the body in the JSON."""
    line = ["queryMsgById", *lines_of(cluster)["queryMsgById"]]
    as_json = await mqadmin(*line, "--json")
    assert "body-2" == json.loads(as_json.stdout)[0]["body"]
    assert not body_folder.exists()
    plain = await mqadmin(*line, "--plain")
    (path,) = body_folder.iterdir()
    assert str(path) in plain.stdout
    assert b"body-2" == path.read_bytes()
    assert 0o600 == path.stat().st_mode & 0o777


async def test_body_when_it_is_no_text_then_the_bytes_that_were_typed_are_sent(
    cluster: Cluster,
) -> None:
    """A body is bytes; a traceback was all that came of these."""
    sent: list[bytes] = []
    answer = cluster._reply

    def noted(command: RemotingCommand) -> RemotingCommand:
        sent.append(bytes(command.body))
        del cluster.replies[310]
        return answer(command)

    cluster.replies[310] = noted
    result = await mqadmin(
        "sendMessage", "-n", cluster.address, "-t", "Shown", "-p", "\udcff\udcfe"
    )
    assert (result.exit_code, result.stderr) == (0, "")
    assert sent == [b"\xff\xfe"]


@pytest.mark.parametrize(
    ("line", "option"),
    [
        (["updateBrokerConfig", "-b", "127.0.0.1:1", "-k", "regionId", "-v", "\udcff"], "-v"),
        (["updateControllerConfig", "-a", "127.0.0.1:1", "-k", "\udcff", "-v", "x"], "-k"),
        (["createUser", "-b", "127.0.0.1:1", "-u", "\udcff", "-p", "x"], "-u"),
        (["copyUser", "-f", "127.0.0.1:1", "-t", "127.0.0.1:1", "-u", "ann,\udcff"], "-u"),
    ],
)
async def test_argument_when_it_is_no_text_then_it_is_wrong_usage(
    line: list[str], option: str
) -> None:
    """These go into texts that a server reads; some ended in a traceback."""
    result = await mqadmin(*line)
    assert result.exit_code == 2
    assert f"Error: {option} is not UTF-8" in result.stderr


async def test_export_is_written_in_every_style_before_it_is_told(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The file is what the command is for, also for a script."""
    for style in ([], ["--plain"], ["--json"]):
        file = tmp_path / "state.json"
        file.unlink(missing_ok=True)
        line = lines_of(cluster)["exportControllerState"]
        result = await mqadmin("exportControllerState", *line, *style)
        assert 0 == result.exit_code
        assert "broker-a" == json.loads(file.read_bytes())["brokerSets"][0]["brokerName"]
    line[-1] = f"{tmp_path}/state.json/under/a/file"
    result = await mqadmin("exportControllerState", *line)
    assert 1 == result.exit_code
    assert "cannot write" in result.stderr
    assert "" == result.stdout.strip()


async def test_export_when_the_path_is_mistyped_then_no_folder_is_made(
    cluster: Cluster, tmp_path: Path
) -> None:
    """The file is what a rescue needs: it must be where it is looked for, or the command fails."""
    line = lines_of(cluster)["exportControllerState"]
    folder = tmp_path / "exports"
    folder.mkdir()
    line[-1] = str(folder / "backpus" / "state.json")
    result = await mqadmin("exportControllerState", *line)
    assert 1 == result.exit_code
    assert f"cannot write {line[-1]}: No such file or directory" in result.stderr
    assert [] == list(folder.iterdir())


async def test_export_when_the_disk_is_full_then_the_older_one_stays(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was cut to nothing before the new one was written."""
    line = lines_of(cluster)["exportControllerState"]
    folder = tmp_path / "exports"
    folder.mkdir()
    file = folder / "state.json"
    line[-1] = str(file)
    file.write_bytes(b"of yesterday")

    def is_full(_: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", is_full)
        result = await mqadmin("exportControllerState", *line)
    assert 1 == result.exit_code
    assert "No space left" in result.stderr
    assert b"of yesterday" == file.read_bytes()
    assert [file] == list(folder.iterdir())
    assert 0 == (await mqadmin("exportControllerState", *line)).exit_code
    assert "brokerSets" in json.loads(file.read_bytes())
    assert [file] == list(folder.iterdir())


async def test_export_when_the_path_is_a_pipe_then_it_is_written_into(
    cluster: Cluster, tmp_path: Path
) -> None:
    """A pipe or a device must not be replaced by a file: mqadmin is often run by root."""
    line = lines_of(cluster)["exportControllerState"]
    line[-1] = str(tmp_path / "pipe")
    os.mkfifo(line[-1])
    reader = os.open(line[-1], os.O_RDONLY | os.O_NONBLOCK)
    try:
        assert 0 == (await mqadmin("exportControllerState", *line)).exit_code
        assert "brokerSets" in json.loads(os.read(reader, 1 << 16))
    finally:
        os.close(reader)
    assert stat.S_ISFIFO(os.lstat(line[-1]).st_mode)


async def test_body_is_not_written_through_a_link(cluster: Cluster, body_folder: Path) -> None:
    """Anybody may lay one in /tmp, and mqadmin is often run by root."""
    victim = body_folder.parent.parent / "victim"
    victim.write_text("precious")
    body_folder.mkdir(parents=True)
    (body_folder / MESSAGE_ID).symlink_to(victim)
    result = await mqadmin("queryMsgById", *lines_of(cluster)["queryMsgById"], "--plain")
    assert 1 == result.exit_code
    assert "cannot write" in result.stderr
    assert "Queue Offset:" in result.stdout
    assert "precious" == victim.read_text()


async def test_static_topic_when_it_grows_then_map_files_are_written_before_it_is_told(
    cluster: Cluster, tmp_path: Path
) -> None:
    """Whatever the style; with --json the one line is the last report's."""
    seen: list[int] = []

    def told(command: RemotingCommand) -> RemotingCommand:
        seen.append(len(list(tmp_path.glob("Static-*"))))
        return command.reply(0)

    cluster.replies[513] = told
    for style in ([], ["--plain"], ["--json"]):
        result = await mqadmin("updateStaticTopic", *lines_of(cluster)["updateStaticTopic"], *style)
        assert 0 == result.exit_code
    assert 3 == len(seen)
    assert 2 == seen[0]
    line = json.loads(result.stdout)
    assert line["finished"]
    assert all(Path(path).is_file() for path in line["files"])
    assert 2 == len(line["files"])


async def test_static_topic_when_map_files_cannot_be_written_then_nobody_is_told(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan that nobody has on disk is not begun."""
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "file"))
    result = await mqadmin("updateStaticTopic", *lines_of(cluster)["updateStaticTopic"])
    assert 1 == result.exit_code
    assert "cannot write" in result.stderr
    assert 513 not in cluster.asked


@pytest.mark.costly
async def test_static_topic_when_a_broker_refuses_then_it_says_that_it_is_not_finished(
    cluster: Cluster,
) -> None:
    """And how to go on."""
    cluster.replies[513] = lambda command: command.reply(1, "epoch is older")
    result = await mqadmin("updateStaticTopic", *lines_of(cluster)["updateStaticTopic"], "--plain")
    assert 1 == result.exit_code
    assert "CODE: 1  DESC: epoch is older" in result.stderr
    assert result.stdout.splitlines()[2].startswith("not finished: the same command again")
