"""What has to happen in a batch of each kind of story; a batch that lacks it says nothing of that."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing

from rmqha.sim.batch import Run
from rmqha.sim.coverage import missing, unended
from rmqha.sim.emptied_swarm import EMPTIED_WANTED, run_emptied_seed
from rmqha.sim.java_peer import HAPPENED, run_java_peer_seed
from rmqha.sim.members_swarm import make_members_swarm, missing_happenings, run_members_seed
from rmqha.sim.net import JOINED, PARTED, PAUSED
from rmqha.sim.pages import TORN_PAGES
from rmqha.sim.pressed_swarm import PRESSED_WANTED, run_pressed_seed
from rmqha.sim.probe_swarm import SLOW_WANTED, STOPPED_WANTED, run_slow_seed, run_stopped_seed
from rmqha.sim.replica_cluster import UNFLUSHED
from rmqha.sim.replica_swarm import CONTROLLER_KINDS, run_replica_seed
from rmqha.sim.rot_swarm import ROT_WANTED, run_rot_seed
from rmqha.sim.service_swarm import SERVED, SERVICE_SETS, run_service_seed
from rmqha.sim.storm_swarm import make_storm, missing_in_storms, run_storm_seed
from rmqha.sim.swarm import Swarm, make_swarm, run_seed
from rmqha.sim.traps import NAMES

BROKER_KINDS = (
    "slow broker disk", "broken broker disk", "quiet failover", "quiet return", "blackout",
)  # fmt: skip
REPLICA_FAULTS = tuple(f"fault: {name}" for name in (*CONTROLLER_KINDS, *BROKER_KINDS))
"""The kinds that every story of replicas has; a seed may give some of them no weight."""

LIVED = (
    "topic made", "topic changed", "topic deleted", "group changed", "group deleted",
    "offset committed", "message of a life after the first", "change asked for again",
    "name checked at a master", "contents checked at a master", "tables compared",
    "offset found at its master", "messages counted",
)  # fmt: skip
"""In stories of replicas, and in most of them more than once."""
RARE = (
    "log passed 2 GiB", "log passed 4 GiB", "log in files of 1 GiB", TORN_PAGES, PARTED, JOINED, PAUSED,
)  # fmt: skip
"""In a batch of them."""

WANTED: dict[Run, tuple[str, ...]] = {
    run_replica_seed: (*LIVED, *RARE, "holders counted", *REPLICA_FAULTS),
    run_service_seed: (*SERVED, *SERVICE_SETS, TORN_PAGES, PAUSED, UNFLUSHED, *REPLICA_FAULTS),
    run_java_peer_seed: (*SERVED, *HAPPENED, TORN_PAGES, PAUSED, UNFLUSHED, *REPLICA_FAULTS),
    run_pressed_seed: (*SERVED, *PRESSED_WANTED),
    run_slow_seed: SLOW_WANTED,
    run_stopped_seed: STOPPED_WANTED,
    run_rot_seed: ROT_WANTED,
    run_emptied_seed: (*EMPTIED_WANTED, *REPLICA_FAULTS),
}
"""Of stories whose faults are not drawn from a swarm's own list."""


def uncovered(run: Run, first: int, counts: Mapping[str, int]) -> list[str]:
    """What should have happened in a long batch from seed ``first`` on, and did not.

    Raises:
        KeyError: nobody has said what such stories must hold.
    """
    if run is run_seed:
        return missing(counts, _kinds(make_swarm(first)), NAMES)
    if run is run_storm_seed:
        return missing_in_storms(counts, _kinds(make_storm(first)))
    if run is run_members_seed:
        return missing_happenings(counts, _kinds(make_members_swarm(first))) + unended(counts)
    return [name for name in WANTED[run] if not counts.get(name)] + unended(counts)


def _kinds(swarm: Swarm) -> list[str]:
    """Of the faults that a swarm draws from."""
    with closing(swarm.cluster):
        return list(swarm.kinds)
