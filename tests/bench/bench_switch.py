"""How many sends fail, and how long is none acknowledged, when the mastership is moved on purpose?

Question: what a client sees. Three controllers of ours, a name server and three replicas as
processes, ``allAckInSyncStateSet``; senders that send the next message a millisecond after an answer
and never try again. Those of Python brokers send to the master that the name server named at their
last question, 30 s apart; those of Java's (``--brokers java``) ask it after each refusal. Mastership
goes round by ``bin/mqadmin switchMaster`` (``--how electMaster``: as one had to before). Of each
switch: failed sends, and the longest time between two acknowledgements. A command that ends with an
error is told and counted, and another one is given, from where the mastership is then.

Recipe: ``bin/bench switch --switches 100 --json figures.json``. Noise: eight processes and the
senders share the cores.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path

from tests.bench.choosing import some_of
from tests.bench.ending import end_children_when_terminated
from tests.bench.switch_stages import STAGES, Stage
from tests.bench.tables import machine, markdown, number, spread, write_json

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = {
    "switchMaster": ("switchMaster",),
    "switchMaster --hold-java": ("switchMaster", "--hold-java"),
    "electMaster": ("electMaster",),
}
GOALS_MS = {"py": 50, "java": 300}
REFUSALS_MAX = 3
"""In a row; a set that can be switched no more is no set to measure."""
BACK_TIMEOUT_S = 30.0
"""So long is waited for sends after a switch."""


@dataclass(slots=True)
class Outcome:
    """The switches by one command.

    Attributes:
        refused: commands that ended with an error.
    """

    goal_ms: int
    gaps_ms: list[float] = field(default_factory=list)
    failed: list[int] = field(default_factory=list)
    acked: int = 0
    lost: int = 0
    refused: int = 0


class SwitchRefused(Exception):
    """The command ended with an error: what it printed."""


def main() -> None:
    """Run all and print the table."""
    end_children_when_terminated()
    options = _options()
    outcomes: dict[str, Outcome] = {}
    for brokers in options.brokers.split(","):
        for how in options.how.split(","):
            outcomes[f"{how}, {brokers}"] = _in_folder(brokers, how, options)
    print(f"\n{machine()}; {options.switches} switches each, {options.senders} senders\n")
    print(table(outcomes))
    if options.json:
        raw = {how: asdict(one) for how, one in outcomes.items()}
        write_json(Path(options.json), {"machine": machine(), "outcomes": raw})


def table(outcomes: dict[str, Outcome]) -> str:
    """One row a command and kind of brokers."""
    head = ["command, brokers", "without an acknowledgement: median (range), ms", "goal, ms",
            "switches above", "refused", "failed sends", "switches with one", "acknowledged",
            "lost"]  # fmt: skip
    rows = [
        [
            how, spread(one.gaps_ms), str(one.goal_ms),
            str(sum(gap > one.goal_ms for gap in one.gaps_ms)), str(one.refused),
            str(sum(one.failed)),
            str(sum(map(bool, one.failed))), number(one.acked), str(one.lost),
        ]
        for how, one in outcomes.items()
    ]  # fmt: skip
    return markdown(head, rows)


def _in_folder(brokers: str, how: str, options: argparse.Namespace) -> Outcome:
    """As ``_run``; when something was lost all stores and logs stay, for whoever asks why."""
    folder = Path(tempfile.mkdtemp(prefix="rmqha-switch-", dir=options.folder))
    lost = 0
    try:
        outcome = _run(brokers, how, options, folder)
        lost = outcome.lost
    finally:
        if lost:
            print(f"{lost} lost; stores and logs of all are kept in {folder}", flush=True)
        else:
            shutil.rmtree(folder)
    return outcome


def _run(brokers: str, how: str, options: argparse.Namespace, folder: Path) -> Outcome:
    outcome = Outcome(GOALS_MS[brokers])
    stage: Stage = STAGES[brokers](folder, options.senders)
    try:
        time.sleep(1)
        for number_of in range(options.switches):
            switch(stage, how, outcome)
            print(
                f"{time.monotonic():.3f} {how}, {brokers}, {number_of + 1}: "
                f"{outcome.gaps_ms[-1]:.0f} ms, "
                f"failed {outcome.failed[-1]}",
                flush=True,
            )
        outcome.acked, outcome.lost = stage.end()
    finally:
        stage.close()
    return outcome


def switch(stage: Stage, how: str, outcome: Outcome) -> None:
    """As ``switch_once``; a command that is refused is told, counted and given again.

    Raises:
        SwitchRefused: ``REFUSALS_MAX`` in a row.
    """
    for left in reversed(range(REFUSALS_MAX)):
        try:
            switch_once(stage, how, outcome)
            break
        except SwitchRefused as refusal:
            outcome.refused += 1
            print(f"refused: {refusal}", flush=True)
            if not left:
                raise


def switch_once(stage: Stage, how: str, outcome: Outcome) -> None:
    """Move the mastership by one command, and see what its senders see.

    Raises:
        SwitchRefused: the command ended with an error.
    """
    info = stage.wait_in_sync()
    stage.route()
    assert info.master_id is not None
    ids = sorted(info.sync_state_set)
    target = ids[(ids.index(info.master_id) + 1) % len(ids)]
    failures = stage.failures()
    begun_s = time.monotonic()
    done = subprocess.run(
        [ROOT / "bin" / "mqadmin", *COMMANDS[how], "-a", stage.controller_address,
         "-bn", stage.broker_name, "-b", str(target), "-c", stage.cluster_name],
        check=False, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    if done.returncode:
        raise SwitchRefused((done.stdout + done.stderr).strip())
    moved_s = time.monotonic()
    stage.wait_in_sync()
    while not stage.acked_since(moved_s + 0.3) and time.monotonic() < moved_s + BACK_TIMEOUT_S:
        time.sleep(0.05)
    acks = stage.acked_since(begun_s - 0.1) or [begun_s]
    ends = [*acks[1:], time.monotonic()]
    gaps = [b - a for a, b in zip(acks, ends, strict=True)]
    outcome.gaps_ms.append(1000 * max(gaps))
    outcome.failed.append(stage.failures() - failures)


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--switches", type=int, default=20)
    parser.add_argument("--senders", type=int, default=4)
    parser.add_argument(
        "--brokers", type=some_of(("py", "java")), default="py",
        help="py, java, or both with a comma",
    )  # fmt: skip
    parser.add_argument(
        "--how", type=some_of(COMMANDS), default="switchMaster", help=f"of {', '.join(COMMANDS)}"
    )
    parser.add_argument("--folder", default=None, help="where stores are made")
    parser.add_argument("--json", default="", help="keep the raw figures here")
    return parser.parse_args()


if __name__ == "__main__":
    main()
