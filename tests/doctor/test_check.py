"""``bin/mqdoctor check`` on a running cluster: well, and with one thing broken at a time."""

from __future__ import annotations

import json
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from rmqha.cli.mqdoctor import main
from rmqha.runtime.properties import format_properties
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.sockets import LOOPBACK

WELL_S = 30.0
QUICK = ("--timeout", "0.5", "--pause", "0.1")


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
def test_check_when_brokers_name_one_name_server_only_then_the_other_one_is_told(
    cluster: RmqCluster, tmp_path: Path
) -> None:
    """Clients that ask the name server that was forgotten find nobody."""
    with RmqCluster(tmp_path / "other", controllers=1, namesrv=1, replicas=0) as other:
        server = other.name_servers[0].address
        servers = f"{cluster.namesrv_addr};{server}"
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
        "not-a-controller", "not-a-name-server", "no-controller-leader",
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
                    f"listenPort={allocate_ports()[-1]}\n"
                    f"storePathRootDir={tmp_path / 'store'}\n")  # fmt: skip
    done = run("-c", str(conf), "--looks", "1", *QUICK)
    assert done.exit_code == 0, "a note"
    assert "NOTE keys-unknown" in done.stdout
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
