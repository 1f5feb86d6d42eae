"""What a service of a broker has promised, and what must have come of it.

Whoever sends notes what was acknowledged, and when the first try left; whoever looks at the end has
every message that consumers can read. A message may come more than once, around a failover; none may
be missing, early, or brought back from a transaction that was rolled back.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Container, Iterable, Mapping

from msgspec import Struct, field

from rmqha.base.invariants import invariant

DELAYED, TIMER, COMMITTED = "delayed message", "timer", "committed transaction"


class Promise(Struct, frozen=True):
    """An acknowledged message that is to come.

    Attributes:
        kind: one of the names above.
        not_before_ms: wall clock of all replicas.
    """

    kind: str
    not_before_ms: int


class ServicePromises(Struct):
    """What is known of all messages, by body.

    Attributes:
        promised: acknowledged, under a rule that survives every fault of the story.
        early_ms: before which moment none of these may be stored for consumers, whether or not
            anybody was told that it was taken.
        rolled_back: whoever sent them has decided so, and never anything else.
    """

    promised: dict[bytes, Promise] = field(default_factory=dict)
    early_ms: dict[bytes, int] = field(default_factory=dict)
    rolled_back: set[bytes] = field(default_factory=set)

    def missing(self, found: Iterable[bytes]) -> dict[str, bytes]:
        """One message of each kind that has not come yet."""
        seen = frozenset(found)
        return {one.kind: body for body, one in self.promised.items() if body not in seen}

    def check_late(
        self, found: Container[bytes], peace_ms: int, now_ms: int, late_ms: int
    ) -> None:  # fmt: skip
        """Since a moment nothing disturbs: what is due is there soon.

        Args:
            peace_ms: that moment; this and the others by the wall clock.
            late_ms: how long it may take then.

        Raises:
            InvariantBroken: something is not there.
        """
        for body, one in self.promised.items():
            due_ms = max(peace_ms, one.not_before_ms)
            invariant(
                body in found or now_ms <= due_ms + late_ms, f"a {one.kind} is late",
                body=body, due_ms=due_ms, now_ms=now_ms,
            )  # fmt: skip

    def check(self, found: Mapping[bytes, int]) -> None:
        """Look at what consumers can read.

        Args:
            found: when each message was stored first, by the wall clock.

        Raises:
            InvariantBroken: something is early, or was rolled back.
        """
        for body, stored_ms in found.items():
            invariant(
                body not in self.rolled_back, "a transaction that was rolled back is delivered",
                body=body,
            )  # fmt: skip
            early_ms = self.early_ms.get(body, 0)
            invariant(
                stored_ms >= early_ms, "a message is delivered before its time",
                body=body, stored_ms=stored_ms, not_before_ms=early_ms,
            )  # fmt: skip


class PopReads(Struct):
    """What one reign of one broker has given to a group that pops.

    A failover may repeat. Within a reign a message that was sent in it, given once, and acknowledged
    before its invisible time was over has been consumed.

    Attributes:
        reign: whose it is.
        sent: in this reign.
        given: how often, of these.
        done: given once and acknowledged.
    """

    reign: object = None
    sent: set[bytes] = field(default_factory=set)
    given: Counter[bytes] = field(default_factory=Counter)
    done: set[bytes] = field(default_factory=set)

    def _see(self, reign: object) -> None:
        if reign != self.reign:
            self.reign = reign
            self.sent, self.given, self.done = set(), Counter(), set()

    def was_sent(self, reign: object, body: bytes) -> None:
        """A message was acknowledged to its producer."""
        self._see(reign)
        self.sent.add(body)

    def was_given(self, reign: object, body: bytes) -> None:
        """A pop has got it.

        Raises:
            InvariantBroken: it was consumed already.
        """
        self._see(reign)
        invariant(
            body not in self.done, "a message that was acknowledged is popped again", body=body
        )
        self.given[body] += 1

    def was_acknowledged(self, reign: object, body: bytes) -> bool:
        """The broker has taken its acknowledgement in time; whether it is consumed for certain."""
        self._see(reign)
        if body in self.sent and self.given[body] == 1:
            self.done.add(body)
        return body in self.done


class OrderedReads(Struct):
    """One queue with one writer, whose numbers grow, and a group that consumes it in order.

    Attributes:
        acked: the numbers that were acknowledged.
        read: what the group was given, each number once, in the order in which it came first.
        holders: who holds the queue's lock, by process of the broker.
        unknown: processes that may unlock it for somebody at any time.
    """

    acked: list[int] = field(default_factory=list)
    read: dict[int, None] = field(default_factory=dict)
    holders: dict[tuple[str, int], str] = field(default_factory=dict)
    unknown: set[tuple[str, int]] = field(default_factory=set)

    def locked(self, process: tuple[str, int], client: str) -> None:
        """A broker says that a client holds the queue.

        Raises:
            InvariantBroken: the same process has given it to another one, who holds it still.
        """
        holder = self.holders.setdefault(process, client)
        invariant(
            holder == client or process in self.unknown, "two consumers hold the lock of a queue",
            process=process, holder=holder, client=client,
        )  # fmt: skip

    def unlocking(self, process: tuple[str, int], client: str) -> None:
        """A client gives it back: from here on nobody knows who holds it."""
        if self.holders.get(process) == client:
            del self.holders[process]

    def check(self) -> None:
        """All is read.

        Raises:
            InvariantBroken: the group has passed something over, or has it in another order.
        """
        read = list(self.read)
        for before, after in itertools.pairwise(read):
            invariant(
                before < after, "messages came in another order than they were sent",
                before=before, after=after,
            )  # fmt: skip
        passed = [number for number in self.acked if number not in self.read]
        invariant(not passed, "a group passed over an acknowledged message", passed=passed[:3])
