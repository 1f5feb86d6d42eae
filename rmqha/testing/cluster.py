"""A failover cluster for tests: controllers, name servers and the replicas of one broker set.

The verbs are synchronous; ``cluster.aio`` has the same as coroutines. The nodes live in this
process (``processes=False``) or each in its own.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from rmqha.remoting.bodies import ReplicasInfo
from rmqha.testing.aio_cluster import AioCluster, Target
from rmqha.testing.aio_verbs import AioVerbs
from rmqha.testing.client import SetInfo
from rmqha.testing.logs import merged_tail, telling_tail
from rmqha.testing.loop_thread import LoopThread
from rmqha.testing.nodes import Node
from rmqha.testing.traffic import TIMEOUT_S
from rmqha.testing.verbs import EXPECTED, MessageVerbs, shortened

__tracebackhide__ = True  # pytest leaves the frames of this file out of its reports
START_TIMEOUT_S = 30.0
LINES_WRITTEN = 100_000


def make_certificates(folder: Path) -> dict[str, str]:
    """An authority and a certificate for everybody, new each time; the keys that name them."""
    from rmqha.testing.certificates import Authority, tls_properties

    directory = folder / "certificates"
    directory.mkdir(parents=True, exist_ok=True)
    return tls_properties(Authority(directory), "node", mutual=True)


class RmqCluster(MessageVerbs):
    """One broker set under failover control. Use it as a context manager, or start and close it.

    Args:
        folder: for stores and logs; made if it is missing.
        controllers, replicas, namesrv: how many.
        processes: each node in a process of its own, for real kills and SIGSTOP.
        seed: of every random choice of the nodes of this process, and of :attr:`rng`.
        controller_settings, namesrv_settings, broker_settings: Java property keys; they win over
            the fast values of ``rmqha.testing.settings``.
        node_settings: the same for single nodes, by name: ``{"broker-1": {"slaveReadEnable": True}}``.
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
        node_settings: Mapping[str, Mapping[str, object]] | None = None,
        tls: bool = False,
        history: Path | None = None,
    ) -> None:
        self.folder = folder
        self.seed = seed
        self.rng = random.Random(seed)
        self.processes = processes
        self._is_closed = False
        self.tls_keys = make_certificates(folder) if tls else {}
        thread = LoopThread("rmqha cluster")
        try:
            self._core = thread.call(
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
                    node_settings=node_settings or {},
                    tls=self.tls_keys,
                    history=history,
                )
            )
        except EXPECTED as error:
            thread.close()
            raise shortened(error) from error.__cause__
        except BaseException:
            thread.close()
            raise
        super().__init__(self._core, thread)
        self.aio = AioVerbs(self._core, self._thread)

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

    def __enter__(self) -> Self:
        try:
            return self.start()
        except BaseException:
            self.close()  # __exit__ is not called for what was never entered
            raise

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

    # -- breaking ----------------------------------------------------------------------------

    def kill(self, node: Target) -> Node:
        """End a node as ``kill -9`` does; its files stay as they are."""
        return self._call(self._core.kill(node))

    def shut_down(self, node: Target) -> Node:
        """End a node in order, as SIGTERM does."""
        return self._call(self._core.shut_down(node))

    def restart(self, node: Target) -> Node:
        """Start a node on its files and ports; one that lives is first ended in order.

        A name server is waited for until it lists the master, if one reigns and can reach it.

        Raises:
            NodeFailed: it did not start.
            NotYet: the name server does not come to know the master.
        """
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
        """Let everything that must reach a node's disk take so much longer; 0 ends that.

        Raises:
            ValueError: a time that cannot be.
        """
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
        """Wait until clients find a living master: every name server that can be asked lists it.

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
        """Wait until clients find a master and the SyncStateSet has ``count`` members.

        Args:
            count: none of them is a broker of this cluster that is dead or stopped; by default the
                members are all brokers that are alive and not stopped, and nobody else.
            timeout_s: how long.

        Raises:
            NotYet: they do not come together.
        """
        return self._call(self._core.wait_in_sync(count, timeout_s))

    # -- telling -----------------------------------------------------------------------------

    def logs(self, lines: int = 200) -> str:
        """The last lines of all nodes, by time."""
        return merged_tail({node.name: node.log for node in self.nodes}, lines)

    def report(self, lines: int = 200, *, all_lines: bool = True) -> str:
        """What a failed test shows: how to run it again, who is in which state, and the logs.

        Args:
            lines: of the logs, at most.
            all_lines: what happened every moment as well, else only what tells a story: changes of
                roles, elections, warnings. All of it is then in a file that the report names.
        """
        kind = "processes" if self.processes else "in process"
        if not self._is_closed:
            self._thread.call(self._core.look())
        states = "\n".join(f"  {node!r} {node.failure}".rstrip() for node in self.nodes)
        head = f"seed {self.seed} ({kind}); run it again with --rmq-seed={self.seed}"
        logs = {node.name: node.log for node in self.nodes}
        if all_lines:
            return f"{head}\nfiles: {self.folder}\n{states}\n{merged_tail(logs, lines)}"
        whole = self.folder / "all.log"
        if self.folder.is_dir():
            whole.write_text(merged_tail(logs, LINES_WRITTEN))
        return f"{head}\nfiles: {self.folder}\n{states}\n{telling_tail(logs, lines)}\nall: {whole}"
