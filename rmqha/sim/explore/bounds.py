"""How far a walk goes: the size of the group, and how often each kind of thing may happen."""

from __future__ import annotations

from collections.abc import Container

from msgspec import Struct

BOUNDED = (
    "timeout", "propose", "crash", "drop", "duplicate", "heartbeat", "snapshot", "transfer",
    "read", "quorum_lost", "reset", "ask", "wipe", "damage", "full", "hung",
)  # fmt: skip
"""Moves with a budget, in the order of ``Bounds.budgets``."""

FREE = (
    "deliver", "persist", "restart", "snapshot_saved", "install_saved", "installed", "space",
)  # fmt: skip
"""Moves that follow from others, as often as they are possible."""

NEEDS_TWO = {"deliver", "drop", "duplicate", "transfer", "reset", "install_saved", "installed",
             "quorum_lost", "wipe", "damage", "hung"}  # fmt: skip
"""Moves that a node alone cannot make."""


class Bounds(Struct, frozen=True):
    """The space to walk; every number is a total over the whole group.

    Attributes:
        nodes: members of the group.
        elections: election timeouts that pass.
        proposals: records proposed to whoever leads.
        crashes: power cuts; a node comes back with what is durable on its disk.
        losses, duplicates: messages that are dropped, or delivered and kept.
        heartbeats: rounds that a leader opens because time passes.
        snapshots: snapshots that nodes begin to take.
        transfers: leadership transfers asked for.
        reads: linearizable reads asked of whoever leads.
        quorum_losses: leaders that find that nobody has answered for too long.
        resets: connections between two nodes that are reset: what is on its way is lost.
        asks: rounds of questions that a new store begins because time passes.
        wipes: nodes whose disk is replaced by an empty one; who was running loses power.
        damages: stores that are found damaged, so that the node starts with an empty one that
            knows that it has lost something.
        full: writes that find a disk full; there is space again whenever it comes.
        hangs: leaders whose oldest write has been under way for too long.
        reorder: messages of one link may overtake each other; TCP does not let them.
        start: where to begin: ``new`` (all stores are empty, and no group is founded), ``fresh``
            (a group whose members have done nothing), ``led`` (the first node leads, everything is
            settled and told) or ``behind`` (as ``led``, and the last of three or more nodes lacks
            a committed record that the leader only has in its snapshot any more).
        entries_per_request: the most entries of one AppendRequest.
        symmetry: states that differ by the names of nodes only count once. Names matter in one
            place of the core (who gives way when two ask for pre-votes with equal logs), so this
            leaves out what only such a pair could do; pre-votes bind nobody.
    """

    nodes: int = 3
    elections: int = 1
    proposals: int = 0
    crashes: int = 0
    losses: int = 0
    duplicates: int = 0
    heartbeats: int = 0
    snapshots: int = 0
    transfers: int = 0
    reads: int = 0
    quorum_losses: int = 0
    resets: int = 0
    asks: int = 0
    wipes: int = 0
    damages: int = 0
    full: int = 0
    hangs: int = 0
    reorder: bool = False
    start: str = "fresh"
    entries_per_request: int = 512
    symmetry: bool = False

    @property
    def budgets(self) -> tuple[int, ...]:
        """How often each kind of ``BOUNDED`` may happen."""
        return (
            self.elections, self.proposals, self.crashes, self.losses, self.duplicates,
            self.heartbeats, self.snapshots, self.transfers, self.reads, self.quorum_losses,
            self.resets, self.asks, self.wipes, self.damages,
            self.full, self.hangs,
        )  # fmt: skip

    def missing(self, occurred: Container[str]) -> list[str]:
        """Kinds of moves that are allowed and never occurred: nothing is shown of them."""
        snapshot, full, off = {"snapshot"}, {"full"}, {"crash", "wipe", "damage"}
        needs = {"restart": off, "snapshot_saved": snapshot, "install_saved": snapshot,
                 "installed": snapshot, "space": full}  # fmt: skip
        allowed = {kind for kind, most in zip(BOUNDED, self.budgets, strict=True) if most}
        wanted = allowed | {kind for kind in FREE if kind not in needs or needs[kind] & allowed}
        if self.nodes == 1:
            wanted -= NEEDS_TWO
        return sorted(kind for kind in wanted if kind not in occurred)
