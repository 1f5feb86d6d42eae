"""What does each attack of the threats' list do to Java 5.3.3, and what to ours?

Question: for each attack of ``tests/attacks``, alone, for some seconds: which processes ended, did
leader, master or route change, was anything acknowledged lost, how long was there no successful
send, 1004 or route, and how much memory was taken? Java's is as it comes out of the box (three
DLedger controllers, a name server and two brokers in controller mode, -Xmx1g each, the second
compiler left out), ours once as it comes out of the box and once closed as docs/SECURITY.md advises
but for TLS. Nothing about access can be set on Java's controller, name server or replication.

Recipe: ``bin/bench attacks --seconds 8``. A cluster that did not get well, and one after an attack
that leaves something behind, is made anew. After "system-records" a replica is restarted. Noise:
attackers are nice 5 and still share two cores with six servers; only seconds matter here.
"""

from __future__ import annotations

import argparse
import contextlib
import http.client
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec

from tests.attacks.catalog import ATTACKS
from tests.bench.attack_outcome import Outcome, silences, words
from tests.bench.attackers import Attackers
from tests.bench.bench_siege import lost_of, observer_of
from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.fortress import CLOSED, HONEST, JAVA, KINDS, MALLORY, NOBODY, Fortress
from tests.bench.honest import Account
from tests.bench.observed import MEMORY, Observer
from tests.bench.tables import machine, markdown, write_json

BEFORE_S, AFTER_S = 4.0, 4.0
CALL_S = 5.0
WELL_S = 30.0
LOOK_S = 0.1
NICENESS = 5
RESTARTS = frozenset({"system-records"})
LEAVES_SOMETHING = frozenset({"raft", "system-records", "lying-client", "many-groups", "routes",
                              "brokers-names", "ghosts", "configuration"})  # fmt: skip
SHOWN = {JAVA: "Java 5.3.3", "open": "ours, out of the box", CLOSED: "ours, closed"}
_ROOT = Path(__file__).resolve().parents[2]


class Looks:
    """What the name server and an exporter say all along."""

    def __init__(self, fortress: Fortress, master: str) -> None:
        self.looks = self.wrong = 0
        self.http_s = 0.0
        self._fortress, self._master = fortress, master
        self._stopping = threading.Event()
        self._threads = [
            threading.Thread(target=self._repeat, args=one, daemon=True)
            for one in ((self._look_at_route, LOOK_S), (self._look_at_exporter, 0.5))
        ]

    def __enter__(self) -> Self:
        for one in self._threads:
            one.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        for one in self._threads:
            one.join(2 * CALL_S)

    def _repeat(self, look: object, period_s: float) -> None:
        assert callable(look)
        while not self._stopping.wait(period_s):
            look()

    def _look_at_route(self) -> None:
        # A silent name server is no wrong one: how long it was silent is counted elsewhere.
        with contextlib.suppress(OSError, ValueError, KeyError):
            found = self._fortress.routed_master()
            self.looks += 1
            self.wrong += found != self._master

    def _look_at_exporter(self) -> None:
        begun = time.monotonic()
        one = http.client.HTTPConnection(self._fortress.exporters[0], timeout=CALL_S)
        with contextlib.suppress(OSError, http.client.HTTPException):
            one.request("GET", "/metrics")
            one.getresponse().read()
        one.close()
        self.http_s = max(self.http_s, time.monotonic() - begun)


def attack_once(
    fortress: Fortress, name: str, seconds: float, before_s: float = BEFORE_S,
    after_s: float = AFTER_S,
) -> Outcome:  # fmt: skip
    """One attack beside honest clients, who begin before it and go on after it."""
    out = fortress.folder / "honest.json"
    clients = fortress.write_target(HONEST, "")
    length = before_s + seconds + after_s
    command = [sys.executable, "-m", "tests.bench.honest", str(clients), str(out), str(length),
               str(CALL_S)]  # fmt: skip
    info = fortress.wait_in_sync()
    user = MALLORY if ATTACKS[name].has_user else NOBODY
    target = fortress.write_target(user)
    honest = subprocess.Popen(command, cwd=_ROOT)
    try:
        with (
            observer_of(fortress) as seen,
            Looks(fortress, info.master_address or "") as looks,
        ):
            time.sleep(before_s)
            begin = time.monotonic()
            shots = [(name, name, target, ATTACKS[name].alone_per_s)]
            out_folder = fortress.folder / "attacks"
            with Attackers(shots, seconds, out_folder, NICENESS) as attackers:
                tally = attackers.tallies()[name]
            honest.wait(after_s + 6 * CALL_S)
            end = time.monotonic()
    finally:
        honest.kill()
        honest.wait()
    account = msgspec.json.decode(out.read_bytes(), type=Account)
    last = max((max(one.begun, default=begin) for one in account.samples.values()), default=end)
    found = Outcome(
        tally,
        ended=tuple(seen.ended),
        changes=seen.changes(begin, end),
        routes=(looks.looks, looks.wrong),
        silence_s=silences(account, begin, last),
        added_mib=_added(seen, begin, end),
        http_s=looks.http_s,
    )
    found.is_well = _gets_well(fortress)
    missing = lost_of(fortress, account, WELL_S if found.is_well else after_s)
    found.lost = (len(missing), len(account.acked))
    if name in RESTARTS and found.is_well:
        found.restarts = fortress.restart(fortress.brokers[-1])
    return found


def _added(seen: Observer, begin: float, end: float) -> dict[str, float]:
    names = {name for name, what in seen.series if what == MEMORY}
    return {
        name: seen.of(name, MEMORY).most(begin, end) - seen.of(name, MEMORY).most(0.0, begin)
        for name in names
    }


def _gets_well(fortress: Fortress) -> bool:
    if not all(child.alive for child in fortress.children):
        return False
    try:
        fortress.wait_in_sync(WELL_S)
    except AssertionError:
        return False
    return True


def attack_kind(kind: str, names: Sequence[str], seconds: float, folder: Path) -> dict[str, Outcome]:  # fmt: skip
    """All attacks on one kind of cluster, one after another."""
    found: dict[str, Outcome] = {}
    fortress: Fortress | None = None
    try:
        for number, name in enumerate(names):
            if fortress is None:
                fortress = Fortress(folder / f"{kind}-{number}", kind, replicas=2).start()
            found[name] = attack_once(fortress, name, seconds)
            print(f"{kind}, {name}: {words(name, found[name])}", flush=True)
            if name in LEAVES_SOMETHING or not found[name].is_well or found[name].changes:
                fortress.close()
                fortress = None
    finally:
        if fortress is not None:
            fortress.close()
    return found


def main() -> None:
    """Attack, and print the table."""
    end_children_when_terminated()
    options = _options()
    names = [name for name in ATTACKS if not options.attacks or name in options.attacks.split(",")]
    kinds = options.kinds.split(",")
    folder = Path(tempfile.mkdtemp(prefix="rmqha-attacks-", dir=options.folder))
    outcomes: dict[str, dict[str, Outcome]] = {}
    try:
        for kind in kinds:
            outcomes[kind] = attack_kind(kind, names, options.seconds, folder)
    finally:
        if not options.keep:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"\n{machine()}; each attack alone for {options.seconds:g} s\n")
    rows = [
        [ATTACKS[name].rows, name, *(words(name, outcomes[kind][name]) for kind in kinds)]
        for name in names
    ]
    print(markdown(["row", "attack", *(SHOWN[kind] for kind in kinds)], rows))
    if options.json:
        write_json(Path(options.json), msgspec.to_builtins(outcomes))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="bench_attacks", description=__doc__)
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument("--seconds", type=float, default=8.0, help="of each attack")
    parser.add_argument(
        "--kinds", type=some_of(KINDS), default=",".join(KINDS), help=f"some of {', '.join(KINDS)}"
    )
    parser.add_argument(
        "--attacks", type=some_of(ATTACKS), default="", help=f"some of {', '.join(ATTACKS)}"
    )
    parser.add_argument("--folder", default=None, help="where state goes (default: temporary)")
    parser.add_argument("--keep", action="store_true", help="keep state and logs")
    parser.add_argument("--json", default="", help="write the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
