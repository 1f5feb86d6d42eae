"""What replicas prove to each other before anything else is said, when they share ``haSecret``.

Java's replication lets anybody in: whoever presents a broker id reads the log, and is believed when
it acknowledges. With a secret both ends show that they know it, once a connection::

    slave  -> master   magic, challenge                       24 bytes
    master -> slave    challenge, proof of the master         48 bytes
    slave  -> master   proof of the slave                     32 bytes, then RIP-44's protocol

A proof is an HMAC-SHA256 under the secret of a word for the direction, the broker set's name and both
challenges, so that it proves nothing on another connection, for another set, or sent back to who made
it. Each end proves by the secret that is its own, and believes by all that it accepts. Where proof is
optional a master takes a slave that begins with RIP-44's protocol for one without a secret. What
follows is not signed: whoever can write into a connection needs TLS to be kept out.
"""

from __future__ import annotations

import hmac

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.proofs import CHALLENGE_BYTES, Secrets, is_proof

MAGIC = b"\x7frmqhaHA"
"""A slave of RIP-44 begins with three zeros."""
PROOF_BYTES = 32


class _Half:
    """One end of a proof: bytes in, bytes out.

    Attributes:
        is_done: replication may begin.
        is_proven: both ends have proven themselves.
        heard: the other end has said anything.
        rest: what came behind the proof; it belongs to replication.
    """

    def __init__(self, secrets: Secrets, broker_name: str, challenge: bytes) -> None:
        self._secrets = secrets
        self._name = broker_name.encode()
        self._challenge = challenge
        self._buffer = b""
        self.is_done = self.is_proven = self.heard = False

    @property
    def rest(self) -> bytes:
        """What came behind the proof."""
        return self._buffer

    def _take(self, size: int) -> bytes | None:
        if len(self._buffer) < size:
            return None
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken

    def _more(self, data: bytes) -> None:
        self.heard = self.heard or bool(data)
        self._buffer += data

    def _proven(self) -> None:
        self.is_done = self.is_proven = True

    def _own_proof(self, direction: bytes, slaves: bytes, masters: bytes) -> bytes:
        return self._proof(self._secrets.own, direction, slaves, masters)

    def _believes(self, proof: bytes, direction: bytes, slaves: bytes, masters: bytes) -> bool:
        return any(
            is_proof(self._proof(secret, direction, slaves, masters), proof)
            for secret in self._secrets.accepted
        )

    def _proof(self, secret: str, direction: bytes, slaves: bytes, masters: bytes) -> bytes:
        said = direction + len(self._name).to_bytes(4, "big") + self._name + slaves + masters
        return hmac.digest(secret.encode(), said, "sha256")


class MasterProof(_Half):
    """The end that listens.

    Args:
        secrets: ``haSecret``, and what goes with it.
        broker_name: of the set.
        challenge: bytes that were never used before.
    """

    def __init__(self, secrets: Secrets, broker_name: str, challenge: bytes) -> None:
        super().__init__(secrets, broker_name, challenge)
        self._slaves: bytes | None = None

    def feed(self, data: bytes) -> bytes:
        """Take what the slave sent; returns what it is answered.

        Raises:
            RemoteProtocolError: it has no secret, or another one.
        """
        self._more(data)
        answer = b""
        if self._slaves is None:
            if self._secrets.is_optional and self._buffer[:1] not in (b"", MAGIC[:1]):
                self.is_done = True
                return answer
            if not MAGIC.startswith(self._buffer[: len(MAGIC)]):
                raise RemoteProtocolError("the slave proves nothing: it has no haSecret")
            call = self._take(len(MAGIC) + CHALLENGE_BYTES)
            if call is None:
                return answer
            self._slaves = call[len(MAGIC) :]
            answer = self._challenge + self._own_proof(b"master", self._slaves, self._challenge)
        proof = None if self.is_done else self._take(PROOF_BYTES)
        if proof is not None:
            if not self._believes(proof, b"slave", self._slaves, self._challenge):
                raise RemoteProtocolError("the slave has another haSecret, or is of another set")
            self._proven()
        return answer


class SlaveProof(_Half):
    """The end that dials; the arguments are those of :class:`MasterProof`."""

    def begin(self) -> bytes:
        """What is sent first."""
        return MAGIC + self._challenge

    def feed(self, data: bytes) -> bytes:
        """Take what the master sent; returns what it is answered.

        Raises:
            RemoteProtocolError: it has another secret.
        """
        self._more(data)
        said = None if self.is_done else self._take(CHALLENGE_BYTES + PROOF_BYTES)
        if said is None:
            return b""
        masters, proof = said[:CHALLENGE_BYTES], said[CHALLENGE_BYTES:]
        if not self._believes(proof, b"master", self._challenge, masters):
            raise RemoteProtocolError("the master has another haSecret, or is of another set")
        self._proven()
        return self._own_proof(b"slave", self._challenge, masters)
