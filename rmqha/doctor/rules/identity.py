"""Who a broker's files say it is, beside who its configuration and the controllers say."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import EMPTYING, sync_state_set
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import ConfFacts, Facts, replicas_of
from rmqha.remoting.bodies import ReplicaIdentity


def _controlled(facts: Facts) -> ConfFacts | None:
    """The configuration, if it is one of a broker under controllers."""
    conf = facts.conf
    return conf if conf is not None and conf.controller_mode else None


def _known(facts: Facts, name: str) -> dict[int, ReplicaIdentity]:
    info = facts.sets.get(name)
    return {} if info is None else {one.broker_id: one for one in replicas_of(info)}


def identity_damaged(facts: Facts) -> Iterator[Found]:
    """The identity file cannot be read."""
    one = facts.identity
    if one is not None and one.damage:
        yield Found(
            one.path,
            f"the identity file cannot be read: {one.damage}",
            "Java takes a broker without a readable identity for a new one: it gets a new id, and"
            " the old one stays in the SyncStateSet for ever. Ours does not start.",
            f"Write CLUSTER#BROKERNAME#ID into it, one line; {_shown(facts)} shows the id"
            " that has this broker's address.",
        )


def _shown(facts: Facts) -> str:
    name = facts.set_name or ("" if facts.conf is None else facts.conf.text("brokerName"))
    return sync_state_set(facts, name or "BROKERNAME")


def identity_missing(facts: Facts) -> Iterator[Found]:
    """A store with messages belongs to nobody."""
    one, store, conf = facts.identity, facts.store, _controlled(facts)
    if one is None or store is None or not store.has_data:
        return
    if one.final is not None or one.damage or one.temporary is not None:
        return
    if facts.conf is None and store.epochs:
        yield _missing_by_epochs(one.path, store.end_offset)
    if conf is None:
        return
    name = conf.text("brokerName")
    taken = [
        r for r in _known(facts, name).values() if facts.is_same(r.broker_address, conf.address)
    ]
    yield Found(
        one.path,
        f"the store has messages up to {store.end_offset} and no identity file",
        "The broker would be given a new id. Its old one stays in the SyncStateSet, where it is"
        " waited for and never answers.",
        f"Write {conf.text('brokerClusterName', 'DefaultCluster')}#{name}#{taken[0].broker_id}"
        " into it: the controllers have that id at this address."
        if taken
        else "If controllers have not known this broker (a store from before controller mode),"
        " start it. Else write CLUSTER#BROKERNAME#ID into it, with its old id.",
    )


def _missing_by_epochs(path: str, end_offset: int) -> Found:
    """Without a broker.conf: only brokers under controllers have epochs, and an identity."""
    return Found(
        path,
        f"the store has messages up to {end_offset} and epochs, and no identity file",
        "Its broker was under controllers. It would be given a new id, and its old one stays in the"
        " SyncStateSet, where it is waited for and never answers.",
        "If storePathBrokerIdentity in its file names another place, nothing is wrong. Else look with"
        " mqdoctor check -c and its broker.conf: it tells what to write.",
    )


def identity_unfinished(facts: Facts) -> Iterator[Found]:
    """A broker asked for its id and did not end that."""
    one = facts.identity
    if one is None or one.temporary is None:
        return
    beside = "beside a final identity" if one.final is not None else "and no final identity"
    yield Found(
        one.path,
        f"a temporary identity (id {one.temporary.broker_id}) is there, {beside}",
        "The broker ended while it asked for its id. Ours asks for the same id again; Java's"
        " throws it away and leaves the id unused for ever.",
        "Start the broker and look again."
        if one.final is None
        else "Nothing has to be done; the broker deletes it at its next start.",
    )


def identity_of_another(facts: Facts) -> Iterator[Found]:
    """The store belongs to another broker set or cluster than the configuration names."""
    one, conf = facts.identity, facts.conf
    found = None if one is None else one.final or one.temporary
    if one is None or conf is None or found is None:
        return
    cluster = conf.text("brokerClusterName", "DefaultCluster")
    name = conf.text("brokerName", found.broker_name)
    if (found.cluster_name, found.broker_name) != (cluster, name):
        yield Found(
            one.path,
            f"the store belongs to {found.broker_name} of {found.cluster_name}, {conf.path} says"
            f" {name} of {cluster}",
            "Each broker needs a store of its own: two sets share storePathRootDir, or a file was"
            " copied, or brokerName was changed.",
            "Point storePathRootDir to this broker's own store, or give the file its old names"
            " back. Delete brokerIdentity only with the whole store.",
        )


def id_unknown_to_controllers(facts: Facts) -> Iterator[Found]:
    """The controllers do not know the id that the broker has."""
    one, conf = facts.identity, _controlled(facts)
    if one is None or one.final is None or conf is None or not facts.has_sets:
        return
    if facts.set_name not in ("", one.final.broker_name):
        return  # the controllers were not asked for that set
    known = _known(facts, one.final.broker_name)
    if one.final.broker_id in known:
        return
    yield Found(
        one.path,
        f"the broker is {one.final.broker_id} of {one.final.broker_name}, and the controllers know"
        f" {', '.join(map(str, sorted(known))) or 'no such set'}",
        "Their data was wiped or is another group's, or this id was cleaned. A Java broker stays a"
        " slave without a master then, and is told 2010 for ever.",
        "Delete nothing yet. If controllers were replaced: start them with"
        " adoptUnknownBrokers=true (OPERATIONS, Replacing Java controllers). If only this broker"
        f" was cleaned and others of its set are in sync: empty its store ({EMPTYING}), and delete"
        " brokerIdentity with it, whose id nobody knows any more.",
    )


def address_changed(facts: Facts) -> Iterator[Found]:
    """The controllers know this id at another address."""
    one, conf = facts.identity, _controlled(facts)
    if one is None or one.final is None or conf is None or not conf.address:
        return
    replica = _known(facts, one.final.broker_name).get(one.final.broker_id)
    if replica is None or facts.is_same(replica.broker_address, conf.address):
        return
    yield Found(
        one.path,
        f"the controllers have broker {one.final.broker_id} at {replica.broker_address}, {conf.path}"
        f" says {conf.address}",
        "The machine's address has changed since it registered (brokers 5.1.1 and later keep their"
        " id), or a second process runs with a copy of this store.",
        f"If nothing runs at {replica.broker_address}, start this broker: it registers its new"
        " address. Brokers of 5.0 have their address for an identity and need the old one.",
    )
