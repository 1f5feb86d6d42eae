"""How two controllers meet on a connection: who they are, and proof that both know the secret.

The one who dials says hello; both messages are bodies of RAFT_HELLO frames, msgpack lists::

    dialler -> listener   [version, group, node, challenge]
    listener -> dialler   [challenge, proof of the listener]        (empty without a secret)
    dialler -> listener   [version, group, node, b"", proof]        (only with a secret)

A dialler whose log has changed the group adds where it listens, ``[.., proof or b"", address]``: who
lags behind may not know it yet, and has to answer it.

A proof is an HMAC-SHA256 under ``raftSecret`` of a word for the direction, the group, both node
ids and both challenges, so that it proves nothing on another connection, to another node, or sent
back to who made it. Each side proves by the secret that is its own, and believes by all that it
accepts (``base/proofs.py``). Where proof is optional a dialler is believed at its first hello, and asked
for proof all the same; one that has the secret gives it before it says anything else. What follows on
the connection is not signed: whoever can write into it needs TLS to be kept out.
"""

from __future__ import annotations

import hmac

import msgpack
from msgspec import Struct
from msgspec.structs import replace

from rmqha.base.errors import RemoteProtocolError
from rmqha.base.proofs import Secrets, is_proof

PROTOCOL_VERSION = 2


class Hello(Struct, frozen=True):
    """What a dialler says.

    Attributes:
        proof: empty the first time.
        address: where it listens, when the log has changed the group; else empty.
    """

    version: int
    group: str
    node: str
    challenge: bytes
    proof: bytes = b""
    address: str = ""


def pack_hello(hello: Hello) -> bytes:
    """The body of a dialler's frame."""
    plain: list[object] = [hello.version, hello.group, hello.node, hello.challenge]
    if hello.address:
        plain += [hello.proof, hello.address]
    elif hello.proof:
        plain.append(hello.proof)
    packed: bytes = msgpack.packb(plain)
    return packed


def unpack_hello(body: bytes) -> Hello:
    """Read a dialler's frame; of another version only that version.

    Raises:
        RemoteProtocolError: it is none.
    """
    match _unpack(body):
        case [int(version), str(group), str(node), *_] if version != PROTOCOL_VERSION:
            return Hello(version, group, node, b"")
        case [int(version), str(group), str(node), bytes(challenge)]:
            return Hello(version, group, node, challenge)
        case [int(version), str(group), str(node), bytes(challenge), bytes(proof)]:
            return Hello(version, group, node, challenge, proof)
        case [
            int(version), str(group), str(node), bytes(challenge), bytes(proof), str(address)
        ]:  # fmt: skip
            return Hello(version, group, node, challenge, proof, address)
        case _:
            raise RemoteProtocolError("the hello cannot be read")


def pack_answer(challenge: bytes, proof: bytes) -> bytes:
    """The body of the listener's answer, with a secret."""
    packed: bytes = msgpack.packb([challenge, proof])
    return packed


def unpack_answer(body: bytes) -> tuple[bytes, bytes]:
    """Challenge and proof of the listener; both empty when it has no secret.

    Raises:
        RemoteProtocolError: it is no answer.
    """
    if not body:
        return b"", b""
    match _unpack(body):
        case [bytes(challenge), bytes(proof)]:
            return challenge, proof
        case _:
            raise RemoteProtocolError("the answer to the hello cannot be read")


class Proofs(Struct, frozen=True):
    """What both sides of one connection prove to each other.

    Attributes:
        secret: by which a proof is made.
        dialled, answered: the challenges of the dialler and of the listener.
    """

    secret: str
    group: str
    dialler: str
    listener: str
    dialled: bytes
    answered: bytes

    def of_listener(self) -> bytes:
        """What the listener sends back."""
        return self._make(b"listener")

    def of_dialler(self) -> bytes:
        """What the dialler sends then."""
        return self._make(b"dialler")

    def prove_listener(self, proof: bytes, secrets: Secrets) -> bool:
        """Whether the listener knows one of the secrets that are accepted."""
        return any(
            is_proof(replace(self, secret=one).of_listener(), proof) for one in secrets.accepted
        )

    def prove_dialler(self, proof: bytes, secrets: Secrets) -> bool:
        """Whether the dialler does."""
        return any(
            is_proof(replace(self, secret=one).of_dialler(), proof) for one in secrets.accepted
        )

    def _make(self, direction: bytes) -> bytes:
        said: bytes = msgpack.packb(
            [direction, self.group, self.dialler, self.listener, self.dialled, self.answered]
        )
        return hmac.digest(self.secret.encode(), said, "sha256")


def _unpack(body: bytes) -> object:
    try:
        value: object = msgpack.unpackb(body)
        return value
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise RemoteProtocolError("the hello cannot be read") from error
