"""Do honest clients notice when every attack of the threats' list goes on at once?

Question: with three controllers, a name server and three replicas under all attacks of
``tests/attacks`` together, is anything acknowledged lost, does a process end, do memory,
descriptors and files stay within their bounds, do leader and master stay, and is the p99 of honest
calls at most ten times that of the idle minutes before?

Recipe: ``bin/bench siege --minutes 30``. The cluster is closed as docs/SECURITY.md advises
(``raftSecret``, ``haSecret``, ``authenticationEnabled``, ``authorizationEnabled``) but for TLS;
``--kind open`` has it as it comes out of the box. Attackers come from 127.0.0.66, each has a rate
(``tests/attacks/catalog.py``), and they are nice 10; ``--same-address`` lets them come from the
address of honest clients. Attacks that are worth more with a user are there twice: by a stranger,
and by a user who may use a topic and a group of his own. Noise: run it alone for figures to quote.
It ends with 1 when a goal is missed.
"""

from __future__ import annotations

import argparse
import contextlib
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec

from rmqha.testing.real import wire
from rmqha.testing.real.producer import read_back
from tests.attacks.catalog import ATTACKS
from tests.bench.attackers import Attackers
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.fortress import (
    CLOSED,
    HONEST,
    KINDS,
    MALLORY,
    NOBODY,
    STRANGE,
    TOPIC,
    Fortress,
    standing,
)
from tests.bench.honest import Account, lost
from tests.bench.observed import Observer
from tests.bench.siege_verdict import Goal, Spans, judge
from tests.bench.tables import machine, markdown, write_json

WARM_UP_S = 10.0
ARRIVAL_S = 30.0
PROGRESS_S = 60.0
_ROOT = Path(__file__).resolve().parents[2]


def chosen(fortress: Fortress, names: Sequence[str], source: str) -> list[tuple[str, str, Path, float]]:  # fmt: skip
    """Which attacks there are, by whom, and how fast."""
    stranger = fortress.write_target(NOBODY, source)
    found = [(name, name, stranger, ATTACKS[name].siege_per_s) for name in names]
    if fortress.kind == CLOSED:
        user = fortress.write_target(MALLORY, source)
        found += [
            (f"{name}-by-a-user", name, user, ATTACKS[name].siege_per_s)
            for name in names
            if ATTACKS[name].has_user
        ]
    return found


def rulers_of(fortress: Fortress) -> str | None:
    """Leader, master and epoch."""
    leader, info = fortress.leader(), fortress.info()
    if leader is None or info is None:
        return None
    return f"leader n{leader}, master {info.master_id} in epoch {info.master_epoch}"


def observer_of(fortress: Fortress) -> Observer:
    """Of all its processes."""
    children = fortress.children
    pids = {child.name: child.pid for child in children}
    folders = {child.name: child.log.parent for child in children}
    return Observer(pids, folders, lambda: rulers_of(fortress))


def lost_of(fortress: Fortress, account: Account, arrival_s: float = ARRIVAL_S) -> list[int]:
    """Acknowledged messages that cannot be read back from the master, consume queues given time.

    All of them when nobody lets them be read.
    """
    deadline = time.monotonic() + arrival_s
    missing = [number for _, _, number in account.acked]
    while True:
        info = fortress.info()
        if info is not None and info.master_address is not None:
            with contextlib.suppress(OSError, ValueError, wire.Refused), fortress.as_root():
                missing = lost(account.acked, read_back(info.master_address, TOPIC))
        if not missing or time.monotonic() > deadline:
            return missing
        time.sleep(0.5)


def besiege(
    fortress: Fortress, names: Sequence[str], idle_s: float, siege_s: float, source: str
) -> tuple[list[Goal], Account, Observer, dict[str, object]]:
    """Idle time, siege, reading back, and the verdict."""
    out = fortress.folder / "honest.json"
    clients = fortress.write_target(HONEST, "")
    length = WARM_UP_S + idle_s + siege_s + 5
    command = [sys.executable, "-m", "tests.bench.honest", str(clients), str(out), str(length)]
    honest = subprocess.Popen(command, cwd=_ROOT)
    try:
        with observer_of(fortress) as seen:
            time.sleep(WARM_UP_S)
            idle_begin = time.monotonic()
            time.sleep(idle_s)
            begin = time.monotonic()
            chose = chosen(fortress, names, source)
            with Attackers(chose, siege_s, fortress.folder / "attacks") as attackers:
                _watch(fortress, seen, begin + siege_s)
                end = time.monotonic()
                tallies = attackers.tallies()
            assert honest.wait(60) == 0, "the honest clients failed"
    finally:
        honest.kill()
        honest.wait()
    account = msgspec.json.decode(out.read_bytes(), type=Account)
    spans = Spans(idle_begin, begin, begin, end)
    goals = judge(spans, account, lost_of(fortress, account), seen, tallies)
    return goals, account, seen, dict(tallies)


def _watch(fortress: Fortress, seen: Observer, end: float) -> None:
    """Wait for the end, and tell once a minute that all is well."""
    told = time.monotonic()
    while time.monotonic() < end:
        time.sleep(max(0.0, min(1.0, end - time.monotonic())))
        if time.monotonic() - told >= PROGRESS_S:
            told = time.monotonic()
            memory = {
                name: round(series.values[-1])
                for (name, what), series in seen.series.items()
                if what == "memory" and series.values
            }
            ended = f", ended: {', '.join(seen.ended)}" if seen.ended else ""
            print(f"{(end - told) / 60:.0f} minutes left, MiB {memory}{ended}", flush=True)


def main() -> int:
    """Besiege a cluster and print the table."""
    end_children_when_terminated()
    options = _options()
    names = [name for name in ATTACKS if not options.attacks or name in options.attacks.split(",")]
    source = "" if options.same_address else STRANGE
    with standing("siege", options.kind, options.folder, keep=options.keep) as fortress:
        goals, account, seen, tallies = besiege(
            fortress, names, options.idle_s, options.minutes * 60, source
        )
        _print(options, goals, account, tallies)
        if options.json:
            _write(Path(options.json), goals, account, seen, tallies)
    return 0 if all(goal.is_met for goal in goals) else 1


def _print(
    options: argparse.Namespace,
    goals: Sequence[Goal],
    account: Account,
    tallies: dict[str, object],
) -> None:
    print(
        f"\n{machine()}; {options.kind}, {options.minutes:g} minutes, 3 controllers, 3 replicas\n"
    )
    rows = [[one.what, one.wanted, one.found, "yes" if one.is_met else "**no**"] for one in goals]
    print(markdown(["what", "goal", "found", "met?"], rows))
    print(f"\nhonest clients: {len(account.acked)} acknowledged, {account.read} read;"
          f" failures: {account.reasons or 'none'}\n")  # fmt: skip
    rows = [[name, *_shown(tally)] for name, tally in tallies.items()]
    print(markdown(["attack", "sent", "MB", "held", "closed by them", "answers by code"], rows))


def _shown(tally: object) -> list[str]:
    if not isinstance(tally, dict):
        return ["failed", "", "", "", ""]
    answers = ", ".join(f"{code}: {count}" for code, count in sorted(tally["answers"].items()))
    return [
        str(tally["sent"]), f"{tally['sent_bytes'] / 1e6:.1f}", str(tally["held_max"]),
        str(tally["closed"]), answers,
    ]  # fmt: skip


def _write(
    path: Path,
    goals: Sequence[Goal],
    account: Account,
    seen: Observer,
    tallies: dict[str, object],
) -> None:
    series = {f"{name} {what}": one.values for (name, what), one in seen.series.items()}
    write_json(path, msgspec.to_builtins({
        "machine": machine(), "goals": goals, "reasons": account.reasons, "tallies": tallies,
        "rulers": seen.rulers, "series": series,
    }))  # fmt: skip


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_siege", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--idle-s", type=float, default=60.0, help="before it, to compare with")
    parser.add_argument("--kind", choices=KINDS, default=CLOSED)
    parser.add_argument(
        "--attacks", type=some_of(ATTACKS), default="", help=f"some of {', '.join(ATTACKS)}"
    )
    parser.add_argument("--same-address", action="store_true", help="as honest clients")
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    parser.add_argument("--keep", action="store_true", help="keep state and logs")
    parser.add_argument("--json", default="", help="write the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
