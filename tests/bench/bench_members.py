"""How long does nobody answer while the members of a controller group change?

Question: 3 to 5 to 3 members, and all three replaced by others, under load: how many reads fail, and
the longest time between two answers of 1004, for each kind of step.

Recipe: ``bin/bench members --rounds 5``. Controllers are processes on loopback; one client asks
whoever leads for a set's master, one request at a time, and finds the leader again when it is told
2007, as brokers do. Java's controllers cannot change their members. Wall time: on a busy machine the
longest time is the machine's; read the medians.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Sequence
from pathlib import Path

from tests.bench.ending import end_children_when_terminated
from tests.bench.tables import machine, markdown, number, spread, write_json
from tests.cli.changing import Reader, done, joiner
from tests.cli.nodes import Node, group, join

STEPS = ("a node joins", "a follower leaves", "leadership is moved", "the leader leaves")


class Round:
    """One group, from three members to five, to three others.

    Attributes:
        longest_ms: between two answers, by kind of step.
    """

    def __init__(self, folder: Path) -> None:
        self.longest_ms: dict[str, list[float]] = {step: [] for step in STEPS}
        self.answers = self.wrong = 0
        with group(folder) as trio:
            leader = trio.wait_leader()
            connection = join(leader, "broker-a", 1)
            self._reader = Reader([node.address for node in trio.nodes], "broker-a")
            self._reader.start()
            try:
                self._change(
                    trio.nodes[:3], leader, [joiner(trio, folder, 3), joiner(trio, folder, 4)]
                )
                self._third(trio.nodes[:3], joiner(trio, folder, 5))
            finally:
                self._reader.over.set()
                self._reader.join()
                connection.close()
        self.answers, self.wrong = self._reader.answers, len(self._reader.wrong)

    def _change(self, founders: list[Node], leader: Node, joining: list[Node]) -> None:
        """3 to 5 to 3."""
        self._reader.take_longest_s()
        for node in joining:
            self._add(leader, node)
        for node in [one for one in founders if one is not leader]:
            self._remove("a follower leaves", leader, node)
        target = joining[0]
        done("transferControllerLeader", "-a", leader.address, "-i", target.name)
        self._note("leadership is moved")
        done("transferControllerLeader", "-a", leader.address, "-i", leader.name)
        self._note("leadership is moved")

    def _third(self, founders: list[Node], last: Node) -> None:
        """The founder that is left leads, and goes."""
        leader = next(one for one in founders if one.code is None)
        self._add(leader, last)
        self._remove("the leader leaves", last, leader)

    def _add(self, leader: Node, node: Node) -> None:
        self._reader.addresses.append(node.address)
        done("addController", "-a", leader.address, "-i", node.name, "--address", node.address)
        self._note("a node joins")

    def _remove(self, step: str, asked: Node, node: Node) -> None:
        done("removeController", "-a", asked.address, "-i", node.name)
        node.wait_logged("raft_removed")
        self._note(step)
        node.kill()
        self._reader.take_longest_s()

    def _note(self, step: str) -> None:
        before = self._reader.answers
        while self._reader.answers < before + 2:
            self._reader.over.wait(0.001)
        self.longest_ms[step].append(self._reader.take_longest_s() * 1000)


def main(arguments: Sequence[str] | None = None) -> None:
    """Play the rounds, print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args(arguments)
    end_children_when_terminated()
    found: dict[str, list[float]] = {step: [] for step in STEPS}
    answers = wrong = 0
    for _ in range(asked.rounds):
        with tempfile.TemporaryDirectory() as folder:
            one = Round(Path(folder))
        answers, wrong = answers + one.answers, wrong + one.wrong
        for step, values in one.longest_ms.items():
            found[step] += values
    rows = [(step, number(len(values)), spread(values, " ms")) for step, values in found.items()]
    print(markdown(("step", "times", "longest time without an answer"), rows))
    print(f"\n{answers} answers, {wrong} of them wrong; {machine()}")
    if asked.json:
        write_json(asked.json, {"longest_ms": found, "answers": answers, "wrong": wrong})


if __name__ == "__main__":
    main()
