"""One broker set under test: name server, three controllers, some real brokers.

``heal`` brings a cluster back to "everything runs, everyone is in sync", so that the tests of a
module share one cluster and each still starts from the same place.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Self

from rmqha.testing.real import maven, wire
from rmqha.testing.real.controllers import Controllers, ReplicaInfo
from rmqha.testing.real.java import JavaBroker, NameServer
from rmqha.testing.real.processes import Child, WaitTimeout, allocate_ports, wait_until

JOIN_TIMEOUT_S = 120.0
"""A 5.3.3 slave that must cut its log first waits up to 90 s for a thread that dispatches it.

That thread turns round and round while the confirm offset stands before the log's end, and the
confirm offset moves no more.
"""

ROUTE_TIMEOUT_S = 45.0

# Periods lowered from 5, 5, 10, 10 and 15 s: the tests wait for several of them.
FAST_BROKER: Mapping[str, object] = {
    "checkSyncStateSetPeriod": 1000,
    "syncBrokerMetadataPeriod": 1000,
    "syncControllerMetadataPeriod": 2000,
    "controllerHeartBeatTimeoutMills": 3000,
    "haMaxTimeSlaveNotCatchup": 3000,
    "haSendHeartbeatInterval": 1000,
    "registerNameServerPeriod": 10000,
    "allAckInSyncStateSet": True,
}
FAST_CONTROLLER: Mapping[str, object] = {
    "scanNotActiveBrokerInterval": 1000,
    "scanInactiveMasterInterval": 1000,
}


class Cluster:
    """A name server, controllers of one kind and the brokers of one set."""

    def __init__(
        self,
        folder: Path,
        kind: str,
        *,
        brokers: int = 3,
        version: str = maven.DEFAULT_VERSION,
        broker_settings: Mapping[str, object] = FAST_BROKER,
        controller_settings: Mapping[str, object] = FAST_CONTROLLER,
        broker_name: str = "broker-a",
    ) -> None:
        self.folder = folder
        self.kind = kind
        self.version = version
        self.broker_name = broker_name
        self.name_server = NameServer(folder / "namesrv", allocate_ports()[0], version)
        self.controllers = Controllers(kind, folder, settings=controller_settings)
        self._broker_settings = dict(broker_settings)
        self.brokers: list[JavaBroker] = []
        for _ in range(brokers):
            self.add_broker()

    @property
    def children(self) -> list[Child]:
        """Every process of the cluster."""
        brokers = [broker.child for broker in self.brokers]
        return [self.name_server.child, *self.controllers.children, *brokers]

    def add_broker(self) -> JavaBroker:
        """Configure one more broker; the caller starts it."""
        number = len(self.brokers) + 1
        broker = JavaBroker(
            self.folder / f"broker{number}",
            allocate_ports(),
            number,
            self.name_server.address,
            self.controllers.address_list,
            broker_name=self.broker_name,
            version=self.version,
            settings=self._broker_settings,
        )
        self.brokers.append(broker)
        return broker

    def start(self) -> None:
        """Start everything; brokers join one by one, so broker 1 gets id 1 and is master."""
        self.start_base()
        self.join_all()

    def start_base(self) -> None:
        """Start the name server and the controllers, and wait for a leader."""
        self.name_server.start()
        self.controllers.start()
        self.name_server.wait_ready()
        self.controllers.wait_for_leader()

    def join_all(self) -> None:
        """Start the brokers; the second waits for the first one's mastership only."""
        first, *others = self.brokers
        first.start()
        self.controllers.wait_for_master(self.broker_name, timeout_s=JOIN_TIMEOUT_S)
        previous = first
        for broker in others:
            known = partial(getattr, previous, "controller_id")
            wait_until(known, JOIN_TIMEOUT_S, f"the id of {previous.child.name}")
            broker.start()
            previous = broker
        self.wait_in_sync()

    def heal(self) -> ReplicaInfo:
        """Have every process run and every replica in sync, and the route name the master."""
        self.controllers.heal()
        for broker in self.brokers:
            if broker.child.stopped:
                broker.child.cont()
            if not broker.child.alive:
                broker.start()
        return self.wait_in_sync()

    def wait_in_sync(self, timeout_s: float = JOIN_TIMEOUT_S) -> ReplicaInfo:
        """Wait until all brokers that run are the SyncStateSet and the name server knows the master."""
        running = [broker for broker in self.brokers if broker.child.alive]

        def everyone() -> ReplicaInfo | None:
            info = self.controllers.replica_info(self.broker_name)
            ids = {broker.controller_id for broker in running}
            if info is None or None in ids or info.master_id is None:
                return None
            return info if info.sync_state_set == ids else None

        try:
            info = wait_until(everyone, timeout_s, "every broker to be in the SyncStateSet")
        except WaitTimeout as error:
            found = self.controllers.replica_info(self.broker_name)
            ids = {broker.child.name: broker.controller_id for broker in running}
            for broker in running:
                if found is None or broker.controller_id not in found.sync_state_set:
                    print(broker.child.thread_dump())
            raise WaitTimeout(f"{error}; brokers {ids}, the controllers say {found}") from None
        self.wait_for_route(info)
        return info

    def wait_in_sync_or_restart(self, timeout_s: float = JOIN_TIMEOUT_S) -> int:
        """The same after a master was stopped or killed: a Java slave that had reached its HA port
        may hang there for good, which only the broker itself can end. Such ones are restarted.

        Returns:
            How many were.
        """
        try:
            self.wait_in_sync(timeout_s)
        except WaitTimeout:
            info = self.controllers.wait_for_master(self.broker_name)
            running = [broker for broker in self.brokers if broker.child.alive]
            stuck = [b for b in running if b.controller_id not in info.sync_state_set]
            if not stuck:
                raise
            for broker in stuck:
                broker.child.kill()
                broker.start()
            self.wait_in_sync(timeout_s)
            return len(stuck)
        return 0

    def wait_for_route(self, info: ReplicaInfo, timeout_s: float = ROUTE_TIMEOUT_S) -> None:
        """Wait until the name server names the master of ``info`` as broker 0."""
        with wire.Connection(self.name_server.address) as name_server:
            wait_until(
                lambda: self.routed_master(name_server) == info.master_address,
                timeout_s,
                f"the route to name {info.master_address} as master",
            )

    def routed_master(self, name_server: wire.Connection) -> str | None:
        """The address that the name server has for broker id 0."""
        # The topic named like the broker exists on every broker from its start.
        routed = wire.broker_addresses(name_server, self.broker_name, self.broker_name)
        return routed.get(0)

    def broker(self, controller_id: int | None) -> JavaBroker:
        """The broker that holds a controller id."""
        return next(b for b in self.brokers if b.controller_id == controller_id)

    def master(self) -> JavaBroker:
        """The broker that is master by the controllers' word."""
        info = self.controllers.wait_for_master(self.broker_name)
        return self.broker(info.master_id)

    def slaves(self) -> list[JavaBroker]:
        """The brokers that are not master."""
        master = self.master()
        return [broker for broker in self.brokers if broker is not master]

    def close(self) -> None:
        """Kill every process of the cluster."""
        for child in reversed(self.children):
            child.kill()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
