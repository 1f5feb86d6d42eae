"""Who stands on both sides of a Raft node: what its log drives, and who only watches."""

from __future__ import annotations

from collections.abc import Generator
from typing import Protocol

from rmqha.base.ids import Term
from rmqha.base.machine import Note
from rmqha.controller.raft.messages import Entry


class StateMachine(Protocol):
    """What the log drives; every call comes from the event loop and must not wait."""

    def apply(self, entries: tuple[Entry, ...]) -> None:
        """Committed entries, in order."""

    def leader_ready(self, term: Term) -> None:
        """This node leads and its state is the newest."""

    def role_changed(self, role: str, term: Term, leader_id: str | None) -> None:
        """This node's role, or the leader it follows, is another one now."""

    def reads_ready(self, tokens: tuple[int, ...]) -> None:
        """Reads are linearizable for these tokens."""

    def refused(self, records: tuple[bytes, ...], tokens: tuple[int, ...]) -> None:
        """Proposals and reads that this node cannot serve."""

    def check_record(self, record: bytes) -> None:
        """Raise StoreCorrupted when an entry's data could not be applied."""

    def snapshot(self) -> bytes:
        """The whole applied state."""

    def check_snapshot(self, data: bytes) -> Generator[None, None, None]:
        """Raise StoreCorrupted or StoreMismatch when ``restore`` could not load this; in parts."""

    def restore(self, index: int, data: bytes) -> None:
        """Replace the state by a snapshot's."""

    def fatal(self, error: Exception) -> None:
        """This node must stop: its disk failed or a safety rule broke."""


class Observer(Protocol):
    """Watches a node from outside; the simulator checks its safety properties here."""

    def entry_applied(self, node: str, entry: Entry) -> None:
        """The node has applied a committed entry."""

    def role_changed(self, node: str, role: str, term: Term, last_index: int) -> None:
        """The node has another role."""

    def noted(self, node: str, note: Note) -> None:
        """The node's machine left a note."""
