"""Controllers' disks: slow, hung, full, broken, damaged, emptied.

Drawn and played as ``faults`` says.
"""

from __future__ import annotations

from rmqha.controller.raft.wal_layout import WAL_MAGIC_1, magic_of
from rmqha.sim.disk import SimFile
from rmqha.sim.releases import to_format_1
from rmqha.sim.story import Args, Faults, Kind

STORE = "/store/rmqha/"
FULL_MAX = 2
"""Of three controllers the majority may refuse changes then, and must go on when it has space."""


class DiskFaults(Faults):
    """Controllers' disks: slow, hung, full, broken, damaged, emptied."""

    def kinds(self) -> dict[str, Kind]:
        """Faults by their names."""
        rng = self.rng
        return {
            "slow disk": Kind(
                lambda: (
                    *self.a_controller(),
                    rng.choice((0.0, 0.05, 0.3, 0.6)),
                    rng.choice((0, 0, 1000, 3000)),
                ),
                self.slow,
            ),
            "slow snapshots": Kind(
                lambda: (*self.a_controller(), rng.choice((0, 300, 1000, 3000))),
                self.slow_snapshots,
            ),
            "hung sync": Kind(
                lambda: (*self.a_controller(), rng.choice((400, 1500, 4000)), rng.randint(0, 1)),
                self.hang,
            ),
            "broken disk": Kind(self.a_controller, self.break_disk),
            "full disk": Kind(self.a_controller, self.fill),
            "unreadable disk": Kind(self.a_controller, self.make_unreadable),
            "mend disks": Kind(self.draw_mend, self.mend),
            "flip bit": Kind(self.draw_flip, self.flip),
            "wipe store": Kind(self.draw_wipe, self.wipe),
            "other release": Kind(self.a_controller, self.other_release),
        }

    def _say(self, what: str, host: str, **facts: object) -> bool:
        self.cluster.trace.say("sim", what, host=host, **facts)
        return True

    def slow(self, host: str, stall: float, extra_ms: int) -> bool:
        """Some syncs take 300 ms, and whole files longer still."""
        mood = self.cluster.disks[host].mood
        mood.stall, mood.atomic_ms = stall, float(extra_ms)
        return self._say("slow disk", host, stall=stall, extra_ms=extra_ms)

    def slow_snapshots(self, host: str, extra_ms: int) -> bool:
        """Whole files, so snapshots, take long to write."""
        self.cluster.disks[host].mood.atomic_ms = float(extra_ms)
        return self._say("slow snapshots", host, extra_ms=extra_ms)

    def hang(self, host: str, duration_ms: int, fails: int) -> bool:
        """No sync ends for a while; then they do, or fail."""
        self.cluster.disks[host].hang(duration_ms, fails=bool(fails))
        return self._say("hung sync", host, duration_ms=duration_ms, fails=bool(fails))

    def _troubled(self) -> list[str]:
        moods = {host: self.cluster.disks[host].mood for host in self.cluster.controller_hosts}
        return [h for h, mood in moods.items() if mood.failing or mood.full or mood.unreadable]

    def _full(self) -> list[str]:
        hosts = self.cluster.controller_hosts
        return [host for host in hosts if self.cluster.disks[host].mood.full]

    def break_disk(self, host: str) -> bool:
        """Every write fails; of one controller at a time."""
        if self._troubled():
            return False
        self.cluster.disks[host].mood.failing = True
        return self._say("breaks the disk", host)

    def fill(self, host: str) -> bool:
        """Nothing more can be written; two at a time, for a full disk has lost nothing."""
        full = self._full()
        if host in full or self._troubled() != full or len(full) >= FULL_MAX:
            return False
        self.cluster.disks[host].mood.full = True
        self.cluster.counts["two disks full"] += len(full) + 1 == FULL_MAX
        return self._say("fills the disk", host)

    def make_unreadable(self, host: str) -> bool:
        """Every read fails; a node that starts meanwhile takes its store for lost."""
        if self._troubled() or not self._may_damage(host):
            return False
        self.cluster.disks[host].mood.unreadable = True
        return self._say("makes the disk unreadable", host)

    def draw_mend(self) -> Args | None:
        """Any trouble at all."""
        return tuple(self._troubled()) or None

    def mend(self, *hosts: str) -> bool:
        """Errors and full disks are gone."""
        for host in hosts:
            self.cluster.disks[host].mend()
            self._say("mends the disk", host)
        return True

    # -- what is lost ------------------------------------------------------------------------

    def _may_damage(self, host: str) -> bool:
        """Whether the group can bear it: fewer than half are damaged until they caught up.

        A group whose first leader is still to come has nothing to catch up with. A founder may have
        forgotten its part in it with no fault of its disk: it does not vote either.
        """
        if not self.cluster.counts["leader elected"]:
            return False
        unreadable = {h for h, disk in self.cluster.disks.items() if disk.mood.unreadable}
        damaged = self.cluster.damaged | self.cluster.voteless | unreadable | {host}
        return len(damaged) <= (len(self.cluster.controller_hosts) - 1) // 2

    def _can_rot(self, host: str) -> dict[str, int]:
        """Plain files of a store, and how many bytes of each are not zeros written ahead.

        Without segments of format 1, in which damage at the end cannot be told from a torn frame.
        """
        files = self.cluster.disks[host].files
        return {
            path: len(file.durable.rstrip(b"\0"))
            for path, file in sorted(files.items())
            if path.startswith(STORE) and isinstance(file, SimFile) and file.durable.strip(b"\0")
            if magic_of(file.durable) != WAL_MAGIC_1
        }

    def draw_flip(self) -> Args | None:
        """A bit of the log's end, of any segment, or of a snapshot."""
        (host,) = self.a_controller()
        files = self._can_rot(str(host))
        if not files or not self._may_damage(str(host)):
            return None
        logs = [path for path in files if path.endswith(".wal")]
        path = self.rng.choice(list(files))
        first = 0
        if logs and self.rng.random() < 0.6:
            path = logs[-1]
            first = max(0, files[path] - 120)
        byte = self.rng.randrange(first, files[path])
        return (str(host), path, byte * 8 + self.rng.randrange(8))

    def flip(self, host: str, path: str, bit: int) -> bool:
        """Bit rot, found at the next start: the process dies with it."""
        size = self._can_rot(host).get(path, 0)
        if bit // 8 >= size or not self._may_damage(host):
            return False
        self.cluster.kill(host)
        self.cluster.damaged.add(host)
        self.cluster.disks[host].flip(path, bit)
        return self._say("flips a bit", host, path=path, bit=bit)

    def draw_wipe(self) -> Args | None:
        """A controller that is down, or is killed for it."""
        args = self.a_controller()
        return args if self._may_damage(str(args[0])) else None

    def wipe(self, host: str) -> bool:
        """An operator empties a store, or puts a new disk in.

        Not one that has only a log of format 1: together with another store that was rewritten,
        which has forgotten whose ids founded the group, a founder that was killed before it heard
        of it would not count either, and more than the group can bear would be lost.
        """
        if not self._may_damage(host) or not self._can_rot(host):
            return False
        self.cluster.kill(host)
        self.cluster.damaged.add(host)
        self.cluster.refused.discard(host)
        self.cluster.disks[host].wipe()
        return self._say("wipes the store", host)

    def other_release(self, host: str) -> bool:
        """A controller is killed, and a voter's log is as the release before this format wrote it."""
        cluster = self.cluster
        if host in cluster.damaged or cluster.disks[host].mood.unreadable:
            return False
        cluster.kill(host)
        voted = to_format_1(cluster.disks[host], STORE)
        cluster.counts["store of format 1"] += voted
        cluster.voteless.add(host)
        return self._say("other release", host, voted=voted)
