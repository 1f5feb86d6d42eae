"""What goes between the machine and its shell when a master is silent.

Source: our own.
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.controller.metadata.registrations import Identity

NEVER_HEARD = -1


class Probe(Struct, frozen=True):
    """Ask a silent master for any answer at all, by every way that may lead to it.

    Attributes:
        number: comes back in ``ProbeAnswered``.
        identity: (cluster, name, id).
        connections: those that the broker opened to this node.
        address: where it is registered, ``host:port``.
        timeout_ms: an answer after that is of no use.
    """

    number: int
    identity: Identity
    connections: tuple[int, ...]
    address: str
    timeout_ms: int


class AskPeers(Struct, frozen=True):
    """Ask every other voting controller since when it has not heard a broker.

    Attributes:
        number: comes back in ``PeersHeard``.
        identity: (cluster, name, id).
        timeout_ms: who has not answered by then is left out.
    """

    number: int
    identity: Identity
    timeout_ms: int


class ProbeAnswered(Struct, frozen=True):
    """The broker has answered, whatever it said."""

    number: int


class PeerReport(Struct, frozen=True):
    """What one controller knows of a broker.

    Attributes:
        node: its id.
        silent_ms: since it heard the broker last; ``NEVER_HEARD`` when it never did.
        promised_ms: for how long it may still have promised the broker to wait.
    """

    node: str
    silent_ms: int
    promised_ms: int


class PeersHeard(Struct, frozen=True):
    """The answers to ``AskPeers``.

    Attributes:
        reports: of those that answered in time; this node is not among them.
        majority: how many nodes, this one counted, are a majority of those that vote.
    """

    number: int
    reports: tuple[PeerReport, ...]
    majority: int
