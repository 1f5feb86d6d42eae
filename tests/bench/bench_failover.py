"""How long are writes away when a master dies, ours next to Java's controllers?

Question: seconds from the fault until a message sent after it is acknowledged. Three Java brokers
(or, with ``--brokers py``, Python ones) with their default periods, one producer that asks the name
server after every failure (a real client asks less often). Faults: ``kill -9`` of the master,
SIGSTOP of the master, ``kill -9`` of the controller leader and the master together. Acknowledgement
modes: ``allAckInSyncStateSet=true`` and ``inSyncReplicas=2``. A message counts as lost when it was
acknowledged and is not on the master at the end of its run. Writes that stay away longer than the
limit count as the limit, shown as >60. Stuck are replicas that had to be restarted before they were
in sync again.

Recipe: ``.venv/bin/python -m tests.bench.bench_failover --runs 5 --json figures.json``
(``--kinds rmqha,dledger``). Noise: five to seven JVMs share the cores with the producer.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from rmqha.testing.real.cluster import Cluster
from rmqha.testing.real.controllers import KINDS, ReplicaInfo
from rmqha.testing.real.processes import WaitTimeout, wait_until
from rmqha.testing.real.producer import SEND_TIMEOUT_S, Producer, missing, read_back
from rmqha.testing.real.python import PythonBroker
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, number, ratio, write_json

NAME = "broker-a"
WARM_UP_ACKS = 300
WRITES_BACK_TIMEOUT_S = 60.0
HEAL_TIMEOUT_S = 75.0
MODES: Mapping[str, Mapping[str, object]] = {
    "allAckInSyncStateSet": {"allAckInSyncStateSet": True},
    "inSyncReplicas=2": {"inSyncReplicas": 2},
}


def kill_master(cluster: Cluster, info: ReplicaInfo) -> None:
    """``kill -9`` of the master."""
    cluster.broker(info.master_id).child.kill()


def stop_master(cluster: Cluster, info: ReplicaInfo) -> None:
    """SIGSTOP of the master: its connections stay open."""
    cluster.broker(info.master_id).child.stop()


def kill_leader_and_master(cluster: Cluster, info: ReplicaInfo) -> None:
    """Controller leader first, then the master."""
    leader = cluster.controllers.wait_for_leader()
    cluster.controllers.kill(leader)
    cluster.broker(info.master_id).child.kill()


BROKERS = {"java": "brokers 5.3.3", "py": "Python brokers"}
FAULTS: Mapping[str, Callable[[Cluster, ReplicaInfo], None]] = {
    "kill master": kill_master,
    "stop master": stop_master,
    "kill leader and master": kill_leader_and_master,
}


@dataclass(slots=True)
class Outcome:
    """The runs of one fault under one mode and kind."""

    seconds: list[float] = field(default_factory=list)
    elected_s: list[float] = field(default_factory=list)
    acked: int = 0
    lost: int = 0
    stuck: int = 0


def main() -> None:
    """Run everything that was asked for and print the table."""
    end_children_when_terminated()
    options = _options()
    kinds: list[str] = options.kinds.split(",")
    modes = [mode for mode in MODES if mode.startswith(options.mode)]
    faults = [fault for fault in FAULTS if fault.startswith(options.fault)]
    outcomes: dict[str, dict[str, dict[str, Outcome]]] = {}
    for mode in modes:
        for kind in kinds:
            outcomes.setdefault(mode, {})[kind] = _run_cluster(mode, kind, faults, options)
    print()
    print(f"{machine()}; {BROKERS[options.brokers]}, 3 replicas, {options.runs} runs each, seconds")
    print()
    print(table(outcomes, kinds))
    if options.json:
        raw = {
            mode: {k: {f: asdict(o) for f, o in faulted.items()} for k, faulted in by_kind.items()}
            for mode, by_kind in outcomes.items()
        }
        write_json(Path(options.json), {"machine": machine(), "outcomes": raw})


def table(outcomes: Mapping[str, Mapping[str, Mapping[str, Outcome]]], kinds: list[str]) -> str:
    """The markdown table: median / worst a kind, and ours over each Java kind."""
    rivals = [kind for kind in kinds if kind != "rmqha"] if "rmqha" in kinds else []
    head = ["fault", "mode", *(f"{kind}: median / worst" for kind in kinds)]
    head += [
        *(f"{kind}: acked, lost, stuck" for kind in kinds),
        *(f"rmqha/{rival}" for rival in rivals),
    ]
    rows = []
    for mode, by_kind in outcomes.items():
        for fault in next(iter(by_kind.values())):
            found = {kind: by_kind[kind][fault] for kind in kinds}
            row = [fault, mode]
            row += [
                f"{_shown(statistics.median(o.seconds))} / {_shown(max(o.seconds))}"
                for o in found.values()
            ]
            row += [f"{o.acked}, {o.lost}, {o.stuck}" for o in found.values()]
            row += [ratio(found["rmqha"].seconds, found[rival].seconds) for rival in rivals]
            rows.append(row)
    return markdown(head, rows)


def _run_cluster(
    mode: str, kind: str, faults: list[str], options: argparse.Namespace
) -> dict[str, Outcome]:
    folder = Path(tempfile.mkdtemp(prefix=f"rmqha-bench-{kind}-", dir=options.folder))
    outcomes = {fault: Outcome() for fault in faults}
    # Java's controllers pass over keys that they do not know.
    settings = {}
    if options.probe is not None:
        settings = {"activeProbeTimeoutMillis": options.probe, "activeProbeMasters": "all"}
    python = options.brokers == "py"
    cluster = Cluster(
        folder, kind, brokers=0 if python else 3,
        broker_settings=MODES[mode], controller_settings=settings,
    )  # fmt: skip
    if python:
        cluster.brokers += [PythonBroker.of(cluster, at, MODES[mode]) for at in (1, 2, 3)]
    try:
        with cluster:
            cluster.start()
            # Faults in turn, so that a slow minute of the machine hits each of them.
            for run in range(options.runs):
                for fault in faults:
                    _run_once(cluster, fault, run, outcomes[fault], options.send_timeout_s)
                    last = outcomes[fault]
                    print(
                        f"{kind}, {mode}, {fault}: {_shown(last.seconds[-1])} s "
                        f"(elected after {number(last.elected_s[-1])} s), lost {last.lost}",
                        flush=True,
                    )
    except BaseException:
        for child in cluster.children:
            print(child.tail())
        raise
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    return outcomes


def _run_once(
    cluster: Cluster, fault: str, run: int, outcome: Outcome, send_timeout_s: float
) -> None:
    _heal(cluster)
    info = cluster.controllers.wait_for_master(NAME)
    old = cluster.broker(info.master_id)
    topic = f"{fault.replace(' ', '_')}_{run}"
    with Producer(cluster.name_server.address, topic, send_timeout_s=send_timeout_s) as producer:
        producer.wait_for_acks(WARM_UP_ACKS)
        moment = time.monotonic()
        FAULTS[fault](cluster, info)
        elected_s = _seconds_until_election(cluster, moment, info.master_id)
        outcome.elected_s.append(elected_s)
        is_over = elected_s >= WRITES_BACK_TIMEOUT_S
        outcome.seconds.append(
            WRITES_BACK_TIMEOUT_S
            if is_over
            else _seconds_until_write(producer, moment, old.address)
        )
        outcome.stuck += _heal(cluster)
        producer.stop()
        outcome.acked += len(producer.acked)
        outcome.lost += _lost(cluster, producer)


def _seconds_until_election(cluster: Cluster, moment: float, old_id: int) -> float:
    """The limit itself when nobody is elected for longer: one bad run ends no measurement."""
    try:
        cluster.controllers.wait_for_master(
            NAME, other_than=old_id, timeout_s=WRITES_BACK_TIMEOUT_S
        )
    except WaitTimeout:
        return WRITES_BACK_TIMEOUT_S
    return time.monotonic() - moment


def _seconds_until_write(producer: Producer, moment: float, old: str) -> float:
    """The limit itself when writes stay away longer.

    With a stopped master and ``inSyncReplicas=2`` they may: a Java slave that the name server still
    sends to the old master's HA port waits there for a handshake until that process wakes or dies.
    """
    try:
        return producer.wait_for_write_after(moment, WRITES_BACK_TIMEOUT_S, not_by=old)
    except WaitTimeout:
        return WRITES_BACK_TIMEOUT_S


def _shown(seconds: float) -> str:
    return number(seconds) if seconds < WRITES_BACK_TIMEOUT_S else f">{WRITES_BACK_TIMEOUT_S:.0f}"


def _heal(cluster: Cluster) -> int:
    """Have everyone run and in sync; brokers that do not get there by themselves are restarted.

    Returns:
        How many had to be: a Java slave may hang on a connection to a master of the past.
    """
    for broker in cluster.brokers:
        if broker.child.stopped:
            broker.child.cont()
        if not broker.child.alive:
            broker.start()
    cluster.controllers.heal()
    return cluster.wait_in_sync_or_restart(HEAL_TIMEOUT_S)


def _lost(cluster: Cluster, producer: Producer) -> int:
    """Acknowledged messages that the master does not have, consume queues given time."""
    master = cluster.master()
    left = list(producer.acked)

    def none_left() -> bool:
        left[:] = missing(left, read_back(master.address, producer.topic))
        return not left

    try:
        wait_until(none_left, 15.0, "every acknowledged message", interval_s=0.5)
    except AssertionError:
        print(f"  {len(left)} acknowledged messages are missing, the first: {left[0]}")
    return len(left)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_failover", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "--kinds", type=some_of(KINDS), default="rmqha,dledger", help=", ".join(KINDS)
    )
    parser.add_argument("--brokers", default="java", choices=BROKERS, help="java or py")
    parser.add_argument("--runs", type=int, default=5, help="of each fault, mode and kind")
    parser.add_argument("--mode", default="", help=f"one of {', '.join(MODES)} (or its start)")
    parser.add_argument("--fault", default="", help=f"one of {', '.join(FAULTS)} (or its start)")
    parser.add_argument(
        "--probe", type=int, help="activeProbeTimeoutMillis of ours, for Java brokers too"
    )
    parser.add_argument(
        "--send-timeout-s", type=float, default=SEND_TIMEOUT_S,
        help="for how long the producer waits for a stopped master's answer",
    )  # fmt: skip
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    parser.add_argument("--keep", action="store_true", help="keep state and logs")
    parser.add_argument("--json", default="", help="write the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
