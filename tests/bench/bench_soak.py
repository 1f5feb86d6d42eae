"""Does a cluster stay as it is, for half an hour of ordinary trouble?

Question: three controllers, a name server and three Python replicas, with producers at work; the
controller that leads is killed with ``kill -9`` every ``--leader-s`` seconds, the master every
``--master-s``, and each is started again; beside it clients come and go, half of them with frames
that are no frames. Is anything acknowledged lost, does a process end that was not killed, does the
set come back into sync after each kill, and do memory, descriptors and files stay within bounds?

Recipe: ``bin/bench soak --minutes 30``. It ends with 1 when a goal is missed, also when it killed
nobody.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from rmqha.testing.real.processes import Child, WaitTimeout, wait_until
from rmqha.testing.real.producer import Producer, missing, read_back
from tests.bench.bench_siege import observer_of
from tests.bench.churn import Churn
from tests.bench.ending import end_children_when_terminated
from tests.bench.fortress import BROKER_NAME, OPEN, Fortress, standing
from tests.bench.observed import Observer
from tests.bench.siege_verdict import Goal, Spans
from tests.bench.soak_verdict import Outcome, judge
from tests.bench.tables import machine, markdown, write_json

WARM_UP_S = 10.0
BACK_S = 60.0
ARRIVAL_S = 60.0
LOOK_S = 0.2


class Soak:
    """The trouble, and what it did."""

    def __init__(self, fortress: Fortress, seen: Observer, topics: Sequence[str]) -> None:
        self.outcome = Outcome()
        self._fortress = fortress
        self._seen = seen
        self.producers = [
            Producer(fortress.name_server.address, topic, BROKER_NAME, pause_s=0.01)
            for topic in topics
        ]

    def kill_leader(self) -> None:
        """``kill -9``; it comes back when another leads."""
        group = self._fortress.controllers
        leader = group.wait_for_leader()
        self._ended(group.nodes[leader])
        self.outcome.leaders += 1
        try:
            group.wait_for_leader(other_than=leader, timeout_s=BACK_S)
        except WaitTimeout:
            self.outcome.late.append("another leader")
        group.start([leader])
        self._seen.follow(group.nodes[leader].name, group.nodes[leader].pid)

    def kill_master(self) -> None:
        """``kill -9``; it comes back when another one is written to, and all are in sync at last."""
        fortress = self._fortress
        info = fortress.wait_in_sync()
        master = next(one for one in fortress.brokers if one.controller_id == info.master_id)
        moment = time.monotonic()
        self._ended(master.child)
        self.outcome.masters += 1
        try:
            self.outcome.writes_back_s += [
                one.wait_for_write_after(moment, BACK_S, not_by=master.address)
                for one in self.producers
            ]
        except WaitTimeout:
            self.outcome.late.append("writes")
        master.start()
        self._seen.follow(master.child.name, master.child.pid)
        try:
            fortress.wait_in_sync(BACK_S)
        except WaitTimeout:
            self.outcome.late.append("all replicas in sync")

    def _ended(self, child: Child) -> None:
        self._seen.forget(child.name)
        child.kill()


def soak(fortress: Fortress, options: argparse.Namespace) -> tuple[list[Goal], Churn, Observer]:
    """Idle time, trouble, reading back, and the verdict."""
    addresses = [
        *fortress.controllers.addresses, fortress.name_server.address,
        *(one.address for one in fortress.brokers),
        *(f"127.0.0.1:{one.port + 1}" for one in fortress.brokers),
    ]  # fmt: skip
    churn = Churn(addresses, options.churn_per_s)
    with ExitStack() as ends:
        seen = ends.enter_context(observer_of(fortress))
        trouble = Soak(fortress, seen, [f"Soak{at}" for at in range(options.producers)])
        for one in trouble.producers:
            ends.enter_context(one)
            one.wait_for_acks(10)
        time.sleep(WARM_UP_S)
        idle = time.monotonic()
        time.sleep(options.idle_s)
        begin = time.monotonic()
        with churn:
            _go_on(trouble, options, begin + options.minutes * 60)
        end = time.monotonic()
        fortress.wait_in_sync()
        for one in trouble.producers:
            one.stop()
        found = trouble.outcome
        found.lost = lost_of(fortress, trouble.producers)
        found.acked = sum(len(one.acked) for one in trouble.producers)
        found.visits = churn.done
    return judge(Spans(idle, begin, begin, end), found, seen), churn, seen


def _go_on(trouble: Soak, options: argparse.Namespace, end: float) -> None:
    """Kill at each one's time until the end, and tell once a minute that all is well."""
    now = time.monotonic()
    leader, master, told = now + options.leader_s, now + options.master_s, now
    while (now := time.monotonic()) < end:
        if now >= leader:
            trouble.kill_leader()
            leader = time.monotonic() + options.leader_s
        elif now >= master:
            trouble.kill_master()
            master = time.monotonic() + options.master_s
        else:
            time.sleep(LOOK_S)
        if now - told >= 60:
            told = now
            acked = sum(len(one.acked) for one in trouble.producers)
            print(f"{(end - now) / 60:.0f} minutes left; {trouble.outcome.leaders} leaders and"
                  f" {trouble.outcome.masters} masters killed, {acked} acknowledged", flush=True)  # fmt: skip


def lost_of(fortress: Fortress, producers: Sequence[Producer]) -> int:
    """Acknowledged messages that the master does not have, consume queues given time."""
    left: dict[str, int] = {}

    def none_left() -> bool:
        info = fortress.info()
        if info is None or info.master_address is None:
            return False
        for one in producers:
            left[one.topic] = len(missing(one.acked, read_back(info.master_address, one.topic)))
        return not any(left.values())

    try:
        wait_until(none_left, ARRIVAL_S, "every acknowledged message", interval_s=0.5)
    except WaitTimeout:
        return sum(left.values()) if left else sum(len(one.acked) for one in producers)
    return 0


def main() -> int:
    """Soak a cluster and print the table."""
    end_children_when_terminated()
    options = _options()
    with standing("soak", OPEN, options.folder, keep=options.keep) as fortress:
        goals, churn, seen = soak(fortress, options)
    print(f"\n{machine()}; {options.minutes:g} minutes, 3 controllers, 3 replicas\n")
    rows = [[one.what, one.wanted, one.found, "yes" if one.is_met else "**no**"] for one in goals]
    print(markdown(["what", "goal", "found", "met?"], rows))
    print(
        "\nconnections:",
        ", ".join(f"{what}: {count}" for what, count in sorted(churn.done.items())),
    )
    if options.json:
        series = {f"{name} {what}": one.values for (name, what), one in seen.series.items()}
        write_json(Path(options.json), {"machine": machine(), "rows": rows, "series": series})
    return 0 if all(goal.is_met for goal in goals) else 1


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_soak", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--idle-s", type=float, default=30.0, help="before it, to compare with")
    parser.add_argument("--leader-s", type=float, default=20.0, help="between kills of leaders")
    parser.add_argument("--master-s", type=float, default=45.0, help="between kills of masters")
    parser.add_argument("--churn-per-s", type=float, default=20.0, help="pairs of connections")
    parser.add_argument("--producers", type=int, default=2)
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    parser.add_argument("--keep", action="store_true", help="keep state and logs")
    parser.add_argument("--json", default="", help="write the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
