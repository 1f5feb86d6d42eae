"""What a test does with messages, synchronously, whoever started the cluster.

An error that a test is meant to see comes without the frames between the verb and the place that
raised it: the test's own line is what its author wants to read.
"""

from __future__ import annotations

import secrets
from collections.abc import Coroutine, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from rmqha.remoting.topic_names import TOPIC_LENGTH_MAX
from rmqha.testing.client import Acked
from rmqha.testing.ledger import Ledger
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.real.wire import Stored
from rmqha.testing.traffic import SETTLE_S, TIMEOUT_S, AioMessages, Body
from rmqha.testing.workload import Workload

__tracebackhide__ = True  # pytest leaves the frames of this file out of its reports
T = TypeVar("T")
EXPECTED = (AssertionError, KeyError, TypeError, ValueError)
OURS = "rmqha.testing."


def shortened(error: Exception) -> Exception:
    """The error without its frames, if the cluster itself raised it for the test's author to read.

    Whatever else is raised, deeper or by another library, is a fault of the cluster: all of its
    frames stay.
    """
    traceback = error.__traceback__
    while traceback is not None and traceback.tb_next is not None:
        traceback = traceback.tb_next
    if traceback is None or not traceback.tb_frame.f_globals["__name__"].startswith(OURS):
        return error
    return error.with_traceback(None)


def new_topic(name: str) -> str:
    """A name for a topic that no other test has: ``name``, what cannot be in one replaced."""
    kept = "".join(one if one.isascii() and one.isalnum() else "_" for one in name)
    tail = f"_{secrets.token_hex(4)}"
    return kept[: TOPIC_LENGTH_MAX - len(tail)] + tail


class MessageVerbs:
    """Produce, consume and compare. Figures may be read at any time.

    Where no topic is named it is ``TestTopic``; at somebody else's cluster, one that this run alone
    has.
    """

    def __init__(self, core: AioMessages, thread: LoopThread) -> None:
        self.__core = core
        self._thread = thread

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._thread.call(work)
        except EXPECTED as error:
            raise shortened(error) from error.__cause__

    @property
    def acked(self) -> list[Acked]:
        """Every message that was acknowledged so far, in that order."""
        return list(self.__core.client.acked)

    def produce(
        self,
        messages: int | Body | Iterable[Body] = 1,
        *,
        topic: str | None = None,
        in_flight: int = 1,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Acked]:
        """Send messages, each until it is acknowledged, by whichever master clients find.

        Args:
            messages: bodies, one body, or how many bodies to make up.
            topic: is created, with four queues, when it is missing; else it stays as it is.
            in_flight: sends at a time; with one the order is kept.
            timeout_s: for all of them.

        Returns:
            Where each was stored, in the order of the bodies.

        Raises:
            NotYet: one was not acknowledged in time; the last refusal is in the message.
            RefusedForGood: no master would ever take one. Nothing is sent after either.
        """
        return self._call(self.__core.produce(messages, topic, in_flight, timeout_s))

    def consume(
        self, topic: str | None = None, *, settle_s: float = SETTLE_S, timeout_s: float = TIMEOUT_S
    ) -> list[Stored]:
        """Read a whole topic back from the master, queue by queue.

        A topic that nobody made holds nothing: the list is empty, and it is not made.

        Consume queues trail the log by a moment: what :meth:`produce` was told is safe is waited
        for, at most ``settle_s``; then what is there is returned.

        Raises:
            NotYet: there is no master to read from within ``timeout_s``.
        """
        return self._call(self.__core.consume(topic, settle_s, timeout_s))

    def missing(self, topic: str | None = None, *, timeout_s: float = TIMEOUT_S) -> list[Acked]:
        """Acknowledged messages of a topic that cannot be read back where they were said to be.

        Reads until nothing is missing or ``timeout_s`` has passed.
        """
        return self._call(self.__core.missing(topic, timeout_s))

    def assert_nothing_lost(self, topic: str | None = None, *, timeout_s: float = 10.0) -> None:
        """Fail when an acknowledged message cannot be read back.

        Raises:
            AssertionError: names the first that are missing; or nothing was ever acknowledged.
        """
        self._call(self.__core.assert_nothing_lost(topic, timeout_s))

    def workload(self, topic: str | None = None, *, pause_ms: float = 1.0) -> RunningWorkload:
        """A producer and a consumer that go on while the cluster is broken and mended.

        Args:
            topic: theirs alone.
            pause_ms: between an acknowledgement and the next send.
        """
        return RunningWorkload(self._call(self.__core.workload(topic, pause_ms)), self._thread)

    @contextmanager
    def ending_workloads(self) -> Iterator[None]:
        """At the end of the context, end the workloads that were begun in it and still go on.

        Raises:
            Exception: whatever broke one of them, once all have ended.
        """
        before = self.__core.workloads()
        try:
            yield
        finally:
            self._call(self.__core.end_workloads(before))


class SeenWorkload:
    """A workload, seen from another thread than its own. Figures may be read at any time.

    Attributes:
        ledger: what was sent, acknowledged, read, read twice and lost so far.
    """

    def __init__(self, workload: Workload, thread: LoopThread) -> None:
        self._workload = workload
        self._thread = thread
        self.ledger = workload.ledger

    def first_ack_after(self, moment_ms: int, *, not_by: str = "") -> Acked | None:
        """The first message sent after a moment of the clock that another than ``not_by`` took."""
        return self._workload.first_ack_after(moment_ms, not_by)

    def now_ms(self) -> int:
        """The clock of the workload's times."""
        return self._workload.now_ms()


class RunningWorkload(SeenWorkload):
    """A workload, seen from the test's thread."""

    def stop(self, drain_s: float = TIMEOUT_S) -> Ledger:
        """Stop sending, read what was acknowledged, at most for ``drain_s``, and stop reading."""
        self._thread.call(self._workload.stop(drain_s))
        return self.ledger

    def wait_for_acks(self, more: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until so many more are acknowledged.

        Raises:
            NotYet: they were not.
        """
        self._thread.call(self._workload.wait_for_acks(more, timeout_s))
