"""What an administrator was told of a topic or a group is so, whoever reigns.

One administrator at a time changes one name, so what it may be is known at any moment: what the last
acknowledged change made of it, or what the change that is under way would. A topic that is deleted
and made again begins a new life: nothing of an earlier one is in its queues, and no group has an
offset beyond what was committed in this one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from msgspec import Struct, field

from rmqha.base.invariants import invariant

State = tuple[int, ...] | None
"""What a topic or group is: its numbers; None when there is none."""


class NameLife(Struct):
    """What is known of one name.

    Attributes:
        known: what the last acknowledged change has made of it.
        wanted: what changes since then would, whose answers are out or were lost.
        life: counts acknowledged deletions.
    """

    known: State = None
    wanted: list[State] = field(default_factory=list)
    life: int = 0

    def asked(self, state: State) -> None:
        """A change is sent."""
        self.wanted.append(state)

    def acknowledged(self, state: State) -> None:
        """A change was acknowledged; those before it cannot come after it any more."""
        if state is None and self.known is not None:
            self.life += 1
        self.known, self.wanted = state, []

    def check(self, name: str, found: State, master: str, late: Iterable[State] = ()) -> None:
        """A master has taken up its role, and has this.

        Args:
            late: what requests want whose answers were given up, but which may still arrive.

        Raises:
            InvariantBroken: nobody made it so, or what was acknowledged is gone.
        """
        invariant(
            found == self.known or found in self.wanted or found in late,
            "a master does not have what an administrator was told",
            name=name, master=master, found=found, known=self.known, wanted=self.wanted,
        )  # fmt: skip


class Written(Struct, frozen=True):
    """An acknowledged message of one life of a topic."""

    life: int
    queue_id: int
    queue_offset: int
    body: bytes


class TopicContents(Struct):
    """The messages of one topic, and how far a group has come.

    Attributes:
        written: acknowledged, of all lives.
        committed: the furthest offset of each queue that was sent to be committed, in this life.
    """

    written: list[Written] = field(default_factory=list)
    committed: dict[int, int] = field(default_factory=dict)

    def check(
        self, topic: str, life: int, queues: Mapping[int, Mapping[int, bytes]],
        offsets: Iterable[tuple[int, int]],
    ) -> None:  # fmt: skip
        """Look at a topic of a master that has taken up its role.

        Args:
            life: of the topic, which exists.
            queues: its messages by queue and queue offset.
            offsets: queue and offset that the group has stored.

        Raises:
            InvariantBroken: an acknowledged message of this life is not where its answer said, one
                of an earlier life is there, or an offset is beyond what was committed.
        """
        for one in self.written:
            found = queues.get(one.queue_id, {})
            if one.life == life:
                invariant(
                    found.get(one.queue_offset) == one.body,
                    "an acknowledged message of a topic is lost", topic=topic, written=one,
                )  # fmt: skip
            else:
                invariant(
                    one.body not in found.values(),
                    "a deleted topic gives out an old message", topic=topic, written=one, life=life,
                )  # fmt: skip
        for queue_id, offset in offsets:
            invariant(
                offset <= self.committed.get(queue_id, 0),
                "a group is further than it ever was",
                topic=topic, life=life, queue_id=queue_id, offset=offset,
            )  # fmt: skip


def check_same(tables: Mapping[str, Mapping[str, object]]) -> None:
    """All replicas have the same log, so their tables are the same.

    Args:
        tables: of each replica: what it has by name.

    Raises:
        InvariantBroken: two differ.
    """
    first, *others = sorted(tables)
    for other in others:
        differing = sorted(
            name for name in {*tables[first], *tables[other]}
            if tables[first].get(name) != tables[other].get(name)
        )  # fmt: skip
        invariant(
            not differing, "replicas with the same log have other tables",
            one=first, other=other, names=differing[:5],
            has=[tables[first].get(name) for name in differing[:2]],
            other_has=[tables[other].get(name) for name in differing[:2]],
        )  # fmt: skip
