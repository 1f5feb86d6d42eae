"""Does a fault to processes, links and disks, and undoes it."""

from __future__ import annotations

import random

from rmqha.chaos.aio.disks import Disks
from rmqha.chaos.aio.flips import flip_bits
from rmqha.chaos.aio.links import Links
from rmqha.chaos.aio.nodes import Nodes
from rmqha.chaos.scenarios import BITS, DELAY_MS, ENDS, JITTER_MS, ON_DISKS, Fault, Kind


class Breaker:
    """One fault at a time; calls wait for what they start, so they belong in a thread.

    Args:
        nodes: whose processes.
        hosts: whose links.
        disks: whose file systems; None where no scenario is about them.

    Attributes:
        flipped: bits so far; nobody but brokers can mend them.
    """

    def __init__(self, nodes: Nodes, hosts: Links, disks: Disks | None) -> None:
        self._nodes, self._hosts, self._disks = nodes, hosts, disks
        self.flipped = 0

    def cut_links(self, fault: Fault) -> None:
        """Do that part of a fault that is about links."""
        if fault.links:
            self._hosts.apply(fault)

    def inject(self, fault: Fault) -> None:
        """Do all of it."""
        self.cut_links(fault)
        # All processes first: machines that lose power together stop together.
        for name in fault.hosts:
            if fault.kind in ENDS:
                self._nodes.children[name].kill()
            elif fault.kind is Kind.HANG:
                self._nodes.children[name].stop()
        rng = random.Random(fault.seed)
        for name in fault.hosts:
            match fault.kind:
                case Kind.DELAY:
                    self._hosts.delay(name, DELAY_MS, JITTER_MS, fault.seed)
                case Kind.CLOCK_JUMP:
                    self._nodes.move_clock(name, fault.jump_s)
                case Kind.FLIPPED_BITS:
                    self.flipped += len(flip_bits(self._nodes.commit_log(name), rng, BITS))
                case kind if kind in ON_DISKS:
                    self._break_disk(kind, name)
                case _:
                    pass

    def heal(self, fault: Fault) -> None:
        """Undo all of it; processes that were killed are started, and not waited for."""
        for name in fault.hosts:
            match fault.kind:
                case Kind.DELAY:
                    self._hosts.restore(name)
                case Kind.CLOCK_JUMP:
                    self._nodes.move_clock(name, 0)
                case kind if kind in ON_DISKS:
                    self._mend_disk(kind, name)
                case _:
                    pass
            child = self._nodes.children[name]
            # Who ended by itself is started as well, for the cell to go on: it is told in the end.
            if fault.kind in ENDS or not child.alive:
                child.start()
            elif fault.kind is Kind.HANG:
                child.cont()
        if fault.links:
            self._hosts.apply(None)

    def _break_disk(self, kind: Kind, name: str) -> None:
        disks, folder = self._disks, self._nodes.disk(name)
        if disks is None:
            raise ValueError(f"{kind} needs file systems of their own")
        match kind:
            case Kind.POWER_CUT:
                disks.cut(folder)
            case Kind.FULL_DISK:
                self._nodes.children[name].is_full = True
                disks.fill(folder)
            case Kind.SLOW_DISK:
                disks.slow(folder, on=True)
            case _:
                disks.freeze(folder, on=True)

    def _mend_disk(self, kind: Kind, name: str) -> None:
        disks, folder = self._disks, self._nodes.disk(name)
        if disks is None:
            raise ValueError(f"{kind} needs file systems of their own")
        match kind:
            case Kind.POWER_CUT:
                disks.restore(folder)
            case Kind.FULL_DISK:
                disks.empty(folder)
            case Kind.SLOW_DISK:
                disks.slow(folder, on=False)
            case _:
                disks.freeze(folder, on=False)
