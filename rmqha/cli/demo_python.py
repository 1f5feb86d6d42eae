"""The demo without Java: every node is a process of ours, a producer and a consumer never stop.

Round after round the master is killed, writes come back, and the killed one returns as a slave.
"""

from __future__ import annotations

import json
import threading
import time
from pathlib import Path

from rmqha.cli.demo_show import TOPIC, ReplicaRow, console, show_state, show_timeline, step
from rmqha.cli.demo_timeline import Timeline
from rmqha.testing.client import Acked
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.nodes import Node
from rmqha.testing.verbs import RunningWorkload
from rmqha.testing.workload import Ledger

FIRST_ACKS = 500
WRITES_BACK_TIMEOUT_S = 60.0
DRAIN_S = 30.0
STATUS_PAGE_STARTED = "status_page_started"


class PythonDemo:
    """Three controllers, a name server and three replicas, killed and mended in rounds.

    Args:
        folder: for stores and logs.
        every_s: between two kills.
        history: a file for what producer and consumer do; None writes none.

    Attributes:
        killed_wall_s: when the master was killed, seconds since 1970.
        failovers_ms: from each kill to the first acknowledgement of the next master.
    """

    def __init__(self, folder: Path, every_s: float, history: Path | None = None) -> None:
        self._cluster = RmqCluster(
            folder, processes=True, controller_settings={"statusPagePort": 0}, history=history
        )
        self._every_s = every_s
        self._workload: RunningWorkload | None = None
        self._old_master: Node | None = None
        self._killed_ms = 0
        self.killed_wall_s = 0.0
        self.failovers_ms: list[float] = []

    def play(self, *, once: bool) -> int:
        """Run until Ctrl-C, or one round; returns the exit code."""
        try:
            self._form()
            self._round()
            while not once:
                console.print(f"\nThe next kill in {self._every_s:g} s. Ctrl-C ends the demo.")
                threading.Event().wait(self._every_s)
                self._round()
        except KeyboardInterrupt:
            console.print("\nStopping.")
        finally:
            ledger = self._end()
        # Who ends it before the first message was sent has seen no failure.
        return 1 if ledger is not None and ledger.lost else 0

    def _form(self) -> None:
        step("Three controllers, a name server and three replicas start, each a process")
        started = time.monotonic()
        self._cluster.start()
        ready_s = time.monotonic() - started
        self._workload = self._cluster.workload(TOPIC)
        self._workload.wait_for_acks(1)
        acked_s = time.monotonic() - started
        leader = self._cluster.wait_for_leader()
        console.print(
            f"  all replicas in sync after {ready_s:.2f} s, the first message acknowledged after"
            f" {acked_s:.2f} s; {leader.name} leads"
        )
        console.print(f"  name server {self._cluster.namesrv_addr}")
        console.print(f"  controllers {self._cluster.controller_addr}")
        for url in self._status_pages():
            console.print(f"  status page {url}")
        self._show()
        self._workload.wait_for_acks(FIRST_ACKS)

    def _status_pages(self) -> list[str]:
        """Where the controllers show what they know: the first of them is enough."""
        lines = self._cluster.controllers[0].log.read_text().splitlines()
        events = [json.loads(line) for line in lines if line.startswith("{")]
        return [one["url"] for one in events if one["event"] == STATUS_PAGE_STARTED]

    def _show(self) -> None:
        info = self._cluster.replicas()
        if info is None:
            console.print("  no controller leads")
            return
        rows = [
            ReplicaRow(
                one.broker_id, one.broker_address, one.broker_id == info.master_broker_id, in_sync,
                one.alive,
            )
            for in_sync, group in ((True, info.in_sync_replicas), (False, info.not_in_sync_replicas))
            for one in group
        ]  # fmt: skip
        members = sorted(one.broker_id for one in info.in_sync_replicas)
        show_state(sorted(rows), info.master_epoch, members)

    def _round(self) -> None:
        assert self._workload is not None
        step("kill -9 of the master")
        old = self._old_master = self._cluster.wait_for_master()
        timeline = Timeline(self)
        self._killed_ms, self.killed_wall_s = self._workload.now_ms(), time.time()
        self._cluster.kill(old)
        timeline.killed()
        timeline.follow(WRITES_BACK_TIMEOUT_S)
        first = self._first_ack()
        assert first is not None
        self.failovers_ms.append(first.acked_ms - self._killed_ms)
        show_timeline(timeline.stages, old.name)
        step("The old master returns, as a slave")
        self._cluster.heal()
        self._show()
        console.print(f"  {tally(self._workload.ledger, self.failovers_ms)}")

    def _first_ack(self) -> Acked | None:
        if self._workload is None or self._old_master is None:
            return None
        return self._workload.first_ack_after(self._killed_ms, not_by=self._old_master.address)

    def _end(self) -> Ledger | None:
        """Read the rest and say what became of it; None when nothing was ever sent."""
        ledger = None
        try:
            if self._workload is not None:
                ledger = self._workload.stop(DRAIN_S)
                step("Everything that was acknowledged is read")
                console.print(f"  {tally(ledger, self.failovers_ms)}")
        finally:
            self._cluster.close()
        return ledger

    # -- what the timeline asks ----------------------------------------------------------------

    def logs(self) -> list[tuple[str, Path]]:
        """The log lines of all nodes."""
        return [(node.name, node.log) for node in self._cluster.nodes]

    def writes_are_back(self) -> bool:
        """Whether a message sent after the kill was acknowledged."""
        return self._first_ack() is not None

    def write_stages(self) -> list[tuple[float, str, str]]:
        """When writes were back."""
        first = self._first_ack()
        if first is None:
            return []
        return [(first.acked_ms - self._killed_ms, "producer", "writes are acknowledged again")]


def tally(ledger: Ledger, failovers_ms: list[float]) -> str:
    """One line: what became of the messages, and how long writes were away."""
    lost = len(ledger.lost)
    text = (
        f"{ledger.acknowledged:,} acknowledged, {ledger.consumed:,} read,"
        f" {'[red]' if lost else '[green]'}{lost} lost{'[/red]' if lost else '[/green]'},"
        f" {ledger.duplicates} duplicate"
    )
    if failovers_ms:
        times = ", ".join(f"{one:.0f}" for one in failovers_ms[-8:])
        text += f"; writes were back after {times} ms"
    return text
