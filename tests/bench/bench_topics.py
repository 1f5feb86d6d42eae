"""Does the next master know the topic that the last one had acknowledged?

Question: of N topics, each made by request 17 at the master and acknowledged, after which the master
is killed at once (``kill -9``), how many does the next master not know? The same for a deleted topic
that is still there, for a subscription group, and for a topic that a message has made. Three replicas
of one set with ``allAckInSyncStateSet=true``: Java's brokers on Java's controllers; ours on ours; and
one Java broker with two of ours on our controllers. The next master is asked as soon as it serves
(351, 352), before anything could copy the table to it from elsewhere.

Recipe: ``bin/bench topics --rounds 12 --json figures.json`` (``--sets java,rmqha,mixed``).
"""

from __future__ import annotations

import argparse
import json
import shutil
import tempfile
from collections import Counter
from pathlib import Path

from rmqha.testing.real import wire
from rmqha.testing.real.cluster import FAST_BROKER, Cluster
from rmqha.testing.real.name_servers import PythonNameServer
from rmqha.testing.real.processes import allocate_ports, wait_until
from rmqha.testing.real.python import PythonBroker
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, write_json

NAME = "broker-a"
KINDS = ("topic made", "topic made by a send", "topic deleted", "group made")
SERVES_TIMEOUT_S = 60.0
HEAL_TIMEOUT_S = 75.0
SETTINGS = {**FAST_BROKER, "allAckInSyncStateSet": True, "timerWheelEnable": True}
# Without its timer wheel Java 5.3.3 answers 215 with an error.
SETS = {"java": ("dledger", 3), "rmqha": ("rmqha", 0), "mixed": ("rmqha", 1)}
"""Whose controllers, and how many of the three brokers are Java's."""


def make_cluster(which: str, folder: Path) -> Cluster:
    """A set of three, not started."""
    controllers, java = SETS[which]
    cluster = Cluster(folder, controllers, brokers=0, broker_settings=SETTINGS)
    if which != "java":
        name_server = PythonNameServer(folder / "namesrv", allocate_ports()[0])
        cluster.name_server = name_server  # type: ignore[assignment]  # same interface
    for _ in range(java):
        cluster.add_broker()
    cluster.brokers += [
        PythonBroker.of(cluster, number, **SETTINGS) for number in range(java + 1, 4)
    ]
    return cluster


def acknowledge(master: wire.Connection, kind: str, name: str) -> None:
    """Do one thing at the master; return when it is acknowledged."""
    if kind == "topic made by a send":
        answer = wire.send_message(master, name, 0, b"x", keys=name, default_queues=4)
        if answer.code != wire.SUCCESS:
            raise wire.Refused(master.address, wire.SEND_MESSAGE, answer)
    elif kind == "group made":
        master.ask(200, {}, json.dumps({"groupName": name, "retryMaxTimes": 3}).encode())
    else:
        wire.create_topic(master, name, 4)


def is_there(address: str, kind: str, name: str) -> bool:
    """Whether a broker knows it."""
    code, field = (352, "group") if kind == "group made" else (351, "topic")
    if kind == "group made":
        # A broker that makes groups by itself would make this one when asked for it alone.
        answer = wire.invoke(address, 201, {})
        return name in wire.loads(answer.body)["subscriptionGroupTable"]
    return wire.invoke(address, code, {field: name}).code == wire.SUCCESS


def play(cluster: Cluster, kind: str, name: str) -> bool:
    """Acknowledge one thing, kill the master; whether the next one has it so."""
    before = cluster.controllers.wait_for_master(NAME)
    master = cluster.broker(before.master_id)
    with wire.Connection(master.address) as connection:
        if kind == "topic deleted":
            wire.create_topic(connection, name, 4)
            for broker in cluster.brokers:
                wait_until(
                    lambda b=broker: is_there(b.address, kind, name), 30.0, "the topic everywhere"
                )
            connection.ask(215, {"topic": name})
        else:
            acknowledge(connection, kind, name)
        master.child.kill()
    after = cluster.controllers.wait_for_master(NAME, other_than=before.master_id)
    address = cluster.broker(after.master_id).address

    def serves() -> bool:
        # A topic of its own that every master has made before it serves tells that it does.
        try:
            with wire.Connection(address) as one:
                return (
                    wire.send_message(
                        one, "BenchmarkTest", 0, b"x", keys="k", default_queues=4
                    ).code
                    == wire.SUCCESS
                )
        except OSError:
            return False

    wait_until(serves, SERVES_TIMEOUT_S, "the next master to serve")
    found = is_there(address, kind, name)
    master.start()
    cluster.wait_in_sync_or_restart(HEAL_TIMEOUT_S)
    return not found if kind == "topic deleted" else found


def run(which: str, rounds: int, folder: Path) -> Counter[str]:
    """Losses of one set, by kind."""
    lost: Counter[str] = Counter()
    with make_cluster(which, folder) as cluster:
        cluster.start()
        for number in range(rounds):
            for kind in KINDS:
                right = play(cluster, kind, f"{kind.replace(' ', '_')}_{number}")
                lost[kind] += not right
            print(f"{which} {number + 1}/{rounds}: lost {dict(lost)}", flush=True)
    return lost


def main() -> None:
    """Run all sets and print the table."""
    parser = argparse.ArgumentParser(prog="bench_topics", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--sets", type=some_of(SETS), default="java,rmqha,mixed", help=", ".join(SETS)
    )
    parser.add_argument("--rounds", type=int, default=12, help="failovers of each kind")
    parser.add_argument("--json", default="", help="write the raw figures here")
    options = parser.parse_args()
    end_children_when_terminated()
    found: dict[str, dict[str, int]] = {}
    for which in options.sets.split(","):
        folder = Path(tempfile.mkdtemp(prefix="rmqha-topics-"))
        try:
            found[which] = dict(run(which, options.rounds, folder))
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    print(machine())
    rows = [
        [kind, *(f"{found[which].get(kind, 0)} of {options.rounds}" for which in found)]
        for kind in KINDS
    ]
    print(markdown(["lost at a failover right after the answer", *found], rows))
    if options.json:
        write_json(Path(options.json), {"rounds": options.rounds, "lost": found})


if __name__ == "__main__":
    main()
