"""A cluster to be attacked: Java's, ours as it comes out of the box, or ours closed.

Three controllers, a name server and some replicas of one set, each a process. "Closed" is what
docs/SECURITY.md advises but TLS: ``raftSecret``, ``haSecret``, users asked for everywhere and
policies at the brokers. Honest clients are a user there, and so is one of the attackers, who may use
a topic and a group of its own.
"""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Self

import msgspec

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER
from rmqha.testing.real.controllers import Controllers, ReplicaInfo
from rmqha.testing.real.java import CLUSTER_NAME, JavaBroker, NameServer
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from rmqha.testing.real.python import PythonBroker
from tests.attacks.attacker import Target

JAVA, OPEN, CLOSED = "java", "open", "closed"
KINDS = (JAVA, OPEN, CLOSED)
BROKER_NAME = "broker-a"
GROUP = "group1"
TOPIC, OWN_TOPIC, OWN_GROUP = "Honest", "Mallory", "MalloryGroup"
ROOT, HONEST, MALLORY = ("root", "root-secret"), ("honest", "h-secret"), ("mallory", "m-secret")
NOBODY = ("", "")
JAVA_HEAP = "-Xmx1g"
FORM_TIMEOUT_S = 120.0
RESTART_TIMEOUT_S = 60.0
ASK_S = 2.0
USERS = [
    {"username": HONEST[0], "password": HONEST[1]},
    {"username": MALLORY[0], "password": MALLORY[1]},
]
ASKING: dict[str, object] = {
    "authenticationEnabled": True,
    "initAuthenticationUser": json.dumps({"username": ROOT[0], "password": ROOT[1]}),
    "innerClientAuthenticationCredentials": json.dumps(
        {"accessKey": "inner", "secretKey": "inner-secret"}
    ),
}
STRANGE = "127.0.0.66"
"""Where attackers come from: to the servers another address than that of honest clients."""
BROKER: dict[str, object] = {
    "enablePropertyFilter": True,
    "timerWheelEnable": True,
    "allAckInSyncStateSet": True,
    "syncBrokerMetadataPeriod": 1000,
    "checkSyncStateSetPeriod": 1000,
    "registerNameServerPeriod": 10_000,
}
"""Production's periods but for those that a test of minutes would wait for."""


@contextlib.contextmanager
def standing(what: str, kind: str, folder: str | None, *, keep: bool) -> Iterator[Fortress]:
    """A started cluster of three replicas in a new folder; what is no more alive is shown at the end.

    Args:
        what: is to be done with it; the folder's name begins with it.
        folder: where the new one is made; None for where temporary ones are.
        keep: leave its files.
    """
    if folder is not None:
        Path(folder).mkdir(parents=True, exist_ok=True)
    place = Path(tempfile.mkdtemp(prefix=f"rmqha-{what}-", dir=folder))
    fortress = Fortress(place, kind)
    try:
        yield fortress.start()
    finally:
        for child in fortress.children:
            if not child.alive:
                print(child.tail())
        fortress.close()
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


class Fortress:
    """Processes of one kind, and what is asked of them.

    Args:
        folder: for files.
        kind: ``java``, ``open`` or ``closed``.
        replicas: of the set.
    """

    def __init__(self, folder: Path, kind: str, replicas: int = 3) -> None:
        self.kind = kind
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._http: list[str] = []
        self.exporters: list[str] = []
        ours = kind != JAVA
        self.controllers = Controllers(
            "rmqha" if ours else "dledger", folder, settings=self._controller_settings(),
            jvm=("-Xms64m", JAVA_HEAP),
        )  # fmt: skip
        port = allocate_ports()[0]
        self.name_server: NameServer | PythonNameServer = (
            PythonNameServer(folder / "namesrv", port, self._namesrv_settings())
            if ours
            else NameServer(folder / "namesrv", port, jvm=(JAVA_HEAP,))
        )
        self.brokers = [self._broker(number + 1) for number in range(replicas)]

    def _http_port(self, spare: int) -> int:
        self._http.append(f"127.0.0.1:{spare}")
        return spare

    def _asking(self) -> dict[str, object]:
        if self.kind != CLOSED:
            return {}
        users = self.folder / "users.json"
        users.write_text(json.dumps(USERS))
        return {**ASKING, "authUsersPath": users, "raftSecret": "0123456789abcdef-raft"}

    def _controller_settings(self) -> dict[str, object]:
        # One exporter answers for all: their nodes share this file's content.
        return {**self._asking(), "bindAddress": "127.0.0.1"}

    def _namesrv_settings(self) -> dict[str, object]:
        found = self._asking()
        found.pop("raftSecret", None)
        return {**found, "statusPagePort": self._http_port(allocate_ports()[0])}

    def _broker(self, number: int) -> JavaBroker:
        ports = allocate_ports()
        settings: dict[str, object] = {
            **BROKER, "bindAddress": "127.0.0.1",
            "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": self._http_port(ports[8]),
        }  # fmt: skip
        if self.kind != JAVA:
            settings["statusPagePort"] = self._http_port(ports[9])
        if self.kind == CLOSED:
            settings |= {
                **ASKING, "authorizationEnabled": True, "haSecret": "0123456789abcdef-ha",
            }  # fmt: skip
        self.exporters.append(f"127.0.0.1:{ports[8]}")
        make = JavaBroker if self.kind == JAVA else PythonBroker
        # FAST_BROKER's periods are for tests of seconds; heartbeats stay as in production.
        settings["controllerHeartBeatTimeoutMills"] = FAST_BROKER["controllerHeartBeatTimeoutMills"]
        return make(
            self.folder / f"broker{number}", ports, number, self.name_server.address,
            self.controllers.address_list, broker_name=BROKER_NAME, settings=settings,
            jvm=(JAVA_HEAP, "-XX:MaxDirectMemorySize=1g"),
        )  # fmt: skip

    # -- life --------------------------------------------------------------------------------

    @property
    def children(self) -> list[Child]:
        """All processes."""
        brokers = [one.child for one in self.brokers]
        return [*self.controllers.children, self.name_server.child, *brokers]

    def start(self) -> Self:
        """Start everything; returns when all replicas are in sync and topics are there."""
        with self.as_root():
            self.name_server.start()
            self.controllers.start()
            self.name_server.wait_ready()
            self.controllers.wait_for_leader()
            for one in self.brokers:
                one.start()
                wait_until(lambda at=one: at.controller_id, FORM_TIMEOUT_S, "its id")
            self.wait_in_sync()
            self._populate()
        return self

    def close(self) -> None:
        """Kill every process."""
        for child in reversed(self.children):
            child.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    @contextlib.contextmanager
    def as_root(self) -> Iterator[None]:
        """Requests of this process are the operator's."""
        if self.kind == CLOSED:
            with wire.signing(*ROOT):
                yield
        else:
            yield

    def _populate(self) -> None:
        info = self.wait_in_sync()
        assert info.master_address is not None
        with wire.Connection(info.master_address, 10.0) as master:
            for topic in (TOPIC, OWN_TOPIC):
                wire.create_topic(master, topic, 4)
            for group in (OWN_GROUP, "rmqha_interop_reader"):
                master.ask(200, {}, json.dumps({"groupName": group}).encode())
            if self.kind == CLOSED:
                self._make_users(master)
        with wire.Connection(self.name_server.address) as server:
            wait_until(
                lambda: all(wire.broker_addresses(server, one, BROKER_NAME).get(0)
                            for one in (TOPIC, OWN_TOPIC)),
                FORM_TIMEOUT_S, "the routes of both topics",
            )  # fmt: skip

    @staticmethod
    def _make_users(master: wire.Connection) -> None:
        leave = {
            HONEST: (f"Topic:{TOPIC}", "Group:*"),
            MALLORY: (f"Topic:{OWN_TOPIC}", f"Group:{OWN_GROUP}"),
        }
        for (name, password), (topic, group) in leave.items():
            master.ask(3001, {"username": name}, json.dumps({"password": password}).encode())
            entries = [
                {"resource": topic, "actions": ["Pub", "Sub", "Get"], "decision": "Allow"},
                {"resource": group, "actions": ["Sub", "Get"], "decision": "Allow"},
            ]
            body = json.dumps({"policies": [{"entries": entries}]}).encode()
            master.ask(3006, {"subject": f"User:{name}"}, body)

    def restart(self, broker: JavaBroker) -> bool:
        """End a replica and start it on its files; whether it came back into the SyncStateSet."""
        broker.child.terminate()
        broker.start()
        try:
            self.wait_in_sync(RESTART_TIMEOUT_S)
        except AssertionError:
            return False
        return True

    # -- questions ---------------------------------------------------------------------------

    def wait_in_sync(self, timeout_s: float = FORM_TIMEOUT_S) -> ReplicaInfo:
        """Wait until all replicas are in the SyncStateSet and the name server knows the master."""

        def everyone() -> ReplicaInfo | None:
            info = self.controllers.replica_info(BROKER_NAME)
            ids = {one.controller_id for one in self.brokers}
            if info is None or info.master_id is None or info.sync_state_set != ids:
                return None
            with contextlib.suppress(OSError, ValueError):
                return info if self.routed_master() == info.master_address else None
            return None

        with self.as_root():
            return wait_until(everyone, timeout_s, "all replicas in sync and the route", 0.1)

    def routed_master(self) -> str | None:
        """Broker 0 by the name server."""
        with self.as_root(), wire.Connection(self.name_server.address, ASK_S) as server:
            return wire.broker_addresses(server, BROKER_NAME, BROKER_NAME).get(0)

    def leader(self) -> int | None:
        """The controller that leads."""
        with self.as_root():
            return self.controllers.leader()

    def info(self) -> ReplicaInfo | None:
        """What 1004 says."""
        with self.as_root():
            return self.controllers.replica_info(BROKER_NAME)

    def target(self, user: tuple[str, str] = NOBODY, source: str = STRANGE) -> Target:
        """What an attacker is told; ``user`` counts only where there are users at all."""
        info = self.info()
        assert info is not None
        assert info.master_address is not None
        key, secret = user if self.kind == CLOSED else NOBODY
        controllers = tuple(self.controllers.addresses)
        return Target(
            controllers=controllers,
            raft=controllers,
            namesrv=(self.name_server.address,),
            brokers=tuple(one.address for one in self.brokers),
            ha=tuple(f"127.0.0.1:{one.port + 1}" for one in self.brokers),
            http=tuple(self._http),
            broker_name=BROKER_NAME,
            cluster_name=CLUSTER_NAME,
            group=GROUP,
            master=info.master_address,
            topic=TOPIC,
            own_topic=OWN_TOPIC,
            own_group=OWN_GROUP,
            source=source,
            access_key=key,
            secret_key=secret,
        )

    def write_target(self, user: tuple[str, str] = NOBODY, source: str = STRANGE) -> Path:
        """The same as a file."""
        path = self.folder / f"target-{user[0] or 'nobody'}.json"
        path.write_bytes(msgspec.json.encode(self.target(user, source)))
        return path
