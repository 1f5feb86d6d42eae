"""Our controllers take the place of Java's below running Java brokers: none is restarted."""

from __future__ import annotations

import json
import subprocess
import time
from pathlib import Path

import pytest

from rmqha.controller.metadata.imported import SET_EPOCH_LEAP
from rmqha.testing.real.cluster import FAST_CONTROLLER, Cluster
from rmqha.testing.real.controllers import Controllers, ReplicaInfo
from rmqha.testing.real.processes import assert_holds, wait_until
from rmqha.testing.real.producer import Producer, assert_nothing_lost
from rmqha.testing.real.python import PythonBroker
from tests.interop import required
from tests.interop.our_mqadmin import our_mqadmin, run_our_mqadmin

NAME = "broker-a"
QUIET_S = 8.0
"""Some polls of the brokers, for the leader (2 s) and for their roles (1 s)."""
STUCK_S = 40.0
"""A slave of Java's that is not in sync after this hangs."""


def export(cluster: Cluster, file: Path) -> None:
    """Ask the Java controllers for everything."""
    our_mqadmin(
        "exportControllerState", "-a", cluster.controllers.address_list,
        "-n", cluster.name_server.address, "-o", str(file),
    )  # fmt: skip


def take_in(cluster: Cluster, file: Path, *more: str) -> subprocess.CompletedProcess[str]:
    """Give it to the controllers that are there now."""
    return run_our_mqadmin(
        "importControllerState", "-a", cluster.controllers.address_list, "-f", str(file), *more
    )


def elect_another(cluster: Cluster) -> ReplicaInfo:
    """Move the mastership, so that epochs are not the first ones."""
    before = cluster.wait_in_sync()
    target = next(one for one in sorted(before.sync_state_set) if one != before.master_id)
    fields = {
        "clusterName": "DefaultCluster", "brokerName": NAME, "brokerId": target,
        "designateElect": "true",
    }  # fmt: skip

    def moved() -> bool:
        # On a busy machine the target may just count as dead.
        cluster.controllers.ask_leader(1002, fields)
        info = cluster.controllers.replica_info(NAME)
        return info is not None and info.master_id == target

    wait_until(moved, 60.0, "the mastership to move", interval_s=1.0)
    # Java's own slaves may hang when their master is another one; nothing was taken over yet.
    cluster.wait_in_sync_or_restart(STUCK_S)
    return cluster.wait_in_sync()


def role(info: ReplicaInfo | None) -> tuple[int | None, int] | None:
    """Master and epoch."""
    return None if info is None else (info.master_id, info.master_epoch)


@pytest.mark.parametrize("kind", ["dledger", "jraft"])
def test_java_controllers_when_replaced_then_no_send_fails_and_ids_and_epochs_go_on(
    kind: str, tmp_path: Path, topic: str
) -> None:
    """No broker is restarted; the next master that dies is replaced with the next epoch."""
    required.require_classpath()
    stale, fresh = tmp_path / "stale.json", tmp_path / "state.json"
    with Cluster(tmp_path, kind) as cluster:
        cluster.start()
        export(cluster, stale)
        before = elect_another(cluster)
        pids = [broker.child.pid for broker in cluster.brokers]
        java = cluster.controllers
        with Producer(cluster.name_server.address, topic) as producer:
            producer.wait_for_acks(200)
            export(cluster, fresh)
            refused = take_in(cluster, fresh)
            assert refused.returncode == 1
            assert "the old controller at 127.0.0.1:" in refused.stderr
            # A master of Java's that has just begun may refuse one before anything is replaced.
            failed_before = producer.failures, producer.unclear
            moment = time.monotonic()
            for node in range(len(java.nodes)):
                java.terminate(node)
            stopped_s = time.monotonic() - moment
            ours = Controllers(
                "rmqha", tmp_path / "ours", settings=FAST_CONTROLLER, ports=java.ports
            )
            cluster.controllers = ours
            ours.start()
            ours.wait_for_leader()
            led_s = time.monotonic() - moment
            old = take_in(cluster, stale)
            assert old.returncode == 1, "somebody was elected behind this export"
            assert "Start the old controllers, export again" in old.stderr
            assert ours.replica_info(NAME) is None
            taken = take_in(cluster, fresh)
            assert taken.returncode == 0, taken.stderr
            took_s = time.monotonic() - moment
            after = ours.replica_info(NAME)
            assert role(after) == role(before)
            assert after is not None
            assert after.sync_state_set == before.sync_state_set
            assert after.master_address == before.master_address
            assert_holds(
                lambda: role(ours.replica_info(NAME)) in (None, role(before)), QUIET_S, "the master"
            )
            producer.wait_for_acks(500)
            gap_s = producer.longest_gap_s(moment)
            assert (producer.failures, producer.unclear) == failed_before, producer.reasons
            assert pids == [broker.child.pid for broker in cluster.brokers]
            next_id = ours.ask_leader(1012, {"clusterName": "DefaultCluster", "brokerName": NAME})
            assert next_id is not None
            assert next_id.ext["nextBrokerId"] == "4"
            master = cluster.master()
            moment = time.monotonic()
            master.child.kill()
            producer.wait_for_write_after(moment, not_by=master.address)
            elected = ours.wait_for_master(NAME, other_than=before.master_id)
            assert elected.master_epoch == before.master_epoch + 1
            # A master that had not taken the imported set could not alter it.
            wait_until(
                lambda: len((ours.replica_info(NAME) or elected).sync_state_set) == 2,
                60.0, "the new master to take its slave in",
            )  # fmt: skip
            cluster.heal()
            producer.wait_for_acks(100)
            assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
        said = json.loads(fresh.read_text())
        assert said["remarks"] == {}
        assert said["brokerSets"][0]["syncStateSetEpoch"] == before.sync_state_set_epoch
        assert after.sync_state_set_epoch == before.sync_state_set_epoch + SET_EPOCH_LEAP
    print(
        f"{kind}: stopped after {stopped_s:.1f} s, ours led after {led_s:.1f} s, imported after"
        f" {took_s:.1f} s (one import refused before), longest gap {gap_s * 1000:.0f} ms,"
        f" {len(producer.acked)} acknowledged"
    )


def test_java_master_when_taken_over_then_its_sync_state_set_can_still_change(
    tmp_path: Path, topic: str
) -> None:
    """The running master must take the imported set, or its 1001 would be refused for ever: a slave
    is stopped below our controllers, leaves the set, and comes back into it."""
    required.require_classpath()
    file = tmp_path / "state.json"
    with Cluster(tmp_path, "dledger") as cluster:
        cluster.start()
        before = cluster.wait_in_sync()
        with Producer(cluster.name_server.address, topic) as producer:
            producer.wait_for_acks(100)
            export(cluster, file)
            java = cluster.controllers
            for node in range(len(java.nodes)):
                java.kill(node)
            cluster.controllers = Controllers(
                "rmqha", tmp_path / "ours", settings=FAST_CONTROLLER, ports=java.ports
            )
            cluster.controllers.start()
            cluster.controllers.wait_for_leader()
            assert take_in(cluster, file).returncode == 0
            slave = cluster.slaves()[0]
            slave.child.kill()
            others = before.sync_state_set - {slave.controller_id}
            shrunk = cluster.controllers.wait_for_sync_state_set(NAME, others)
            assert role(shrunk) == role(before)
            assert shrunk.sync_state_set_epoch > before.sync_state_set_epoch + SET_EPOCH_LEAP
            slave.start()
            cluster.wait_in_sync()
            producer.wait_for_acks(100)
            assert_nothing_lost(cluster, producer, replicas=cluster.brokers)


def test_java_brokers_when_the_export_is_stale_then_taken_over_as_they_are(
    tmp_path: Path, topic: str
) -> None:
    """Somebody was elected behind the export, and the old controllers are gone for good: the set is
    taken by its brokers' word, in a new epoch that no running broker minds."""
    required.require_classpath()
    stale = tmp_path / "stale.json"
    with Cluster(tmp_path, "dledger") as cluster:
        cluster.start()
        export(cluster, stale)
        before = elect_another(cluster)
        pids = [broker.child.pid for broker in cluster.brokers]
        with Producer(cluster.name_server.address, topic) as producer:
            producer.wait_for_acks(200)
            java = cluster.controllers
            moment = time.monotonic()
            for node in range(len(java.nodes)):
                java.kill(node)
            ours = Controllers(
                "rmqha", tmp_path / "ours", settings=FAST_CONTROLLER, ports=java.ports
            )
            cluster.controllers = ours
            ours.start()
            ours.wait_for_leader()
            assert take_in(cluster, stale).returncode == 1
            taken = take_in(cluster, stale, "--from-brokers", NAME)
            assert taken.returncode == 0, taken.stderr
            after = cluster.wait_in_sync()
            assert after.master_id == before.master_id
            assert after.master_epoch > before.master_epoch
            producer.wait_for_acks(200)
            assert (producer.failures, producer.unclear) == (0, 0), producer.reasons
            assert pids == [broker.child.pid for broker in cluster.brokers]
            gap_s = producer.longest_gap_s(moment)
            master = cluster.master()
            moment = time.monotonic()
            master.child.kill()
            producer.wait_for_write_after(moment, not_by=master.address)
            elected = ours.wait_for_master(NAME, other_than=before.master_id)
            assert elected.master_epoch == after.master_epoch + 1
            cluster.heal()
            producer.wait_for_acks(100)
            assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    print(f"from brokers: longest gap {gap_s * 1000:.0f} ms, {len(producer.acked)} acknowledged")


def test_set_of_python_and_java_brokers_when_the_controllers_are_replaced_then_no_send_fails(
    tmp_path: Path, topic: str
) -> None:
    """A Python master answers the comparison as Java's does, and minds new controllers no more."""
    required.require_classpath()
    file = tmp_path / "state.json"
    with Cluster(tmp_path, "dledger", brokers=0) as cluster:
        cluster.brokers.append(PythonBroker.of(cluster, 1))
        cluster.add_broker()
        cluster.brokers.append(PythonBroker.of(cluster, 3))
        cluster.start()
        before = cluster.wait_in_sync()
        assert cluster.master() is cluster.brokers[0]
        pids = [broker.child.pid for broker in cluster.brokers]
        with Producer(cluster.name_server.address, topic) as producer:
            producer.wait_for_acks(200)
            export(cluster, file)
            java = cluster.controllers
            moment = time.monotonic()
            for node in range(len(java.nodes)):
                java.kill(node)
            ours = Controllers(
                "rmqha", tmp_path / "ours", settings=FAST_CONTROLLER, ports=java.ports
            )
            cluster.controllers = ours
            ours.start()
            ours.wait_for_leader()
            taken = take_in(cluster, file)
            assert taken.returncode == 0, taken.stderr
            assert_holds(
                lambda: role(ours.replica_info(NAME)) in (None, role(before)), QUIET_S, "the master"
            )
            producer.wait_for_acks(200)
            assert (producer.failures, producer.unclear) == (0, 0), producer.reasons
            assert pids == [broker.child.pid for broker in cluster.brokers]
            gap_s = producer.longest_gap_s(moment)
            master = cluster.master()
            moment = time.monotonic()
            master.child.kill()
            producer.wait_for_write_after(moment, not_by=master.address)
            elected = ours.wait_for_master(NAME, other_than=before.master_id)
            assert elected.master_epoch == before.master_epoch + 1
            cluster.heal()
            producer.wait_for_acks(100)
            assert_nothing_lost(cluster, producer, replicas=cluster.brokers)
    print(f"both kinds: longest gap {gap_s * 1000:.0f} ms, {len(producer.acked)} acknowledged")
