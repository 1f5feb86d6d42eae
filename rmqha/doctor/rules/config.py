"""A broker.conf and the machine that it is for: what would not work before anything starts."""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.advice import EMPTYING, sync_state_set
from rmqha.doctor.diagnosis import NAMED_MAX, Found
from rmqha.doctor.facts import Facts, controlled_sets, replicas_of


def config_refused(facts: Facts) -> Iterator[Found]:
    """Our broker would not start with this broker.conf."""
    conf = facts.conf
    if conf is not None and conf.refusal:
        yield Found(
            conf.path,
            f"bin/mqbroker does not take this file: {conf.refusal}",
            "It is checked as bin/mqbroker checks it. A Java broker may start with it, and then"
            " behaves as if the key had another value, or ends later.",
            "Correct the key that is named; docs/SETTINGS.md says what it takes.",
        )


def keys_unknown(facts: Facts) -> Iterator[Found]:
    """A broker.conf has keys that our broker does not know."""
    conf = facts.conf
    if conf is not None and conf.unknown:
        named = ", ".join(conf.unknown[:NAMED_MAX])
        more = len(conf.unknown) - NAMED_MAX
        yield Found(
            conf.path,
            f"bin/mqbroker knows no key {named}" + (f" and {more} more" if more > 0 else ""),
            "A key that is written wrong has no effect; the broker does not end for it.",
            "Compare it with docs/SETTINGS.md, capital letters included. A key of a newer Java, or"
            " of another process that reads this file, may stay.",
        )


def slave_without_id(facts: Facts) -> Iterator[Found]:
    """A slave without controllers has no id: a Java broker ends at its start."""
    conf = facts.conf
    if conf is None or conf.controller_mode or conf.text("brokerRole") != "SLAVE":
        return
    if conf.text("brokerId", "0").lstrip("-").isdigit() and int(conf.text("brokerId", "0")) <= 0:
        yield Found(
            conf.path,
            f"brokerRole=SLAVE with brokerId={conf.text('brokerId', '0')} and without"
            " enableControllerMode=true",
            "Without controllers a slave needs an id above 0; Java's broker prints Slave's brokerId"
            " must be > 0 and ends.",
            "With controllers (also embedded in a name server): enableControllerMode=true and"
            " controllerAddr, and no brokerId or brokerRole. Without: brokerId=1.",
        )


def role_in_config(facts: Facts) -> Iterator[Found]:
    """A broker.conf gives a role or an id, which controllers decide about."""
    conf = facts.conf
    if conf is None or not conf.controller_mode:
        return
    given = [f"{key}={conf.text(key)}" for key in ("brokerRole", "brokerId") if conf.text(key)]
    if given:
        yield Found(
            conf.path,
            f"{' and '.join(given)} has no effect under controllers",
            "The controllers decide who is master and give the id, which is kept in"
            " brokerIdentity. What the file says differs from what is shown, which misleads.",
            f"Take the keys out. {sync_state_set(facts, conf.text('brokerName'))} says who is master.",
        )


def no_controllers_named(facts: Facts) -> Iterator[Found]:
    """Controller mode without controllers."""
    conf = facts.conf
    if conf is not None and conf.controller_mode and not conf.controllers:
        yield Found(
            conf.path,
            "enableControllerMode=true, and controllerAddr is empty",
            "The broker waits for a role for ever.",
            "Set controllerAddr=HOST:PORT;HOST:PORT;HOST:PORT to all controllers. The port is the"
            " controller's, not the name server's, also when it is embedded in one.",
        )


def controllers_without_mode(facts: Facts) -> Iterator[Found]:
    """Controllers are named, and controller mode is off."""
    conf = facts.conf
    if conf is not None and not conf.controller_mode and conf.controllers:
        yield Found(
            conf.path,
            "controllerAddr is set and enableControllerMode is not true",
            "The broker keeps the role of its file and is never replaced by anybody.",
            "Set enableControllerMode=true. A store that was written without controllers has no"
            f" epochs: do it on the master first, and empty the slaves ({EMPTYING}).",
        )


def name_not_resolved(facts: Facts) -> Iterator[Found]:
    """A host name of a configuration has no address here."""
    for host, found in sorted(facts.resolved.items()):
        if not found:
            yield Found(
                host,
                f"the host name {host} cannot be resolved on this machine",
                "A broker that looks it up again loses the controllers or name servers behind it"
                " (older Java brokers forget those that they had: #6873).",
                "Mend the resolver or the name. The name, not an address, is right where machines"
                " move.",
            )


def broker_not_running(facts: Facts) -> Iterator[Found]:
    """The broker of broker.conf does not run."""
    conf = facts.conf
    broker = None if conf is None else facts.broker(conf.address)
    if conf is None or broker is None or broker.silent is None or broker.is_there:
        return
    if broker.silent.connected or conf.refusal or not all(one.is_free for one in facts.ports):
        return  # broker-hangs, config-refused and port-taken say more
    known = {one.broker_address for _, info in controlled_sets(facts) for one in replicas_of(info)}
    for server in facts.name_servers:
        known |= {a for group in server.sets.values() for a in group.broker_addrs.values()}
    if any(facts.is_same(conf.address, one) for one in known):
        return  # those that know it miss it, and the rules about sets say how much
    store = facts.store
    how = "How it ended is not known here."
    if store is not None and store.abort:
        how = "Its store has an abort file: it was killed, lost power, or just begins."
    elif store is not None and store.has_data:
        how = "Its store has no abort file: it was stopped in order, by somebody or by itself."
    elif store is not None:
        how = "Its store has no message: it has not run yet, had none, or the store was emptied."
    yield Found(
        f"{broker.listed_as} {conf.address}",
        f"no broker answers at {conf.address}, which is that of {conf.path}: {broker.silent.reason}",
        f"{how} No controller and no name server that was asked misses it.",
        f"Start it: bin/mqbroker -c {conf.path}; why it ended before stands in the last lines of its"
        " log. Nothing, if it was stopped on purpose.",
    )


def port_taken(facts: Facts) -> Iterator[Found]:
    """A port of broker.conf is used by somebody else than this broker."""
    conf = facts.conf
    if conf is None:
        return
    broker = facts.broker(conf.address)
    if broker is not None and (broker.silent is None or broker.is_there or broker.silent.hangs):
        return  # they are its own
    for one in facts.ports:
        if not one.is_free:
            yield Found(
                f"{one.key} {one.port}",
                f"port {one.port} ({one.key}) is in use, and no broker answers at {conf.address}",
                "A broker needs listenPort, the port two below it, and haListenPort (by default"
                " the one above it).",
                f"ss -ltnp 'sport = :{one.port}' names the process. Stop it, or choose another"
                " listenPort; two brokers on one machine should be 10 apart or more.",
            )
