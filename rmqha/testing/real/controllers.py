"""Three controller nodes of one kind behind one interface: ours, Java DLedger or Java JRaft.

Tests and benches speak to this class only, so that they run unchanged on each kind. Nodes are
numbered 0, 1, 2; what is asked of the cluster goes over the wire with the independent client.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct

from rmqha.testing.real import java, maven, wire
from rmqha.testing.real.processes import Child, allocate_ports, wait_until

KINDS = ("rmqha", "dledger", "jraft")
BOOT_LINE = "The Controller Server boot success. serializeType=JSON"
BOOT_TIMEOUT_S = 60.0
LEADER_TIMEOUT_S = 60.0
PROBE_TIMEOUT_S = 1.0
TEST_JVM = ("-Xms64m", "-Xmx256m", *java.SMALL_JVM)


def selected_kind() -> str:
    """The kind that ``RMQHA_INTEROP_CONTROLLERS`` names, ours by default."""
    kind = os.environ.get("RMQHA_INTEROP_CONTROLLERS", "rmqha")
    if kind not in KINDS:
        raise ValueError(f"RMQHA_INTEROP_CONTROLLERS={kind}; one of {', '.join(KINDS)} expected")
    return kind


class ReplicaInfo(Struct, frozen=True):
    """The answer to 1004."""

    master_id: int | None
    master_address: str | None
    master_epoch: int
    sync_state_set: frozenset[int]
    sync_state_set_epoch: int


class Controllers:
    """A group of controller processes.

    Args:
        kind: ``rmqha``, ``dledger`` or ``jraft``.
        folder: where configurations, logs and state go.
        count: nodes in the group.
        settings: further properties for every node.
        jvm: options of a Java node's JVM.
        version: the release of a Java node.
        ports: where they listen, when that is where others did.
    """

    def __init__(
        self,
        kind: str,
        folder: Path,
        *,
        count: int = 3,
        settings: Mapping[str, object] | None = None,
        jvm: Sequence[str] = TEST_JVM,
        version: str = maven.DEFAULT_VERSION,
        ports: Sequence[int] | None = None,
    ) -> None:
        self.kind = kind
        self.folder = folder
        block = allocate_ports()
        self.ports = list(ports or block[:count])
        self._raft_ports = list(block[count : 2 * count])
        self.addresses = [f"127.0.0.1:{port}" for port in self.ports]
        self._settings = dict(settings or {})
        self.nodes = [self._node(index, jvm, version) for index in range(count)]

    @property
    def address_list(self) -> str:
        """What goes into a broker's ``controllerAddr``."""
        return ";".join(self.addresses)

    @property
    def children(self) -> list[Child]:
        """The processes of all controllers."""
        return self.nodes

    @property
    def serving(self) -> list[int]:
        """The nodes that run and are not stopped."""
        return [i for i, node in enumerate(self.nodes) if node.alive and not node.stopped]

    def start(self, nodes: Iterable[int] | None = None) -> None:
        """Start all nodes (or the given ones) and wait until they boot."""
        chosen = range(len(self.nodes)) if nodes is None else list(nodes)
        for index in chosen:
            self.nodes[index].start()
        for index in chosen:
            self.nodes[index].wait_for_line(BOOT_LINE, BOOT_TIMEOUT_S)

    def kill(self, node: int) -> None:
        """``kill -9`` a node."""
        self.nodes[node].kill()

    def terminate(self, node: int) -> bool:
        """SIGTERM a node; tell whether it ended by itself."""
        return self.nodes[node].terminate()

    def stop(self, node: int) -> None:
        """SIGSTOP a node."""
        self.nodes[node].stop()

    def cont(self, node: int) -> None:
        """SIGCONT a node."""
        self.nodes[node].cont()

    def restart(self, node: int) -> None:
        """Terminate a node, start it again, wait until it boots."""
        self.terminate(node)
        self.start([node])

    def heal(self) -> None:
        """Have every node run, and a leader."""
        for node in self.nodes:
            if node.stopped:
                node.cont()
        dead = [i for i, node in enumerate(self.nodes) if not node.alive]
        self.start(dead)
        self.wait_for_leader()

    def close(self) -> None:
        """Kill every node."""
        for node in self.nodes:
            node.kill()

    def metadata(self, node: int) -> dict[str, str]:
        """The ext fields of 1005 as one node answers them."""
        address = self.addresses[node]
        answer = wire.invoke(address, wire.GET_METADATA_INFO, timeout_s=PROBE_TIMEOUT_S)
        return answer.ext

    def leader(self) -> int | None:
        """The node that calls itself leader and serves requests as such, None without one."""
        for index in self.serving:
            with contextlib.suppress(OSError, ValueError):
                if self.metadata(index).get("isLeader") == "true" and self._serves(index):
                    return index
        return None

    def wait_for_leader(
        self, *, other_than: int | None = None, timeout_s: float = LEADER_TIMEOUT_S
    ) -> int:
        """Wait until a node leads, and return it."""

        def found() -> tuple[int] | None:
            leader = self.leader()
            return None if leader is None or leader == other_than else (leader,)

        return wait_until(found, timeout_s, "a controller leader")[0]

    def wait_for_agreement(self, timeout_s: float = LEADER_TIMEOUT_S) -> int:
        """Wait until every running node names the same leader in 1005."""
        leader = self.wait_for_leader(timeout_s=timeout_s)

        def agreed() -> bool:
            with contextlib.suppress(OSError, ValueError):
                named = {
                    self.metadata(index).get("controllerLeaderAddress") for index in self.serving
                }
                return named == {self.addresses[leader]}
            return False

        wait_until(agreed, timeout_s, "all controllers to name the same leader")
        return leader

    def while_one_leads(self, check: Callable[[int], None], tries: int = 5) -> None:
        """Call ``check`` with the leader; again, if leadership moved while it was at work.

        A busy machine may move it between any two requests, which is no fault of what was asked.

        Args:
            check: raises AssertionError for what is wrong.
            tries: after so many moves the last error stands.
        """
        for left in reversed(range(tries)):
            leader = self.wait_for_agreement()
            try:
                check(leader)
            except AssertionError:
                if not left or self.wait_for_agreement() == leader:
                    raise
            else:
                return

    def ask_leader(
        self, code: int, ext: Mapping[str, object] | None = None, body: bytes = b""
    ) -> wire.Answer | None:
        """One request to the leader; None when no node leads just now."""
        for index in self.serving:
            with contextlib.suppress(OSError, ValueError):
                answer = wire.invoke(self.addresses[index], code, ext, body, PROBE_TIMEOUT_S)
                if answer.code != wire.NOT_LEADER:
                    return answer
        return None

    def replica_info(self, broker_name: str) -> ReplicaInfo | None:
        """What 1004 says about a broker set; None without a leader or such a set."""
        answer = self.ask_leader(wire.GET_REPLICA_INFO, {"brokerName": broker_name})
        if answer is None or answer.code != wire.SUCCESS:
            return None
        body = answer.json()
        master = answer.ext.get("masterBrokerId")
        return ReplicaInfo(
            master_id=None if master is None else int(master),
            master_address=answer.ext.get("masterAddress"),
            master_epoch=int(answer.ext["masterEpoch"]),
            sync_state_set=frozenset(body["syncStateSet"] or ()),
            sync_state_set_epoch=body["syncStateSetEpoch"],
        )

    def sync_state_set(self, broker_name: str) -> dict[str, Any] | None:
        """What 1006 says about a broker set; None without a leader or such a set."""
        body = b'["' + broker_name.encode() + b'"]'
        answer = self.ask_leader(wire.GET_SYNC_STATE_DATA, body=body)
        if answer is None or answer.code != wire.SUCCESS:
            return None
        found: dict[str, Any] | None = answer.json()["replicasInfoTable"].get(broker_name)
        return found

    def wait_for_master(
        self,
        broker_name: str,
        *,
        master_id: int | None = None,
        other_than: int | None = None,
        timeout_s: float = 30.0,
    ) -> ReplicaInfo:
        """Wait until the set has a master (a given one, or another than a given one)."""

        def found() -> ReplicaInfo | None:
            info = self.replica_info(broker_name)
            if info is None or info.master_id is None or info.master_id == other_than:
                return None
            return info if master_id in (None, info.master_id) else None

        what = f"a master of {broker_name} (id {master_id}, not {other_than})"
        return wait_until(found, timeout_s, what)

    def wait_for_sync_state_set(
        self, broker_name: str, ids: Iterable[int], timeout_s: float = 40.0
    ) -> ReplicaInfo:
        """Wait until the SyncStateSet is exactly ``ids``."""
        expected = frozenset(ids)
        seen: list[ReplicaInfo | None] = [None]

        def found() -> ReplicaInfo | None:
            seen[0] = self.replica_info(broker_name)
            info = seen[0]
            return info if info is not None and info.sync_state_set == expected else None

        return wait_until(
            found, timeout_s, f"the SyncStateSet of {broker_name} to be {sorted(expected)}"
        )

    def _serves(self, node: int) -> bool:
        ext = {"brokerName": "interop-probe"}
        answer = wire.invoke(
            self.addresses[node], wire.GET_REPLICA_INFO, ext, timeout_s=PROBE_TIMEOUT_S
        )
        return answer.code != wire.NOT_LEADER

    def _node(self, index: int, jvm: Sequence[str], version: str) -> Child:
        home = self.folder / f"controller{index}"
        store = home / "store"
        if self.kind == "jraft":
            peers = java.jraft_properties(index, self.ports, self._raft_ports, store)
        else:
            peers = java.dledger_properties(index, self.ports, store)
        config = home / "controller.properties"
        properties = {
            **peers,
            "rocketmqHome": home,
            "configStorePath": home / "saved.properties",
            "mappedFileSize": 64 * java.MIB,
            **self._settings,
        }
        java.write_properties(config, properties)
        if self.kind == "rmqha":
            command = [sys.executable, "-m", "rmqha.cli.mqcontroller", "-c", str(config)]
        else:
            command = java.controller_command(home, config, jvm, version)
        name = f"{self.kind}-n{index}"
        return Child(name, command, home / "out.log", env={"ROCKETMQ_HOME": str(home)})
