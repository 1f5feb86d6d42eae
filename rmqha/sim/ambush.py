"""Faults that wait for a moment: not at some time, but when a cluster is in the middle of something.

What takes a millisecond and goes wrong only there is seldom hit by faults at random times. An
ambush watches real nodes after each of their steps; when its moment has come (``moments``), it
does what could as well have happened by chance then (``traps``). What it does is written into the
story's script like all other faults, so that a script needs no ambushes to repeat it.
"""

from __future__ import annotations

import random

from msgspec import Struct

from rmqha.sim.cluster import SimCluster
from rmqha.sim.moments import MOMENTS, Stage
from rmqha.sim.story import Fault
from rmqha.sim.traps import AMBUSHES, LARGE, TRAPS, Act

FIRST_MS = 1200.0
"""No ambush before: a group must be founded."""

ACT_MS = 4000.0
"""So long a trap waits for its next act, then it begins anew."""

SPRINGS_MAX = 4


class Laid(Struct):
    """One ambush of a story: which act comes next, from when on, until when."""

    name: str
    not_before_ms: float
    act: int = 0
    not_after_ms: float = 0.0
    sprung: int = 0


def draw_names(rng: random.Random, size: int) -> list[str]:
    """What lies in ambush in one story, of a group of so many."""
    if size == 1:
        return []
    names = [*MOMENTS, *TRAPS, *TRAPS]
    if size == 5:
        names += [*LARGE] * 4
    return list(dict.fromkeys(rng.sample(names, rng.choice((0, 2, 3, 4)))))


class Ambushes:
    """Those of one story.

    Args:
        cluster: nothing booted; its nodes are watched from their start.
        rng: draws how many there are, which, and what they do.
    """

    def __init__(self, cluster: SimCluster, rng: random.Random) -> None:
        self._stage = Stage(cluster, rng)
        self._cluster = cluster
        drawn = draw_names(rng, len(cluster.controller_hosts))
        self._laid = [Laid(name, FIRST_MS + rng.uniform(0, 2500)) for name in drawn]
        self._sprung: list[tuple[Act, str]] = []
        self._waiting: list[Fault] = []
        if self._laid:
            cluster.on_step = self._look

    def end(self) -> None:
        """Peace: nothing springs any more."""
        self._laid = []
        self._sprung = []

    def next_due(self) -> Fault | None:
        """The fault that is to be played next, of all that have sprung until now."""
        now_ms = self._cluster.loop.time() * 1000
        for act, it in self._sprung:
            steps = act.plan(self._stage, it)
            self._waiting += [
                Fault(round(now_ms + 0.002 + step.after_ms, 3), step.kind, step.args)
                for step in steps
            ]
        self._sprung = []
        self._waiting.sort(key=lambda fault: fault.at_ms)
        return self._waiting[0] if self._waiting else None

    def played(self) -> None:
        """The fault of ``next_due`` is done."""
        del self._waiting[0]

    def _look(self, host: str) -> None:
        node = self._stage.node(host)
        if node is None:
            return
        now_ms = self._cluster.loop.time() * 1000
        for one in self._laid:
            acts = AMBUSHES[one.name]
            if one.act and now_ms > one.not_after_ms:
                one.act = 0
            act = acts[one.act]
            if now_ms < one.not_before_ms or not act.moment(self._stage, host, node):
                continue
            self._sprung.append((act, host))
            self._advance(one, acts, now_ms)
            self._cluster.interrupt()

    def _advance(self, one: Laid, acts: tuple[Act, ...], now_ms: float) -> None:
        one.act = (one.act + 1) % len(acts)
        if one.act == min(2, len(acts)) % len(acts):
            self._cluster.counts[f"ambush: {one.name}"] += 1
        if one.act:
            one.not_before_ms = now_ms + 0.01 + acts[one.act].after_ms
            one.not_after_ms = one.not_before_ms + ACT_MS
            return
        one.sprung += 1
        pause_ms = self._stage.rng.uniform(300, 2000)
        one.not_before_ms = now_ms + pause_ms if one.sprung < SPRINGS_MAX else float("inf")
