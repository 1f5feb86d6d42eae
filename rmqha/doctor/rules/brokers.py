"""Brokers by their own word: whether they work, and are who others take them for."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import (
    EMPTYING,
    broker_epochs,
    clean_broker,
    elect_master,
    successor,
    sync_state_set,
)
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.distinct import ids_twice
from rmqha.doctor.facts import (
    BrokerFacts,
    Facts,
    controlled_sets,
    is_loopback,
    registered_master,
    replicas_of,
)
from rmqha.doctor.values import is_true, meant

CLOCK_SKEW_MS_MAX = 5_000
STUCK_MS_MAX = 2_000
"""A write that takes longer is one that clients have given up."""


def broker_hangs(facts: Facts) -> Iterator[Found]:
    """A broker takes connections and does not answer."""
    for one in facts.brokers:
        if one.silent is None or one.is_there:
            continue
        if one.silent.ended:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"the broker takes connections and gives none of them an answer: {one.silent.reason}",
                "It turns them away (connectionsMax), it is on its way down, or something else"
                " listens there, which speaks another protocol.",
                "Look at its log (`rejected` says what it turned away), and at who listens there:"
                " ss -ltnp. Kill nothing for this alone: clients that are in may be served.",
            )
        elif one.silent.hangs:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"the broker takes connections and does not answer: {one.silent.reason}",
                "It is stopped, swapped out, waits for a disk, or something else listens there."
                " Controllers that only look at connections take it for alive.",
                "Look at the process (its state, a stack, dmesg). If it is the master and nobody"
                " has replaced it: kill it, so that its connections end and an election begins.",
            )


def address_not_reachable(facts: Facts) -> Iterator[Found]:
    """A living broker is known by an address at which it cannot be reached from here."""
    who = dict.fromkeys(_registered_only(facts), "name servers send clients to this broker")
    for _, info in controlled_sets(facts):
        living = (one.broker_address for one in replicas_of(info) if one.alive)
        who |= dict.fromkeys(living, "controllers hear this broker")
    for one in facts.brokers:
        if one.is_there or one.silent is None or one.silent.connected:
            continue
        if one.address not in who:
            continue
        yield Found(
            f"{one.listed_as} {one.address}",
            f"{who[one.address]}, and {one.address} cannot be connected to from here:"
            f" {one.silent.reason}",
            "That address is what clients and slaves are given. It is wrong (the address of a"
            " container, of another network, of a machine that moved), a firewall is between, or the"
            " broker died a moment ago and is not missed yet: by controllers for"
            " controllerHeartBeatTimeoutMills, by Java's name servers for two minutes.",
            "If this machine should reach it, set brokerIP1 and brokerIP2 to addresses that others"
            " can reach and restart the broker; its id stays.",
        )


def _registered_only(facts: Facts) -> list[str]:
    """Addresses at name servers of sets that no controller tells of here."""
    return [
        address
        for server in facts.name_servers
        for name, group in server.sets.items()
        if name not in facts.sets
        for address in group.broker_addrs.values()
    ]


def loopback_advertised(facts: Facts) -> Iterator[Found]:
    """A broker is known by an address that is the own machine to everybody."""
    others = facts.elsewhere
    known = {one.address: one.listed_as for one in facts.brokers}
    if facts.conf is not None and facts.conf.address:
        known.setdefault(facts.conf.address, facts.conf.path)
    for address, name in known.items():
        if others and is_loopback(address):
            yield Found(
                f"{name} {address}",
                f"the broker makes itself known as {address}",
                f"To {others[0]} that is its own machine: clients and slaves elsewhere find"
                " nothing there, or somebody else.",
                "Set brokerIP1 and brokerIP2 in broker.conf to an address that others can reach,"
                " and restart the broker.",
            )


def address_of_another_broker(facts: Facts) -> Iterator[Found]:
    """Behind a registered address there is a broker of another set."""
    for one in facts.brokers:
        epochs = one.epochs
        if epochs is None or epochs.broker_name in ("", one.listed_as):
            continue
        yield Found(
            f"{one.listed_as} {one.address}",
            f"{one.address} is known as a broker of {one.listed_as}, and says that it is of"
            f" {epochs.broker_name}",
            "The address was given to another broker (a container or machine that was replaced),"
            " or brokerName was changed. Slaves and clients of one set meet the other's log.",
            "Find out who moved. Start the old broker on its new address, which it registers by"
            f" itself, or take it out: {_out(facts, one)}.",
        )


def _out(facts: Facts, one: BrokerFacts) -> str:
    """The line that has the controllers forget the id that is known at this address."""
    info = facts.sets.get(one.listed_as)
    known = () if info is None else replicas_of(info)
    found = next((r.broker_id for r in known if r.broker_address == one.address), None)
    if found is None:
        return "a name server forgets it by itself"
    return clean_broker(facts, one.listed_as, found)


def two_masters(facts: Facts) -> Iterator[Found]:
    """More than one broker of a set takes itself for master."""
    for name in _names(facts):
        masters = [one for one in facts.brokers_of(name) if one.acts_as_master]
        if len(masters) < 2:
            continue
        yield Found(
            name,
            f"{', '.join(_with_epoch(one) for one in masters)} all act as master",
            *_of_the_controllers(facts, name),
        )


def _of_the_controllers(facts: Facts, name: str) -> tuple[str, str]:
    """Why two masters are wrong, and which may be stopped: the controllers say, if they are heard."""
    info = facts.sets.get(name)
    lost = "Another one that still takes writes acknowledges messages that will be cut off."
    if info is None:
        return (
            f"No controller tells of the set here, so that nobody says which is the right one. {lost}",
            "Stop none of them yet. Bring back a majority of the controllers, or name them with"
            " --controllers, and look again. Without controllers: the one of the lower epoch is the"
            f" older one; compare them ({broker_epochs(facts, name)}) before you stop it.",
        )
    if info.master_address is None:
        return (
            f"The controllers have nobody as master, and are in epoch {info.master_epoch}. {lost}",
            "Stop the producers, and none of these brokers yet. See that their heartbeats reach the"
            " leading controller, which elects a member of the SyncStateSet; stop the others then"
            f" ({sync_state_set(facts, name)}).",
        )
    return (
        f"The controllers have {info.master_address} as master. {lost}",
        "Stop the one that is not the controllers' master now, and copy its store; started again it"
        " follows, and cuts off what it alone has. What it acknowledged meanwhile must be sent again.",
    )


def wrong_broker_acts_as_master(facts: Facts) -> Iterator[Found]:
    """The controllers' master does not act as one, or only another broker does."""
    for name, info in controlled_sets(facts):
        masters = [one for one in facts.brokers_of(name) if one.acts_as_master]
        chosen = facts.master_of(name)
        if len(masters) > 1 or chosen is None or chosen.ha is None or chosen.acts_as_master:
            continue
        acting = masters[0].address if masters else "nobody"
        yield Found(
            name,
            f"the controllers have {info.master_address} as master, and {acting} acts as master",
            "brokerRole in a file decides nothing here; a broker takes its role from the"
            f" controllers' notifications, and this one has not taken epoch {info.master_epoch}.",
            "Look for the role change in its log: it does not reach the controllers, or its epoch"
            " file is ahead of them. Stop whoever else acts as master first.",
        )


def _with_epoch(one: BrokerFacts) -> str:
    entries = () if one.epochs is None else one.epochs.epoch_list
    return f"{one.address} (epoch {entries[-1].epoch})" if entries else one.address


def _names(facts: Facts) -> list[str]:
    return sorted({one.listed_as for one in facts.brokers})


def broker_id_twice(facts: Facts) -> Iterator[Found]:
    """Two brokers of a set have one id."""
    for name in _names(facts):
        for broker_id, addresses in ids_twice(facts, name).items():
            yield Found(
                f"{name} {broker_id}",
                f"{' and '.join(addresses)} both are broker {broker_id}",
                "A store was copied with its brokerIdentity. Their heartbeats overwrite each"
                " other, and an election may pick either.",
                "Stop the copy, delete its brokerIdentity (not the original's), and start it:"
                " it gets an id of its own.",
            )


def broker_address_changes(facts: Facts) -> Iterator[Found]:
    """The controllers have a broker now at one address and now at another."""
    for (name, broker_id), addresses in sorted(facts.moved.items()):
        if broker_id in ids_twice(facts, name):
            continue
        yield Found(
            f"{name} {broker_id}",
            f"the controllers had broker {broker_id} at {' and at '.join(addresses)}, a moment apart",
            "It was started at another address just now, or two processes have one id: a store that"
            " was copied with its brokerIdentity. Then each heartbeat overwrites the other's address.",
            "Look again. If it changes still, look for a second process at these addresses. Stop the"
            " copy, delete its brokerIdentity (not the original's), and start it.",
        )


def clock_skew(facts: Facts) -> Iterator[Found]:
    """A broker's clock is not this machine's."""
    for one in facts.brokers:
        ahead_ms = one.clock_ahead_ms
        if ahead_ms is not None and abs(ahead_ms) > CLOCK_SKEW_MS_MAX:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"its clock is {abs(ahead_ms) / 1000:.0f} s"
                f" {'ahead of' if ahead_ms > 0 else 'behind'} this machine's",
                "Store timestamps, delayed messages, expiry of files and searches by time follow a"
                " master's clock; after a failover they jump.",
                "Let NTP mend the clock, here or there; slowly, on a running broker.",
            )


def disk_stuck(facts: Facts) -> Iterator[Found]:
    """A broker's writes wait for its disk while it heartbeats."""
    for one in facts.brokers:
        text = one.runtime.get("pageCacheLockTimeMills", "0")
        stuck_ms = int(text) if text.isdigit() else 0
        if stuck_ms > STUCK_MS_MAX:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"a write to its commit log has been under way for {stuck_ms} ms",
                "Heartbeats do not tell of disks, so that Java's controllers elect nobody for it.",
                _off_this_disk(facts, one),
            )


def _off_this_disk(facts: Facts, one: BrokerFacts) -> str:
    look = "Look at the disk (dmesg, iostat)."
    target = successor(facts, one.listed_as)
    if not one.acts_as_master:
        return f"{look} If it does not recover, stop this broker; the others go on without it."
    if target is None:
        return f"{look} Nobody else is in sync, so keep this broker until somebody is."
    line = elect_master(facts, one.listed_as, target.broker_id)
    return f"{look} If it does not recover: {line}, then stop this broker."


def records_damaged(facts: Facts) -> Iterator[Found]:
    """A broker's log has messages that are not what was written, and nobody has a whole copy."""
    for one in facts.brokers:
        damaged, differing = (
            int(text) if (text := one.runtime.get(key, "0")).isdigit() else 0
            for key in ("recordsDamaged", "recordsDiffering")
        )
        if damaged:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"{damaged} messages in its commit log are damaged and could not be mended",
                "Bits have flipped on its disk or in its memory, and no other replica that answers"
                " has a whole copy. Pulls of their queues are refused there; record_damaged in its"
                " log names their offsets.",
                "Bring the other replicas of the set back, so that they can be asked. If none has a"
                " copy: resetOffsetByTime leads a group past them. Then replace the disk, and empty"
                f" this replica's store ({EMPTYING}), so that it copies the log.",
            )
        if differing:
            yield Found(
                f"{one.listed_as} {one.address}",
                f"{differing} messages are whole on two replicas and not the same",
                "A bit has flipped where no checksum looks, and no majority tells on which of them;"
                " record_differs in its log names their offsets.",
                "Compare them (queryMsgByOffset on both), and empty the store of the replica that is"
                f" wrong ({EMPTYING}), so that it copies the log. enabledAppendPropCRC=true lets a"
                " checksum look everywhere.",
            )


def controller_mode_mixed(facts: Facts) -> Iterator[Found]:
    """Some brokers of a set are under controllers and some are not."""
    for name in _names(facts):
        modes = {
            one.address: meant(one.config["enableControllerMode"])
            for one in facts.brokers_of(name)
            if "enableControllerMode" in one.config
        }
        conf = facts.conf
        if conf is not None and conf.text("brokerName") == name:
            modes[conf.path] = str(conf.controller_mode).lower()
        if len(set(modes.values())) > 1:
            yield Found(
                name,
                f"enableControllerMode differs: {', '.join(f'{k} {v}' for k, v in modes.items())}",
                "A broker without controllers keeps the role of its file: two masters, or a slave"
                " whose log has no epochs and cannot follow.",
                "Set enableControllerMode=true and controllerAddr in all files of the set; restart"
                " the ones that had it false, slaves first.",
            )


def set_unknown_to_controllers(facts: Facts) -> Iterator[Found]:
    """A set has registered its brokers, and the controllers that its brokers name know no such set."""
    if not facts.has_sets:
        return
    for server in facts.name_servers:
        for name, group in sorted(server.sets.items()):
            master = facts.broker(registered_master(group))
            if name in facts.sets or master is None:
                continue
            if not is_true(master.config, "enableControllerMode"):
                continue
            yield Found(
                name,
                f"{master.address} is registered as master of {name}, which the controllers do not"
                " know",
                "Their data was lost or replaced, or these are other controllers than the"
                " broker's. Nobody would replace this master.",
                "Keep the broker running. Check that its controllerAddr names these controllers;"
                " if their store was lost, go by OPERATIONS, Replacing Java controllers.",
            )
