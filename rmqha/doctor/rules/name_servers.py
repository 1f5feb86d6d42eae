"""Name servers: whether clients are sent where the controllers would send them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from rmqha.broker.common.lookup_settings import asks_address_server, name_servers_are_looked_up
from rmqha.doctor.advice import change_keys, dns_entry
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.distinct import ids_twice
from rmqha.doctor.facts import (
    BrokerFacts,
    Facts,
    controlled_sets,
    registered_master,
    replicas_of,
)
from rmqha.remoting.address import split_addresses
from rmqha.remoting.bodies import ReplicasInfo


def name_server_unreachable(facts: Facts) -> Iterator[Found]:
    """A name server does not answer."""
    for one in facts.name_servers:
        if one.silent is None or one.silent.door is not None or one.silent.is_stranger:
            continue
        yield Found(
            one.address,
            f"the name server does not answer: {one.silent.reason}",
            "Clients that have this one alone find no topic; others go on with what they know.",
            "It takes connections, so look at the process and who listens there (ss -ltnp) first."
            if one.silent.connected
            else "Start it. It holds nothing of its own: brokers register again within"
            " registerNameServerPeriod.",
        )


def not_a_name_server(facts: Facts) -> Iterator[Found]:
    """An address that is given as a name server's is another server's."""
    for one in facts.name_servers:
        said = one.refused if not one.denied else ""
        if one.silent is not None and one.silent.is_stranger:
            said = one.silent.reason
        if said:
            yield Found(
                one.address,
                f"something answers there that is no name server: {said}",
                "Consoles and clients that are given this address show empty pages and find no"
                " topic. A controller is a process, or at least a port, of its own.",
                "Give the name server's port: 9876 by default, listenPort in its file.",
            )


def name_server_empty(facts: Facts) -> Iterator[Found]:
    """A name server knows no broker at all."""
    # Of one set alone nobody looked at the others. Where anybody knows brokers, it is told of each
    # that is missing here.
    if facts.set_name or facts.sets or any(one.sets for one in facts.name_servers):
        return
    for server in facts.name_servers:
        if server.answers:
            yield Found(
                server.address,
                f"no broker is registered at name server {server.address}",
                "Clients that ask it find no topic. All brokers are down or cut off from it, or name"
                " other name servers. What is not registered was not looked at here.",
                "Start the brokers, and name this address in their namesrvAddr; a broker registers"
                " within seconds. Look at one with --broker-conf, on its machine.",
            )


def broker_not_registered(facts: Facts) -> Iterator[Found]:
    """A broker works, and a name server does not know it."""
    for server in facts.name_servers:
        if not server.answers:
            continue
        for name, info in controlled_sets(facts):
            group = server.sets.get(name)
            known = () if group is None else tuple(group.broker_addrs.values())
            twice = ids_twice(facts, name)
            for replica in replicas_of(info):
                broker = facts.broker(replica.broker_address)
                if not replica.alive or broker is None or broker.silent is not None:
                    continue
                if any(facts.is_same(replica.broker_address, one) for one in known):
                    continue
                if (name, replica.broker_id) in facts.moved or replica.broker_id in twice:
                    continue  # its other address is registered at times
                yield Found(
                    f"{name} {replica.broker_id} at {server.address}",
                    f"broker {replica.broker_address} works and is not registered at name server"
                    f" {server.address}",
                    f"Clients that ask this name server do not find it. {_knows(broker)}",
                    _named(facts, name, broker),
                )


def _knows(broker: BrokerFacts) -> str:
    """Where a broker has its name servers from."""
    if asks_address_server(broker.config):
        return f"It has its name servers from {_address_server(broker)}."
    named = broker.config.get("namesrvAddr", "") or "empty"
    looked_up = name_servers_are_looked_up(broker.config)
    return f"Its namesrvAddr is {named}{', a name that it looks up' if looked_up else ''}."


def _address_server(broker: BrokerFacts) -> str:
    domain = broker.config.get("rmqAddressServerDomain", "").strip()
    return f"the address server {domain}".rstrip()


def _named(facts: Facts, name: str, broker: BrokerFacts) -> str:
    """How a broker hears of all name servers, where it does not name them yet."""
    listed = list(dict.fromkeys(one.address for one in facts.name_servers))
    named = split_addresses(broker.config.get("namesrvAddr", ""))
    wait = "One that was just started registers within seconds."
    if all(any(facts.is_same(one, other) for other in named) for one in listed):
        return f"{wait} It names all of them: look for its registrations in its log."
    if asks_address_server(broker.config):
        return (
            f"{wait} Else have {_address_server(broker)} answer {';'.join(listed)} in one line: it is"
            " asked again every fetchNamesrvAddrInterval. In namesrvAddr they would count in its place."
        )
    if name_servers_are_looked_up(broker.config):
        entry = dns_entry(
            broker.config.get("namesrvAddr", ""), listed, "updateNameServerAddrPeriod"
        )
        return f"{wait} Else {entry}."
    change = change_keys(facts, name, [broker], {"namesrvAddr": ";".join(listed)})
    return f"{wait} Else name all name servers in its namesrvAddr. {change}"


def name_server_names_another_master(facts: Facts) -> Iterator[Found]:
    """Clients are sent to another broker than the controllers' master, or to none."""
    for server in facts.name_servers:
        for name, info in controlled_sets(facts):
            group = server.sets.get(name)
            registered = None if group is None else registered_master(group)
            if group is None or info.master_address is None:
                continue
            if registered is None:
                yield from _without_master(facts, server.address, name, info)
                continue
            if facts.is_same(registered, info.master_address):
                continue
            yield Found(
                f"{name} at {server.address}",
                f"name server {server.address} has {registered} as master, the controllers"
                f" {info.master_address} in epoch {info.master_epoch}",
                "Clients write to a broker that is master no more, and are refused, or worse, are"
                " acknowledged by one that is cut off.",
                f"Look at {registered}: if it still takes itself for master it does not hear the"
                " controllers; stop it before anything else. The new master registers by itself.",
            )


def _without_master(facts: Facts, server: str, name: str, info: ReplicasInfo) -> Iterator[Found]:
    """A name server knows brokers of a set and no master, while there is one that works."""
    master = facts.master_of(name)
    if master is None or not master.acts_as_master:
        return
    yield Found(
        f"{name} at {server}",
        f"name server {server} has no master of the set, the controllers {info.master_address} in"
        f" epoch {info.master_epoch}",
        "Clients that ask this name server find nobody to write to. The master is registered as a"
        " slave there, or not at all.",
        "It registers by itself within registerNameServerPeriod. If it does not, look for its"
        " registrations in its log, and at namesrvAddr in its file.",
    )


def address_under_two_ids(facts: Facts) -> Iterator[Found]:
    """One broker is registered under two ids."""
    for server in facts.name_servers:
        for name, group in sorted(server.sets.items()):
            twice = [one for one, n in Counter(group.broker_addrs.values()).items() if n > 1]
            for address in sorted(twice):
                ids = sorted(k for k, one in group.broker_addrs.items() if one == address)
                yield Found(
                    f"{name} at {server.address}",
                    f"{address} is registered as {' and '.join(map(str, ids))} of {name}",
                    "It was registered in an older role, and nobody has taken that back. Consoles"
                    " show a replica too many, or one that is undefined.",
                    "It goes with the next registration of the broker. If it stays, restart this name"
                    " server: it holds nothing of its own, and brokers register again.",
                )


def name_servers_differ(facts: Facts) -> Iterator[Found]:
    """Two name servers send clients to different masters of a set that no controller knows."""
    answering = [one for one in facts.name_servers if one.answers]
    names = sorted({name for one in answering for name in one.sets} - facts.sets.keys())
    for name in names:
        groups = {one.address: one.sets.get(name) for one in answering}
        said = {at: group and registered_master(group) for at, group in groups.items()}
        if len(set(said.values())) > 1:
            yield Found(
                name,
                f"name servers differ: {', '.join(f'{k} names {v}' for k, v in said.items())}",
                "Which master a client finds depends on the name server that it asks.",
                "Make namesrvAddr equal on all brokers of the set, and wait for"
                " registerNameServerPeriod.",
            )
