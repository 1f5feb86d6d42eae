"""A failover cluster for tests: controllers, name servers and the replicas of one broker set.

The verbs are synchronous; ``cluster.aio`` has the same as coroutines. The nodes live in this
process (``processes=False``) or each in its own.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self, TypeVar

from rmqha.remoting.bodies import ReplicasInfo
from rmqha.testing.aio_cluster import SETTLE_S, TOPIC, AioCluster, Target
from rmqha.testing.client import Acked, SetInfo
from rmqha.testing.logs import merged_tail
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.nodes import Node
from rmqha.testing.real.wire import Stored
from rmqha.testing.workload import Ledger, Workload

T = TypeVar("T")
START_TIMEOUT_S = 30.0
TIMEOUT_S = 30.0


def make_certificates(folder: Path) -> dict[str, str]:
    """An authority and a certificate for everybody; the keys that name them."""
    from rmqha.testing.certificates import Authority, tls_properties

    directory = folder / "certificates"
    directory.mkdir(parents=True)
    return tls_properties(Authority(directory), "node", mutual=True)


class RmqCluster:
    """One broker set under failover control. Use it as a context manager, or start and close it.

    Args:
        folder: for stores and logs; made if it is missing.
        controllers, replicas, namesrv: how many.
        processes: each node in a process of its own, for real kills and SIGSTOP.
        seed: of every random choice of the nodes of this process, and of :attr:`rng`.
        controller_settings, namesrv_settings, broker_settings: Java property keys; they win over
            the fast values of ``rmqha.testing.settings``.
        tls: every port speaks TLS alone and asks for certificates, which the cluster makes; they
            lie in ``folder/certificates``.
        history: a file that takes everything its client sends and reads, for
            ``bin/pipeline history-check``.

    Attributes:
        controllers, name_servers, brokers: the nodes, by their numbers.
        tls_keys: the ``tls.*`` keys of all nodes and of its client; none without ``tls``.
        rng: for the test's own choices, from the same seed.
    """

    def __init__(
        self,
        folder: Path,
        *,
        controllers: int = 3,
        replicas: int = 3,
        namesrv: int = 1,
        processes: bool = False,
        seed: int = 0,
        controller_settings: Mapping[str, object] | None = None,
        namesrv_settings: Mapping[str, object] | None = None,
        broker_settings: Mapping[str, object] | None = None,
        tls: bool = False,
        history: Path | None = None,
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.rng = random.Random(seed)
        self.processes = processes
        self._thread = LoopThread("rmqha cluster")
        self._is_closed = False
        self.tls_keys = make_certificates(folder) if tls else {}
        try:
            self._core = self._thread.call(
                AioCluster.make(
                    folder,
                    counts=(controllers, namesrv, replicas),
                    processes=processes,
                    seed=seed,
                    settings=(
                        controller_settings or {},
                        namesrv_settings or {},
                        broker_settings or {},
                    ),
                    tls=self.tls_keys,
                    history=history,
                )
            )
        except BaseException:
            self._thread.close()
            raise
        self.aio = AioVerbs(self._core, self._thread.loop)

    @property
    def controllers(self) -> list[Node]:
        """All controllers, whether or not they run."""
        return self._core.of_kind("controller")

    @property
    def name_servers(self) -> list[Node]:
        """All name servers."""
        return self._core.of_kind("namesrv")

    @property
    def brokers(self) -> list[Node]:
        """All replicas, whether or not they run."""
        return self._core.of_kind("broker")

    @property
    def nodes(self) -> list[Node]:
        """Everybody, in the order of their start."""
        return list(self._core.nodes.values())

    @property
    def namesrv_addr(self) -> str:
        """What a RocketMQ client is configured with: ``host:port;host:port``."""
        return ";".join(node.address for node in self.name_servers)

    @property
    def controller_addr(self) -> str:
        """What a further broker or mqadmin is given."""
        return ";".join(node.address for node in self.controllers)

    @property
    def acked(self) -> list[Acked]:
        """Every message that was acknowledged so far, in that order."""
        return list(self._core.client.acked)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- life --------------------------------------------------------------------------------

    def start(self, timeout_s: float = START_TIMEOUT_S) -> Self:
        """Start everything; returns when all replicas are in sync and clients find the master.

        Raises:
            NodeFailed: a node did not start.
            NotYet: the cluster did not form in time.
        """
        self._call(self._core.start(timeout_s))
        return self

    def close(self) -> None:
        """End every node and give everything back; the files stay."""
        if self._is_closed:
            return
        self._is_closed = True
        try:
            self._thread.call(self._core.close())
        finally:
            self._thread.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        return self._thread.call(work)

    # -- breaking ----------------------------------------------------------------------------

    def kill(self, node: Target) -> Node:
        """End a node as ``kill -9`` does; its files stay as they are."""
        return self._call(self._core.kill(node))

    def shut_down(self, node: Target) -> Node:
        """End a node in order, as SIGTERM does."""
        return self._call(self._core.shut_down(node))

    def restart(self, node: Target) -> Node:
        """Start a node that has ended, on its files and ports."""
        return self._call(self._core.restart(node))

    def stop(self, node: Target) -> Node:
        """Let a node hang, as SIGSTOP does: its connections stay open, it does nothing."""
        return self._call(self._core.stop(node))

    def cont(self, node: Target) -> Node:
        """Let a stopped node go on, as SIGCONT does."""
        return self._call(self._core.cont(node))

    def partition(self, a: Target | Sequence[Target], b: Target | Sequence[Target]) -> None:
        """Let nothing pass between two nodes, or two groups of nodes; ``"client"`` is this one.

        Nothing is refused and nothing arrives, in either direction, until :meth:`heal`.
        """
        self._call(self._core.partition(a, b))

    def isolate(self, node: Target) -> None:
        """Cut a node off from everybody, the client too."""
        self._call(self._core.isolate(node))

    def slow_disk(self, node: Target, delay_ms: float = 100.0) -> Node:
        """Let everything that must reach a node's disk take so much longer; 0 ends that."""
        return self._call(self._core.slow_disk(node, delay_ms))

    def heal(self, *, restart: bool = True, timeout_s: float = TIMEOUT_S) -> None:
        """Mend links and disks, let stopped nodes go on, start dead ones; wait until all is well.

        Args:
            restart: start dead nodes; without it they stay dead and nothing is waited for.
            timeout_s: for everybody to be in sync.

        Raises:
            NotYet: the cluster is not well in time.
        """
        self._call(self._core.heal(restart=restart, timeout_s=timeout_s))

    # -- looking -----------------------------------------------------------------------------

    def node(self, name: Target) -> Node:
        """A node by its name.

        Raises:
            KeyError: there is none; the names are in the message.
        """
        return self._core.node(name)

    def master(self) -> Node | None:
        """The master that clients find at this moment."""
        return self._call(self._core.master())

    def leader(self) -> Node | None:
        """The controller that leads at this moment."""
        return self._call(self._core.leader())

    def set_info(self) -> SetInfo | None:
        """Master, epoch and SyncStateSet by the controllers' word."""
        return self._call(self._core.client.set_info())

    def replicas(self) -> ReplicasInfo | None:
        """Every replica by the controllers' word: address, in sync or not, alive or not."""
        return self._call(self._core.replicas())

    def wait_for_master(
        self, *, other_than: Target | None = None, timeout_s: float = TIMEOUT_S
    ) -> Node:
        """Wait until clients find a living master.

        Args:
            other_than: not this one; by default any but a node that is dead, stopped or cut off
                counts.
            timeout_s: how long.

        Raises:
            NotYet: nobody became master.
        """
        return self._call(self._core.wait_for_master(other_than, timeout_s))

    def wait_for_leader(self, timeout_s: float = TIMEOUT_S) -> Node:
        """Wait until a controller leads.

        Raises:
            NotYet: nobody does.
        """
        return self._call(self._core.wait_for_leader(timeout_s))

    def wait_in_sync(self, count: int | None = None, timeout_s: float = TIMEOUT_S) -> SetInfo:
        """Wait until there is a master and the SyncStateSet has ``count`` members.

        Args:
            count: by default every broker that is alive and not stopped.
            timeout_s: how long.

        Raises:
            NotYet: they do not come together.
        """
        return self._call(self._core.wait_in_sync(count, timeout_s))

    # -- messages ----------------------------------------------------------------------------

    def produce(
        self,
        messages: int | bytes | Iterable[bytes] = 1,
        *,
        topic: str = TOPIC,
        in_flight: int = 1,
        timeout_s: float = TIMEOUT_S,
    ) -> list[Acked]:
        """Send messages, each until it is acknowledged, by whichever master clients find.

        Args:
            messages: bodies, one body, or how many bodies to make up.
            topic: is created when it is missing.
            in_flight: sends at a time; with one the order is kept.
            timeout_s: for all of them.

        Returns:
            Where each was stored, in the order of the bodies.

        Raises:
            NotYet: some were not acknowledged in time; the last refusal is in the message.
        """
        return self._call(self._core.produce(messages, topic, in_flight, timeout_s))

    def consume(
        self, topic: str = TOPIC, *, settle_s: float = SETTLE_S, timeout_s: float = TIMEOUT_S
    ) -> list[Stored]:
        """Read a whole topic back from the master, queue by queue.

        Consume queues trail the log by a moment: what :meth:`produce` was told is safe is waited
        for, at most ``settle_s``; then what is there is returned.

        Raises:
            NotYet: there is no master to read from within ``timeout_s``.
        """
        return self._call(self._core.consume(topic, settle_s, timeout_s))

    def missing(self, topic: str = TOPIC, *, timeout_s: float = TIMEOUT_S) -> list[Acked]:
        """Acknowledged messages of a topic that cannot be read back where they were said to be.

        Reads until nothing is missing or ``timeout_s`` has passed.
        """
        return self._call(self._core.missing(topic, timeout_s))

    def assert_nothing_lost(self, topic: str = TOPIC, *, timeout_s: float = 10.0) -> None:
        """Fail when an acknowledged message cannot be read back.

        Raises:
            AssertionError: names the first that are missing; or nothing was ever acknowledged.
        """
        acked = [one for one in self.acked if one.topic == topic]
        assert acked, f"nothing was ever acknowledged in {topic}"
        lost = self.missing(topic, timeout_s=timeout_s)
        assert not lost, f"{len(lost)} of {len(acked)} acknowledged messages lost: {lost[:3]}"

    def workload(self, topic: str = TOPIC, *, pause_ms: float = 1.0) -> RunningWorkload:
        """A producer and a consumer that go on while the cluster is broken and mended.

        Args:
            topic: theirs alone.
            pause_ms: between an acknowledgement and the next send.
        """
        return RunningWorkload(self._call(self._core.workload(topic, pause_ms)), self._thread)

    # -- telling -----------------------------------------------------------------------------

    def logs(self, lines: int = 200) -> str:
        """The last lines of all nodes, by time."""
        return merged_tail({node.name: node.log for node in self.nodes}, lines)

    def report(self, lines: int = 200) -> str:
        """What a failed test shows: how to run it again, who is in which state, and the logs."""
        kind = "processes" if self.processes else "in process"
        states = "\n".join(f"  {node!r} {node.failure}".rstrip() for node in self.nodes)
        return (
            f"seed {self.seed} ({kind}); run it again with --rmq-seed={self.seed}\n"
            f"files: {self.folder}\n{states}\n{self.logs(lines)}"
        )


class RunningWorkload:
    """A workload, seen from the test's thread. Figures may be read at any time.

    Attributes:
        ledger: what was sent, acknowledged, read, read twice and lost so far.
    """

    def __init__(self, workload: Workload, thread: LoopThread) -> None:
        self._workload = workload
        self._thread = thread
        self.ledger = workload.ledger

    def stop(self, drain_s: float = TIMEOUT_S) -> Ledger:
        """Stop sending, read what was acknowledged, at most for ``drain_s``, and stop reading."""
        self._thread.call(self._workload.stop(drain_s))
        return self.ledger

    def first_ack_after(self, moment_ms: int, *, not_by: str = "") -> Acked | None:
        """The first message sent after a moment of the clock that another than ``not_by`` took."""
        return self._workload.first_ack_after(moment_ms, not_by)

    def now_ms(self) -> int:
        """The clock of the workload's times."""
        return self._workload.now_ms()

    def wait_for_acks(self, more: int, timeout_s: float = TIMEOUT_S) -> None:
        """Wait until so many more are acknowledged.

        Raises:
            NotYet: they were not.
        """
        self._thread.call(self._workload.wait_for_acks(more, timeout_s))


class AioVerbs:
    """The verbs of :class:`RmqCluster` as coroutines, for tests with an event loop of their own."""

    def __init__(self, core: AioCluster, loop: asyncio.AbstractEventLoop) -> None:
        self._core = core
        self._loop = loop

    def __getattr__(self, verb: str) -> Callable[..., Any]:
        """``await cluster.aio.kill(node)`` and so on: the arguments are those of ``AioCluster``."""
        made = getattr(self._core, verb)

        async def call(*args: Any, **more: Any) -> Any:
            future = asyncio.run_coroutine_threadsafe(made(*args, **more), self._loop)
            return await asyncio.wrap_future(future)

        return call
