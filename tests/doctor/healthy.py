"""A cluster in which nothing is wrong, as facts; tests break one thing of it."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from rmqha.doctor import examine
from rmqha.doctor.diagnosis import Diagnosis, Found
from rmqha.doctor.facts import (
    BrokerFacts,
    ConfFacts,
    ControllerFacts,
    ControllerView,
    Facts,
    HaFacts,
    IdentityFacts,
    NameServerFacts,
    PortFacts,
    QueueFacts,
    SetView,
    Silent,
    StoreFacts,
)
from rmqha.ha.epochs import OFFSET_MAX, EpochEntry
from rmqha.remoting import bodies
from rmqha.store.checkpoint import Checkpoint
from rmqha.store.identity import Identity
from tests.doctor.advised import need_typed

NAME, CLUSTER, END = "broker-a", "DefaultCluster", 5_000
CONTROLLERS = tuple(f"10.0.0.{n}:9878" for n in (1, 2, 3))
NAME_SERVERS = ("10.0.0.4:9876", "10.0.0.5:9876")
MASTER, SLAVE, OTHER = (f"10.0.1.{n}:10911" for n in (1, 2, 3))
BROKERS = {1: MASTER, 2: SLAVE, 3: OTHER}
STORE = "/store"
OURS = {"brokerVersionDesc": "rmqha_1.0"}
JAVA = {"brokerVersionDesc": "V5_3_3"}
DOWN = Silent(False, "cannot connect")
HANGS = Silent(True, "did not answer in time")
CONFIG = {
    "controllerAddr": ";".join(CONTROLLERS), "namesrvAddr": ";".join(NAME_SERVERS),
    "enableControllerMode": "true", "allAckInSyncStateSet": "true", "inSyncReplicas": "1",
    "minInSyncReplicas": "2", "haListenPort": "10912",
}  # fmt: skip
EPOCHS = (EpochEntry(1, 0), EpochEntry(3, 2_000))


def replica(broker_id: int, *, alive: bool = True) -> bodies.ReplicaIdentity:
    """One replica in the controllers' answer."""
    return bodies.ReplicaIdentity(NAME, broker_id, BROKERS[broker_id], alive)


def info(
    in_sync: tuple[bodies.ReplicaIdentity, ...] = (replica(1), replica(2), replica(3)),
    behind: tuple[bodies.ReplicaIdentity, ...] = (),
    master: int | None = 1,
) -> bodies.ReplicasInfo:
    """The broker set by the controllers' word."""
    address = None if master is None else BROKERS[master]
    return bodies.ReplicasInfo(master, address, 3, 7, in_sync, behind)


def cache(
    broker_id: int, entries: tuple[EpochEntry, ...] = EPOCHS, name: str = NAME
) -> bodies.EpochEntryCache:
    """A broker's epochs."""
    listed = tuple(bodies.EpochEntry(one.epoch, one.start, OFFSET_MAX) for one in entries)
    return bodies.EpochEntryCache(CLUSTER, name, broker_id, listed, END)


def _broker(broker_id: int) -> BrokerFacts:
    address = BROKERS[broker_id]
    is_master = broker_id == 1
    return BrokerFacts(
        address,
        NAME,
        runtime={"commitLogMaxOffset": str(END), "pageCacheLockTimeMills": "0", **OURS},
        ha=HaFacts(is_master, "" if is_master else "10.0.1.1:10912", not is_master,
                   2 if is_master else 0, (0, 0) if is_master else ()),
        epochs=cache(0 if is_master else broker_id),
        config={**CONFIG, "brokerIP2": address.partition(":")[0]},
        topics=frozenset({"Orders", "Payments"}),
        clock_ahead_ms=-700,
    )  # fmt: skip


def _controller(number: int) -> ControllerFacts:
    view = ControllerView(
        f"n{number}", "leader" if number == 0 else "follower", 4, True, 90, 90,
        {NAME: SetView(1, 3, (1, 2, 3), 7)},
    )  # fmt: skip
    return ControllerFacts(
        CONTROLLERS[number], leads=number == 0, leader_address=CONTROLLERS[0],
        peers={f"n{n}": one for n, one in enumerate(CONTROLLERS)}, view=view,
        config={"enableElectUncleanMaster": "false"},
    )  # fmt: skip


def group(**more: str) -> bodies.BrokerMemberGroup:
    """The set at a name server; ``id0=ADDRESS`` replaces who is registered under an id."""
    known = {0: MASTER, 2: SLAVE, 3: OTHER} | {int(key[2:]): one for key, one in more.items()}
    return bodies.BrokerMemberGroup(CLUSTER, NAME, known)


HEALTHY = Facts(
    controllers=tuple(map(_controller, range(3))),
    name_servers=tuple(NameServerFacts(one, sets={NAME: group()}) for one in NAME_SERVERS),
    brokers=tuple(map(_broker, BROKERS)),
    sets={NAME: info()},
    has_sets=True,
    conf=ConfFacts(
        "broker.conf", {"brokerName": NAME, "brokerIP1": "10.0.1.2", **CONFIG}, address=SLAVE
    ),
    identity=IdentityFacts("/store/brokerIdentity", Identity(CLUSTER, NAME, 2)),
    store=StoreFacts(
        STORE, 0, END, "nothing was written here", checkpoint=Checkpoint(1, 1, 1, 0, END),
        epochs=EPOCHS, queues=(QueueFacts("Orders", 0, 10, END),),
        consumer_offsets={("Orders", "group", 0): 10},
    ),
    ports=(PortFacts("listenPort", 10911, is_free=False),),
)  # fmt: skip


def change(nodes: tuple[Any, ...], address: str, **what: Any) -> tuple[Any, ...]:
    """Nodes of which one is changed."""
    assert any(one.address == address for one in nodes)
    return tuple(replace(one, **what) if one.address == address else one for one in nodes)


def controller(number: int, facts: Facts = HEALTHY, **what: Any) -> Facts:
    """The cluster with one controller changed."""
    changed = change(facts.controllers, CONTROLLERS[number], **what)
    return replace(facts, controllers=changed)


def broker(broker_id: int, facts: Facts = HEALTHY, **what: Any) -> Facts:
    """The cluster with one broker changed."""
    return replace(facts, brokers=change(facts.brokers, BROKERS[broker_id], **what))


def silent(broker_id: int, why: Silent = DOWN, facts: Facts = HEALTHY) -> Facts:
    """The cluster with one broker that says nothing."""
    gone = BrokerFacts(BROKERS[broker_id], NAME, why)
    return replace(
        facts, brokers=tuple(gone if one.address == gone.address else one for one in facts.brokers)
    )


def name_server(number: int, facts: Facts = HEALTHY, **what: Any) -> Facts:
    """The cluster with one name server changed."""
    changed = change(facts.name_servers, NAME_SERVERS[number], **what)
    return replace(facts, name_servers=changed)


def sets(one: bodies.ReplicasInfo, facts: Facts = HEALTHY) -> Facts:
    """The cluster with another word of the controllers."""
    return replace(facts, sets={NAME: one})


def conf(facts: Facts = HEALTHY, **values: str) -> Facts:
    """The cluster with keys of broker.conf changed; an empty text takes one out."""
    assert facts.conf is not None
    return replace(facts, conf=replace(facts.conf, values={**facts.conf.values, **values}))


def store(facts: Facts = HEALTHY, **what: Any) -> Facts:
    """The cluster with another store."""
    assert facts.store is not None
    return replace(facts, store=replace(facts.store, **what))


def identity(facts: Facts = HEALTHY, **what: Any) -> Facts:
    """The cluster with other identity files."""
    assert facts.identity is not None
    return replace(facts, identity=replace(facts.identity, **what))


def config(broker_id: int, facts: Facts = HEALTHY, **keys: str) -> Facts:
    """The cluster with keys of one broker's configuration changed."""
    one = facts.broker(BROKERS[broker_id])
    assert one is not None
    return broker(broker_id, facts, config={**one.config, **keys})


def everywhere(**keys: str) -> Facts:
    """The cluster with keys of all brokers' configurations changed."""
    facts = HEALTHY
    for broker_id in BROKERS:
        facts = config(broker_id, facts, **keys)
    return facts


def java(*broker_ids: int, facts: Facts = HEALTHY) -> Facts:
    """The cluster in which these brokers are Java's."""
    for broker_id in broker_ids:
        one = facts.broker(BROKERS[broker_id])
        assert one is not None
        facts = broker(broker_id, facts, runtime={**one.runtime, **JAVA})
    return facts


def diagnose(facts: Facts) -> list[Diagnosis]:
    """What is found, each with advice that can be typed."""
    found = examine.diagnose(facts)
    for one in found:
        need_typed(one, facts)
    return found


def find(facts: Facts, code: str) -> Found:
    """The first diagnosis of a code among several."""
    return next(one.found for one in diagnose(facts) if one.code == code)


def only(facts: Facts, code: str) -> Diagnosis:
    """The one diagnosis of the facts: its code, and no other one."""
    found = diagnose(facts)
    assert [one.code for one in found] == [code], [one.text() for one in found]
    return found[0]


def codes(facts: Facts) -> list[str]:
    """All codes that are found."""
    return [one.code for one in diagnose(facts)]
