"""Signatures: that a request comes from who knows a user's password.

A request carries ``AccessKey`` (the user's name) and ``Signature``. What is signed is the values of
all its fields but the signature, in the order of their names, with the body behind them.

Source: AclClientRPCHook and AclSigner of RocketMQ 4.9.8 and 5.3.3, DefaultAuthenticationContextBuilder
of 5.3.3.
"""

from __future__ import annotations

from binascii import b2a_base64
from collections.abc import Mapping
from hashlib import sha1
from hmac import compare_digest

from msgspec import Struct

from rmqha.remoting.command import RemotingCommand

ACCESS_KEY = "AccessKey"
SIGNATURE = "Signature"
SECURITY_TOKEN = "SecurityToken"
_OF_WHO_SIGNS = (ACCESS_KEY, SIGNATURE, SECURITY_TOKEN)
BLOCK_BYTES = 64
"""Of SHA-1."""

UNSIGNED_FIELD = "_UNIQUE_KEY_QUERY"
VERSION_4_9_3 = 399
"""Clients up to this release add the field above behind their signature."""


class Credentials(Struct, frozen=True):
    """What a client or a server signs with."""

    access_key: str
    secret_key: str
    security_token: str = ""

    def sign(self, command: RemotingCommand) -> None:
        """Put name and signature into a request that is complete otherwise."""
        fields = dict(command.ext_fields or {})
        fields[ACCESS_KEY] = self.access_key
        if self.security_token:
            fields[SECURITY_TOKEN] = self.security_token
        fields.pop(SIGNATURE, None)
        content = signed_content(fields, command.body)
        fields[SIGNATURE] = Key(self.secret_key).signature(content)
        command.ext_fields = fields

    def have_signed(self, command: RemotingCommand) -> bool:
        """Whether a request that has come was signed with these."""
        named = (command.ext_fields or {}).get(ACCESS_KEY)
        return named == self.access_key and Key(self.secret_key).has_signed(command)


def without_signature(fields: Mapping[str, str] | None) -> dict[str, str]:
    """What a request says but for who has signed it: what others may be passed on.

    A signature covers no names and no code, so whoever is given one can ask for other things with it.
    """
    return {} if fields is None else {k: v for k, v in fields.items() if k not in _OF_WHO_SIGNS}


def signed_content(fields: Mapping[str, str], body: bytes, version: int | None = None) -> bytes:
    """What is signed.

    Args:
        version: of the client, when the fields are as they came; None while they are made.
    """
    left_out = UNSIGNED_FIELD if version is not None and version <= VERSION_4_9_3 else SIGNATURE
    text = "".join(
        [fields[name] for name in sorted(fields) if name not in (SIGNATURE, left_out)]
    ).encode()
    return text + body if body else text


class Key:
    """A password, ready to sign with: HMAC-SHA1, in base64.

    Both hashes of the HMAC have taken the password already; ``hmac`` itself takes half as long again.
    """

    __slots__ = ("_inner", "_outer")

    def __init__(self, secret_key: str) -> None:
        key = secret_key.encode()
        if len(key) > BLOCK_BYTES:
            key = sha1(key, usedforsecurity=False).digest()
        key = key.ljust(BLOCK_BYTES, b"\0")
        self._inner = sha1(key.translate(_INNER), usedforsecurity=False)
        self._outer = sha1(key.translate(_OUTER), usedforsecurity=False)

    def signature(self, content: bytes) -> str:
        """The signature of some content."""
        inner = self._inner.copy()
        inner.update(content)
        outer = self._outer.copy()
        outer.update(inner.digest())
        return b2a_base64(outer.digest(), newline=False).decode()

    def has_signed(self, command: RemotingCommand) -> bool:
        """Whether a request that has come was signed with it."""
        fields = command.ext_fields or {}
        content = signed_content(fields, command.body, command.version)
        return self.fits(content, fields.get(SIGNATURE) or "")

    def fits(self, content: bytes, signature: str) -> bool:
        """Whether a signature is that of a content, in a time that does not say how nearly."""
        try:
            return compare_digest(self.signature(content), signature)
        except TypeError:  # not ASCII
            return False


_INNER = bytes(byte ^ 0x36 for byte in range(256))
_OUTER = bytes(byte ^ 0x5C for byte in range(256))
