"""Faults that wait for a moment: not at some time, but when a cluster is in the middle of something.

What takes a millisecond and goes wrong only there is seldom hit by faults at random times. An
ambush watches real nodes after each of their steps; when its moment has come (``moments``), it
does what could as well have happened by chance then (``traps``). What it does is written into the
story's script like all other faults, so that a script needs no ambushes to repeat it.
"""

from __future__ import annotations

import random
from collections import Counter

from msgspec import Struct

from rmqha.sim.acts import CALM, Act
from rmqha.sim.cluster import SimCluster
from rmqha.sim.moments import MOMENTS, Stage
from rmqha.sim.standstills import STANDSTILL_WEIGHTS, STANDSTILLS
from rmqha.sim.story import Fault
from rmqha.sim.traps import AMBUSHES, LARGE, RARE, TRAPS

FIRST_MS = 1200.0
"""No ambush before: a group must be founded."""

ACT_MS = 4000.0
"""So long a trap waits for its next act, then it begins anew."""

SPRINGS_MAX = 4


RARE_SHARE = 0.5
"""Of all stories this share has one of the rare ones besides."""

STANDSTILL_SHARE = 0.3
"""Of the stories without a rare one this share has one after which a group could stand still."""

SMALL = Counter({"torn write": 3, "handing over": 2, "installing": 2, "readmitting": 2})
RARE_WEIGHTS = {
    1: Counter({"torn write": 1}),
    3: SMALL + Counter({"longer log": 1}),
    5: Counter(
        {
            **dict.fromkeys(SMALL, 1),
            "torn write": 2,
            "longer log": 1,
            "late install": 2,
            "two down and a bridge": 4,
        }
    ),
}
"""By the size of a group: each occurs several times in 200 stories."""


class Laid(Struct):
    """One ambush of a story: which act comes next, from when on, until when.

    Attributes:
        stage: with random numbers of the ambush's own kind.
    """

    name: str
    acts: tuple[Act, ...]
    stage: Stage
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


def draw_rare(rng: random.Random, size: int) -> dict[str, tuple[Act, ...]]:
    """What lies there besides: one of those that would hardly ever spring, or nothing."""
    if rng.random() >= RARE_SHARE:
        return {}
    name = rng.choice([*RARE_WEIGHTS[size].elements()])
    return {name: RARE[name]}


def draw_standstill(rng: random.Random, size: int) -> dict[str, tuple[Act, ...]]:
    """What lies in a story that has no rare one: something after which the group must go on."""
    if size == 1 or rng.random() >= STANDSTILL_SHARE:
        return {}
    name = rng.choice([*STANDSTILL_WEIGHTS[size].elements()])
    return {name: STANDSTILLS[name]}


class Ambushes:
    """Those of one story.

    Args:
        cluster: nothing booted; its nodes are watched from their start.
        rng: draws how many there are, which, and what they do. The rare ones draw from a copy, so
            that a further kind of them changes no story that has none.
        end_ms: when there will be peace.

    Attributes:
        quiet_until_ms: before, nothing else shall happen.
    """

    def __init__(self, cluster: SimCluster, rng: random.Random, end_ms: float) -> None:
        self._cluster = cluster
        self._end_ms = end_ms
        self.quiet_until_ms = 0.0
        self._alone: Laid | None = None
        copy = random.Random()
        copy.setstate(rng.getstate())
        apart, later = random.Random(copy.random()), random.Random(copy.random())
        size = len(cluster.controller_hosts)
        stage, rare_stage = Stage(cluster, rng), Stage(cluster, apart)
        self._laid = [
            Laid(name, AMBUSHES[name], stage, FIRST_MS + rng.uniform(0, 2500))
            for name in draw_names(rng, size)
        ]
        rare = draw_rare(apart, size)
        self._laid += [
            Laid(name, acts, rare_stage, FIRST_MS + apart.uniform(0, 1500))
            for name, acts in rare.items()
        ]
        self._laid += [
            Laid(name, acts, Stage(cluster, later), FIRST_MS + later.uniform(0, 1000))
            for name, acts in ({} if rare else draw_standstill(later, size)).items()
        ]
        self._sprung: list[tuple[Laid, Act, str]] = []
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
        for one, act, it in self._sprung:
            steps = act.plan(one.stage, it)
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
        now_ms = self._cluster.loop.time() * 1000
        for one in self._laid:
            node = one.stage.node(host)
            if node is None:
                return
            if now_ms < self.quiet_until_ms and one is not self._alone:
                continue
            if one.act and now_ms > one.not_after_ms:
                one.act = 0
            act = one.acts[one.act]
            if now_ms < one.not_before_ms or now_ms + act.quiet_ms > self._end_ms:
                continue
            if not act.moment(one.stage, host, node):
                continue
            self._sprung.append((one, act, host))
            self._advance(one, now_ms)
            self._cluster.interrupt()
            if act.quiet_ms:
                self.quiet_until_ms = now_ms + act.quiet_ms
                self._alone = one if one.act else None

    def _advance(self, one: Laid, now_ms: float) -> None:
        counted = min(len(one.acts), 2 + (one.acts[0] is CALM))
        self._cluster.counts[f"ambush: {one.name}"] += one.act + 1 == counted
        one.act = (one.act + 1) % len(one.acts)
        if one.act:
            one.not_before_ms = now_ms + 0.01 + one.acts[one.act].after_ms
            one.not_after_ms = one.not_before_ms + ACT_MS
            return
        one.sprung += 1
        pause_ms = one.stage.rng.uniform(300, 2000)
        one.not_before_ms = now_ms + pause_ms if one.sprung < SPRINGS_MAX else float("inf")
