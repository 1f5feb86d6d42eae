"""What one attack alone has done to a cluster, in a few words. Pure: figures in, words out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from msgspec import Struct

from tests.bench.honest import Account
from tests.bench.tables import number

SILENCE_S_MIN = 1.0
"""Less than this nobody notices: clients ask again."""
MEMORY_MIB_MIN = 50.0
COPIED_BYTES_MIN = 4096
SLOW = "slow-readers"
"""The attack on exporters."""
SHOWN_MAX = 2
ASKED = {"send": "sends", "1004": "1004", "105": "routes"}
GRANTED = frozenset({"configuration", "ghosts", "routes", "brokers-names", "system-records"})
"""Attacks whose requests harm by being granted."""


class Outcome(Struct):
    """One attack on one cluster.

    Attributes:
        tally: what the attacker says it achieved; None when it failed.
        ended: processes that did.
        changes: of leader, master and epoch.
        routes: looks at the route, and how many showed no master or another.
        silence_s: the longest time without a success, by kind of honest call.
        added_mib: by process, the most over what it had before.
        lost: of so many acknowledged.
        http_s: the longest answer of an exporter; None without one.
        is_well: all were in sync again, by themselves.
        restarts: a replica that was ended came back; None when nobody tried.
    """

    tally: Mapping[str, Any] | None
    ended: Sequence[str] = ()
    changes: Sequence[str] = ()
    routes: tuple[int, int] = (0, 0)
    silence_s: Mapping[str, float] = {}
    added_mib: Mapping[str, float] = {}
    lost: tuple[int, int] = (0, 0)
    http_s: float | None = None
    is_well: bool = True
    restarts: bool | None = None


def silences(account: Account, begin: float, end: float) -> dict[str, float]:
    """The longest time without a success, by kind of call."""
    return {
        kind: samples.longest_silence_s(begin, end) for kind, samples in account.samples.items()
    }


def words(name: str, found: Outcome) -> str:
    """What happened, the worst first; "nothing" when nobody would have noticed."""
    if found.tally is None:
        return "**the attacker failed**"
    said = [*harm(found), *taken(name, found.tally), *_noticed(name, found)]
    return "; ".join(said) if said else "nothing"


def harm(found: Outcome) -> list[str]:
    """What was broken or lost, changed hands, or did not get well."""
    said = []
    if found.ended:
        said.append(f"**ended: {', '.join(found.ended)}**")
    if found.lost[0] == found.lost[1] > 0:
        said.append("**nothing that was acknowledged can be read**")
    elif found.lost[0]:
        said.append(f"**{found.lost[0]} of {found.lost[1]} acknowledged lost**")
    if found.changes:
        times = f" ({len(found.changes)} times)" if len(found.changes) > 1 else ""
        said.append(f"**{_shortened(found.changes[0])}**{times}")
    looks, wrong = found.routes
    if wrong:
        said.append(f"**route without its master in {100 * wrong / looks:.0f} % of looks**")
    if found.restarts is False:
        said.append("**a replica that was restarted did not come back**")
    if not found.is_well:
        said.append("**not in sync again within 30 s**")
    return said


def _shortened(change: str) -> str:
    """Only what differs of ``leader n0, master 1 in epoch 1 -> ...``."""
    before, _, after = change.partition(" -> ")
    (leader, ruled), (leads, rules) = (one.split(", ", 1) for one in (before, after))
    parts = []
    if leader != leads:
        parts.append("leader fell")
    if ruled != rules:
        parts.append(f"{ruled} -> {rules}")
    return ", ".join(parts)


def taken(name: str, tally: Mapping[str, Any]) -> list[str]:
    """What the attacker got that nobody gave him leave for."""
    said = []
    if name == "stand-in-slave" and tally["read_bytes"] >= COPIED_BYTES_MIN:
        said.append(f"log copied ({tally['read_bytes'] / 1000:.0f} KB)")
    granted, all_of = tally["answers"].get("0", 0), sum(tally["answers"].values())
    if name in GRANTED and granted:
        said.append(f"{granted} of {all_of} granted")
    return said


def _noticed(name: str, found: Outcome) -> list[str]:
    said = [
        f"no {ASKED[kind]} for {number(found.silence_s[kind])} s"
        for kind in ASKED
        if found.silence_s.get(kind, 0.0) >= SILENCE_S_MIN
    ]
    if name == SLOW and found.http_s is not None and found.http_s >= SILENCE_S_MIN:
        said.append(f"exporter silent for {number(found.http_s)} s")
    grown = sorted(found.added_mib.items(), key=lambda one: -one[1])
    more = [f"{name} +{mib:.0f} MiB" for name, mib in grown if mib >= MEMORY_MIB_MIN]
    return [*said, *([", ".join(more[:SHOWN_MAX])] if more else [])]
