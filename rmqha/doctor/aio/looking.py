"""One look at everything that was named: whom to ask follows from what others answered."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.errors import ConfigInvalid
from rmqha.doctor.aio.asking import Asker, ToldSets
from rmqha.doctor.aio.store_files import read_identity, read_store
from rmqha.doctor.distinct import (
    controllers_of_one_group,
    distinct_brokers,
    distinct_controllers,
)
from rmqha.doctor.facts import (
    BrokerFacts,
    ConfFacts,
    ControllerFacts,
    Facts,
    NameServerFacts,
    PortFacts,
    replicas_of,
)
from rmqha.remoting.address import parse_address, split_addresses
from rmqha.remoting.bodies import ReplicasInfo

RESOLVE_S = 3.0


class StorePaths(Struct, frozen=True):
    """Where a broker's files are, and how many of its newest commit-log files are read."""

    root: Path
    commit_log: Path
    epochs: Path
    identity: Path
    files_max: int


class Target(Struct, frozen=True):
    """What is looked at.

    Attributes:
        controllers, name_servers: addresses; the members that controllers name come in addition.
        set_name: of the one broker set that matters; empty for all.
        ports: of this machine that broker.conf asks for, by key.
        bind_host: where they would be opened.
    """

    controllers: tuple[str, ...] = ()
    name_servers: tuple[str, ...] = ()
    set_name: str = ""
    conf: ConfFacts | None = None
    store: StorePaths | None = None
    ports: tuple[tuple[str, int], ...] = ()
    bind_host: str = ""


async def look(asker: Asker, target: Target) -> Facts:
    """Gather the facts.

    Where none of the controllers that were given leads, those that the brokers name are asked, too.

    Raises:
        OSError: a file of the store is there and cannot be read.
    """
    controllers, name_servers = await asyncio.gather(
        asker.controllers(target.controllers), asker.name_servers(target.name_servers)
    )
    facts = await _cluster(asker, target, controllers, name_servers, {})
    named = () if facts.leaders else controllers_of_one_group(facts)
    unasked = [one for one in named if all(one != known.address for known in controllers)]
    if unasked:
        more = await asker.controllers(unasked)
        found = {one.address: one for one in (*controllers, *more)}
        asked = {one.address: one for one in facts.brokers}
        facts = await _cluster(asker, target, tuple(found.values()), name_servers, asked)
    store = target.store
    return replace(
        facts,
        set_name=target.set_name,
        conf=target.conf,
        identity=None if store is None else read_identity(store.identity),
        store=None if store is None else await asyncio.to_thread(
            read_store, store.root, store.commit_log, store.epochs, store.files_max
        ),
        ports=tuple(
            PortFacts(key, port, _is_free(target.bind_host, port)) for key, port in target.ports
        ),
    )  # fmt: skip


async def _cluster(
    asker: Asker,
    target: Target,
    controllers: tuple[ControllerFacts, ...],
    name_servers: tuple[NameServerFacts, ...],
    asked: Mapping[str, BrokerFacts],
) -> Facts:
    """What the leader of these controllers says of the sets, and the brokers that anybody knows.

    Args:
        asked: brokers that have been asked, by address.
    """
    members = [one for c in controllers for one in c.peers.values()]
    given = (*target.controllers, *target.name_servers, *(one.address for one in controllers))
    resolved = await _resolved([*given, *members])
    controllers = distinct_controllers(controllers, resolved)
    leader = next((one.address for one in controllers if one.leads), None)
    names = [target.set_name] if target.set_name else _names(controllers, name_servers)
    told = await asker.sets(leader, names) if leader and names else ToldSets(None)
    if told.unreadable:
        controllers = tuple(
            replace(one, unreadable=told.unreadable) if one.address == leader else one
            for one in controllers
        )
    sets = told.table or {}
    if target.set_name:
        name_servers = tuple(_only(target.set_name, one) for one in name_servers)
    listed = _listed(target, sets, name_servers)
    asker.memory.learn(listed, sets)
    # One that was told of before counts if it is there still.
    both = listed | {a: name for a, name in asker.memory.listed.items() if a not in listed}
    unasked = {address: name for address, name in both.items() if address not in asked}
    found = {**asked, **{one.address: one for one in await asker.brokers(unasked)}}
    brokers = distinct_brokers(
        [
            replace(found[address], listed_as=name)
            for address, name in both.items()
            if address in listed or found[address].silent is None
        ]
    )
    # One name may stand for many servers (fetchNameSrvAddrByDnsLookup).
    keys = ("controllerAddr", "namesrvAddr")
    named = {one.config.get(key, "") for one in brokers for key in keys}
    addresses = [address for text in named for address in split_addresses(text)]
    addresses += [a for info in sets.values() for a in _replica_addresses(info)]
    return Facts(
        controllers=controllers,
        name_servers=name_servers,
        brokers=brokers,
        sets=sets,
        has_sets=told.table is not None,
        resolved=resolved | await _resolved(addresses),
        moved=asker.memory.moved(),
    )


def _names(
    controllers: Iterable[ControllerFacts], name_servers: Iterable[NameServerFacts]
) -> list[str]:
    found = {name for one in name_servers for name in one.sets}
    found |= {name for one in controllers if one.view for name in one.view.sets}
    return sorted(found)


def _only(name: str, one: NameServerFacts) -> NameServerFacts:
    sets = {name: one.sets[name]} if name in one.sets else {}
    return replace(one, sets=sets)


def _replica_addresses(info: ReplicasInfo) -> list[str]:
    return [one.broker_address for one in replicas_of(info)]


def _listed(
    target: Target, sets: Mapping[str, ReplicasInfo], name_servers: Iterable[NameServerFacts]
) -> dict[str, str]:
    """The brokers that anybody knows: by address, the set."""
    found: dict[str, str] = {}
    for name, info in sets.items():
        found |= dict.fromkeys(_replica_addresses(info), name)
    for server in name_servers:
        for name, group in server.sets.items():
            for address in group.broker_addrs.values():
                found.setdefault(address, name)
    if target.conf is not None and target.conf.address:
        found.setdefault(target.conf.address, target.conf.text("brokerName"))
    return found


def _is_free(host: str, port: int) -> bool:
    """Whether somebody could listen there now; nothing is opened for long."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError:
            return False
    return True


async def _resolved(addresses: Iterable[str]) -> dict[str, tuple[str, ...]]:
    hosts = sorted({host for one in addresses if (host := _name_in(one))})
    return dict(zip(hosts, await asyncio.gather(*map(_addresses_of, hosts)), strict=True))


def _name_in(address: str) -> str:
    """The host, if it is a name, also one that no resolver takes; empty for an address."""
    try:
        host, _ = parse_address(address)
    except ConfigInvalid:
        return address.rpartition(":")[0]
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except OSError:
            continue
        return ""
    return host


async def _addresses_of(host: str) -> tuple[str, ...]:
    try:
        async with asyncio.timeout(RESOLVE_S):
            found = await asyncio.get_running_loop().getaddrinfo(host, None)
    except (OSError, UnicodeError):
        return ()
    return tuple(sorted({str(one[4][0]) for one in found}))
