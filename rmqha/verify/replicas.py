"""One log, one state: nodes that have applied the same entries hold the same bytes."""

from __future__ import annotations

import hashlib

from rmqha.base.invariants import invariant


class StateWatch:
    """Compares digests of the applied state, by log index."""

    def __init__(self) -> None:
        self._digests: dict[int, tuple[str, bytes]] = {}

    def applied(self, node: str, index: int, state: bytes) -> None:
        """A node's whole state after it applied ``index``.

        Raises:
            InvariantBroken: another node had another state there.
        """
        digest = hashlib.blake2b(state, digest_size=16).digest()
        first, known = self._digests.setdefault(index, (node, digest))
        invariant(
            known == digest,
            "two nodes applied the same entries and differ",
            index=index,
            first=first,
            second=node,
        )
