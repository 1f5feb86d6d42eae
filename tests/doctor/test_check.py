"""``bin/mqdoctor check`` on a running cluster: well, and with one thing broken at a time."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqha.cli.doctor_check import Timing, _look_again, target_of
from rmqha.cli.mqadmin import TOOLS_FILE
from rmqha.cli.mqdoctor import main
from rmqha.doctor.aio.looking import Target
from rmqha.remoting import fastjson
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer, unsupported
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.properties import format_properties
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.sockets import LOOPBACK

WELL_S = 30.0
QUICK = ("--timeout", "0.5", "--pause", "0.1")
INTERRUPTIBLE = (
    "import signal; signal.signal(signal.SIGINT, signal.default_int_handler);"
    "from rmqha.cli.mqdoctor import main; main()"
)
"""The command; what shells start in the background, as a run of all tests, has SIGINT ignored."""


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Three controllers, two name servers, three replicas."""
    with RmqCluster(tmp_path_factory.mktemp("doctor"), namesrv=2) as one:
        one.produce(20)
        yield one


@pytest.fixture
def cluster(shared: RmqCluster) -> Iterator[RmqCluster]:
    """The module's cluster, whole before and after the test."""
    yield shared
    shared.heal()
    # A controller that has just been started may not have heard who leads.
    wait_until(lambda: run(*everything(shared)).exit_code == 0, WELL_S, "nothing to be wrong")


def run(*arguments: str) -> Result:
    """The command to its end."""
    done = CliRunner().invoke(main, ["check", *arguments])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    return done


def everything(cluster: RmqCluster) -> tuple[str, ...]:
    """The options that name all servers."""
    return ("-a", cluster.controller_addr, "-n", cluster.namesrv_addr, *QUICK)


def found(*arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    """Exit code, and diagnoses by code and subject."""
    done = run(*arguments, "--json")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    return done.exit_code, {f"{row['code']} {row['subject']}": row for row in rows}


def conf_of(cluster: RmqCluster, node: Node, folder: Path, **more: str) -> str:
    """The broker.conf of a replica."""
    values = {**cluster._core.plan.properties(node.place), **more}
    path = folder / f"{node.name}.conf"
    path.write_text(format_properties(values), encoding="utf-8")
    return str(path)


def slave_of(cluster: RmqCluster) -> Node:
    """A replica that is not master."""
    master = cluster.wait_for_master()
    return next(one for one in cluster.brokers if one is not master)


@pytest.mark.costly
def test_check_when_all_is_well_then_nothing_is_wrong(cluster: RmqCluster, tmp_path: Path) -> None:
    """Each replica is looked at from its own machine, too, while it runs."""
    done = run(*everything(cluster))
    assert (done.exit_code, done.stdout) == (
        0, "looked at 3 controllers, 2 name servers, 3 brokers: nothing is wrong\n",
    )  # fmt: skip
    for node in cluster.brokers:
        done = run("-c", conf_of(cluster, node, tmp_path), *QUICK)
        assert done.exit_code == 0, done.output
        assert f"store {node.store}: nothing is wrong" in done.stdout


@pytest.mark.costly
def test_check_when_one_controller_and_a_slave_are_dead_then_both_are_named(
    cluster: RmqCluster,
) -> None:
    """One address of a controller is enough: its peers are asked."""
    leader = cluster.wait_for_leader()
    follower = next(one for one in cluster.controllers if one is not leader)
    slave = slave_of(cluster)
    cluster.kill(follower)
    cluster.kill(slave)
    cluster.wait_in_sync(2)
    code, rows = found("-a", leader.address, "-n", cluster.namesrv_addr, *QUICK)
    kinds = {key.split()[0] for key in rows}
    assert code == 1
    assert f"controller-unreachable {follower.address}" in rows
    assert slave.address in next(r["what"] for k, r in rows.items() if k.startswith("replica-down"))
    # A name server that has not noticed yet is no reason to say more.
    assert kinds == {"controller-unreachable", "replica-down"}


@pytest.mark.costly
def test_check_when_no_majority_of_controllers_lives_then_nobody_leads(
    cluster: RmqCluster,
) -> None:
    """The leader is one of the dead: left alone, it would say for a moment that it still leads."""
    leader = cluster.wait_for_leader()
    for node in (leader, next(one for one in cluster.controllers if one is not leader)):
        cluster.kill(node)
    code, rows = found(*everything(cluster))
    assert code == 1
    assert "1 of 3 controllers answer" in rows["no-controller-leader controllers"]["why"]


@pytest.mark.costly
def test_check_when_the_named_controller_is_dead_then_those_of_the_brokers_are_asked(
    cluster: RmqCluster,
) -> None:
    """Nobody was said to lead; name servers alone are enough to find the leader."""
    leader = cluster.wait_for_leader()
    follower = next(one for one in cluster.controllers if one is not leader)
    done = run("-n", cluster.namesrv_addr, *QUICK)
    assert (done.exit_code, done.stdout.partition(",")[0]) == (0, "looked at 3 controllers")
    cluster.kill(follower)
    code, rows = found("-a", follower.address, "-n", cluster.namesrv_addr, *QUICK)
    assert (code, list(rows)) == (1, [f"controller-unreachable {follower.address}"])
    code, rows = found("-a", follower.address, *QUICK)
    assert {key.split()[0] for key in rows} == {"controller-unreachable", "no-controller-answers"}


@pytest.mark.costly
def test_check_when_only_slaves_are_left_then_name_servers_alone_tell_of_it(
    cluster: RmqCluster,
) -> None:
    """Controllers and master were dead, nobody could write, and nothing was said to be wrong."""
    master = cluster.wait_for_master()
    for node in (*cluster.controllers, master):
        cluster.kill(node)

    def is_told() -> bool:
        code, rows = found("-n", cluster.namesrv_addr, *QUICK)
        return code == 1 and {
            "set-without-master broker-a", "no-controller-answers controllers",
        } <= rows.keys()  # fmt: skip

    wait_until(is_told, WELL_S, "the set to be told without a master")


@pytest.mark.costly
def test_check_when_brokers_name_one_name_server_only_then_the_other_one_is_told(
    cluster: RmqCluster, tmp_path: Path
) -> None:
    """Clients that ask the name server that was forgotten find nobody."""
    with RmqCluster(tmp_path / "other", controllers=1, namesrv=1, replicas=0) as other:
        server = other.name_servers[0].address
        servers = f"{cluster.namesrv_addr};{server}"
        cluster.wait_in_sync()  # on a busy machine a slave may have left the set meanwhile
        code, rows = found("-a", cluster.controller_addr, "-n", servers, *QUICK)
    assert code == 1
    assert {key.split()[0] for key in rows} == {"broker-not-registered"}
    assert {row["subject"].split()[-1] for row in rows.values()} == {server}


@pytest.mark.slow
def test_check_when_a_broker_hangs_then_it_is_told_from_a_dead_one(cluster: RmqCluster) -> None:
    slave = slave_of(cluster)
    cluster.stop(slave)
    cluster.wait_in_sync(2)
    code, rows = found(*everything(cluster))
    assert code == 1
    assert f"broker-hangs broker-a {slave.address}" in rows


@pytest.mark.slow
def test_check_when_controllers_and_name_servers_are_mixed_up_then_both_are_told(
    cluster: RmqCluster,
) -> None:
    code, rows = found("-a", cluster.name_servers[0].address, "-n", cluster.controllers[0].address)
    assert code == 1
    assert {key.split()[0] for key in rows} == {
        "not-a-controller", "not-a-name-server", "no-controller-answers",
    }  # fmt: skip


@pytest.mark.slow
def test_check_when_a_stopped_broker_lost_its_identity_then_what_to_write_is_told(
    cluster: RmqCluster, tmp_path: Path
) -> None:
    """What is told is tried: the broker comes back as who it was."""
    slave = slave_of(cluster)
    conf = conf_of(cluster, slave, tmp_path)
    cluster.shut_down(slave)
    identity = slave.store / "brokerIdentity"
    whole = identity.read_text()
    identity.unlink()
    code, rows = found("-c", conf, *QUICK)
    row = rows[f"identity-missing {identity}"]
    assert code == 1
    assert f"Write {whole} into it" in row["nextStep"]
    identity.write_text(whole)
    _, rows = found("-c", conf, *QUICK)
    assert "identity-missing" not in {key.split()[0] for key in rows}
    cluster.restart(slave)
    cluster.wait_in_sync(3)


EMPTIED = (
    "commitlog", "consumequeue", "batchconsumequeue", "index", "blocksums", "checkpoint", "abort",
    "epochFileCheckpoint", "epochFileCheckpoint.bak",
)  # fmt: skip
"""What is removed below storePathRootDir when a replica is emptied and keeps its identity."""


@pytest.mark.costly
def test_check_when_a_member_was_emptied_while_all_were_down_then_the_others_are_named(
    cluster: RmqCluster, tmp_path: Path
) -> None:
    """What is told is tried. Java's controllers elect it where it is started alone, with nothing."""
    slave = slave_of(cluster)
    others = [one for one in cluster.brokers if one is not slave]
    conf = conf_of(cluster, slave, tmp_path)
    # The controllers go first, so that none of the three is missed and taken out of the set.
    for node in (*cluster.controllers, slave, *others):
        cluster.kill(node)
    for node in cluster.controllers:
        cluster.restart(node)
    cluster.wait_for_leader()
    for part in EMPTIED:
        path = slave.store / part
        shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
    wiped = f"store-wiped {slave.store / 'brokerIdentity'}"
    wait_until(lambda: wiped in found("-c", conf, *QUICK)[1], WELL_S, "the store to be told")
    _, rows = found("-c", conf, *QUICK)
    row = rows[wiped]
    assert row["nextStep"].startswith("Do not start it now.")
    assert all(one.address in row["nextStep"] for one in others)
    cluster.restart(others[0])
    cluster.wait_for_master()
    cluster.restart(others[1])
    cluster.wait_in_sync(2)
    _, rows = found("-c", conf, *QUICK)
    assert rows[wiped]["nextStep"].startswith("Start it while")
    cluster.restart(slave)
    cluster.wait_in_sync(3)


@pytest.mark.costly
def test_check_when_a_port_is_taken_then_it_is_told(cluster: RmqCluster, tmp_path: Path) -> None:
    slave = slave_of(cluster)
    cluster.shut_down(slave)
    with socket.create_server((LOOPBACK, slave.place.ports[-1])):
        _, rows = found("-c", conf_of(cluster, slave, tmp_path), *QUICK)
        assert f"port-taken haListenPort {slave.place.ports[-1]}" in rows
    # A look while controllers change their leader tells of that, and knows nothing of replicas.
    cluster.wait_for_leader()
    _, rows = found("-c", conf_of(cluster, slave, tmp_path), *QUICK)
    assert {key.split()[0] for key in rows} == {"replica-down"}


@pytest.mark.costly
def test_check_when_the_controllers_forgot_a_set_then_nothing_is_deleted(
    cluster: RmqCluster, tmp_path: Path
) -> None:
    """Another group of controllers is named: the brokers are strangers to it."""
    with RmqCluster(tmp_path / "other", controllers=1, namesrv=0, replicas=0) as other:
        code, rows = found("-a", other.controller_addr, "-n", cluster.namesrv_addr, *QUICK)
    assert code == 1
    assert "set-unknown-to-controllers broker-a" in rows
    assert cluster.wait_in_sync(3).master_id is not None


def test_check_when_a_file_cannot_be_read_then_the_exit_code_is_2(tmp_path: Path) -> None:
    """Nothing is said of a cluster that nobody named."""
    assert run().exit_code == 2
    assert run("-c", str(tmp_path / "none.conf")).exit_code == 2
    assert run("--store", str(tmp_path / "none")).exit_code == 2
    assert run("-a", "nonsense").exit_code == 2


@pytest.mark.parametrize("text", [None, "accessKey: [", "accessKey: root\n"])
def test_check_when_the_tools_file_cannot_be_used_then_the_exit_code_is_2(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    """It was 1: something would be wrong with a cluster that nobody had looked at."""
    tools = tmp_path / "tools.yml"
    if text is not None:
        tools.write_text(text)
    monkeypatch.setenv(TOOLS_FILE, str(tools))
    done = run("-n", f"{LOOPBACK}:1", *QUICK)
    assert (done.exit_code, done.stdout) == (2, "")
    assert str(tools) in done.stderr


def test_check_when_it_is_interrupted_then_the_exit_code_tells() -> None:
    """It was 1, for an alert that something is wrong; and the one word said was Aborted."""
    with socket.create_server((LOOPBACK, 0)) as server:
        address = f"{LOOPBACK}:{server.getsockname()[1]}"
        with subprocess.Popen(
            [sys.executable, "-c", INTERRUPTIBLE, "check", "-n", address, "--timeout", "60"],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        ) as process:  # fmt: skip
            server.settimeout(WELL_S)
            connection, _ = server.accept()
            with connection:
                process.send_signal(signal.SIGINT)
                output = process.communicate(timeout=WELL_S)
    assert (process.returncode, output) == (130, ("", ""))


class MovingNameServer:
    """A name server that knows no broker in its first looks, and then one of another house.

    Attributes:
        looks: how often it was asked.
    """

    def __init__(self, wrong_looks: int) -> None:
        self.looks = 0
        self._wrong_looks = wrong_looks
        self.server = RemotingServer(TcpNetwork(), SystemClock(), RemotingSettings(), self)

    def on_commands(self, connection: Connection, commands: list[RemotingCommand]) -> None:
        """Answer 106."""
        for command in commands:
            self.looks += command.code == 106
            known = self.looks > self._wrong_looks
            here = f"{LOOPBACK}:{self.server.port}"
            group = {"brokerName": "a", "cluster": "c", "brokerAddrs": {"0": here}}
            body = fastjson.dumps({"brokerAddrTable": {"a": group} if known else {}})
            connection.send(
                command.reply(0, body=body) if command.code == 106 else unsupported(command)
            )

    def on_closed(self, connection: Connection, error: Exception | None) -> None:
        """Nothing is kept."""


@pytest.mark.parametrize("wrong_looks", [0, 1, 2, 3])
async def test_check_when_a_fault_passes_between_looks_then_it_is_not_told(
    wrong_looks: int,
) -> None:
    """A failover under way ends by itself: one look alone must not tell of it."""
    one = MovingNameServer(wrong_looks)
    await one.server.start(LOOPBACK, 0)
    try:
        target = Target(name_servers=(f"{LOOPBACK}:{one.server.port}",))
        _, found = await _look_again(target, Timing(5_000, 3, 0), None)
    finally:
        await one.server.close()
    assert [diagnosis.code for diagnosis in found] == ["name-server-empty"] * (wrong_looks == 3)


@pytest.mark.parametrize("mode", ["true", "false"])
def test_check_when_there_is_no_controller_mode_then_no_controller_is_asked(
    tmp_path: Path, mode: str
) -> None:
    """Who has no say about the broker is no reason to call it ill."""
    nobody = f"{LOOPBACK}:{allocate_ports()[-1]}"
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\nenableControllerMode={mode}\ncontrollerAddr={nobody}\n"
                    f"brokerIP1={LOOPBACK}\nlistenPort={allocate_ports()[4]}\n"
                    f"storePathRootDir={tmp_path / 'store'}\n")  # fmt: skip
    target = target_of(str(conf), None, None, None, "", 2)
    assert target.controllers == ((nobody,) if mode == "true" else ())
    _, rows = found("-c", str(conf), "--looks", "1", *QUICK)
    asked = {"controller-unreachable", "no-controller-answers"}
    kinds = {key.split()[0] for key in rows}
    assert kinds & asked == (asked if mode == "true" else set())


def test_check_when_the_directory_is_no_store_then_it_is_not_called_well(tmp_path: Path) -> None:
    """The folder above it, for example: nothing was found there, and so nothing was wrong."""
    (tmp_path / "store").mkdir()
    done = run("--store", str(tmp_path))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "no broker's store" in done.stderr
    (tmp_path / "commitlog").mkdir()
    assert run("--store", str(tmp_path)).exit_code == 0


def test_check_when_a_key_is_written_wrong_then_it_is_noted(tmp_path: Path) -> None:
    """A broker passes it over, and acknowledges alone."""
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerName=a\nallAckInSyncStateset=true\nbrokerIP1={LOOPBACK}\n"
                    f"listenPort={allocate_ports()[4]}\n"
                    f"storePathRootDir={tmp_path / 'store'}\n")  # fmt: skip
    done = run("-c", str(conf), "--looks", "1", *QUICK)
    assert "NOTE keys-unknown" in done.stdout
    assert "WARNING broker-not-running: a " in done.stdout
    assert done.stdout.splitlines()[-1].endswith("0 errors, 1 warnings, 1 notes")
    assert "allAckInSyncStateset" in done.stdout


def test_check_when_the_file_is_another_servers_then_what_to_give_instead_is_told(
    tmp_path: Path,
) -> None:
    """As a broker's it told of ports that other brokers of the machine use, or that all is well."""
    controller = tmp_path / "controller.conf"
    controller.write_text("controllerDLegerPeers=n0-10.0.0.1:9878;n1-10.0.0.2:9878\n"
                          "controllerDLegerGroup=g\ncontrollerDLegerSelfId=n0\n")  # fmt: skip
    done = run("-c", str(controller))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "controller's file" in done.stderr
    assert "--controllers '10.0.0.1:9878;10.0.0.2:9878'" in done.stderr
    controller.write_text("controllerDLegerSelfId=n0\n")
    assert "--controllers 'HOST:PORT;...'" in run("-c", str(controller)).stderr
    server = tmp_path / "namesrv.conf"
    server.write_text("listenPort=19876\nkvConfigPath=/data/kv.json\n")
    done = run("-c", str(server))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--namesrv HOST:19876" in done.stderr
    # A file may serve several processes.
    both = tmp_path / "all.conf"
    both.write_text("brokerName=a\ncontrollerDLegerSelfId=n0\nkvConfigPath=/data/kv.json\n"
                    f"storePathRootDir={tmp_path}\nbrokerIP1={LOOPBACK}\nlistenPort=1\n")  # fmt: skip
    done = run("-c", str(both), "--looks", "1", *QUICK)
    assert "looked at 1 brokers (0 answered)" in done.stdout


def test_check_when_something_is_wrong_then_people_read_four_lines(tmp_path: Path) -> None:
    conf = tmp_path / "broker.conf"
    conf.write_text(f"brokerRole=SLAVE\nbrokerIP1={LOOPBACK}\nlistenPort=70000\n"
                    f"storePathRootDir={tmp_path / 'store'}\n")  # fmt: skip
    done = run("-c", str(conf), "--looks", "1", *QUICK)
    assert done.exit_code == 1
    assert done.stdout.startswith(f"ERROR slave-without-id: {conf}\n  what: brokerRole=SLAVE")
    assert f"WARNING config-refused: {conf}" in done.stdout
    assert done.stdout.splitlines()[-1].endswith("1 errors, 1 warnings, 0 notes")
