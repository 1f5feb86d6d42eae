"""Signatures, against values that AclClientRPCHook of real Java makes."""

from __future__ import annotations

import hashlib
import hmac
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.auth.signature import (
    VERSION_4_9_3,
    Credentials,
    Key,
    signed_content,
    without_signature,
)
from rmqha.remoting.command import RemotingCommand

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)


def test_content_when_signed_then_values_stand_in_the_order_of_their_names() -> None:
    """Names in capitals come first, and the body last."""
    fields = {"b": "2", "AccessKey": "ann", "a": "1", "Signature": "old", "lo": "4", "l": "3"}
    assert signed_content(fields, b"body") == b"ann1234body"


def test_content_when_an_old_client_asks_by_unique_key_then_that_is_not_signed() -> None:
    """Clients up to 4.9.3 add it behind their signature."""
    fields = {"AccessKey": "ann", "_UNIQUE_KEY_QUERY": "true", "topic": "t"}
    assert signed_content(fields, b"", VERSION_4_9_3) == b"annt"
    assert signed_content(fields, b"", VERSION_4_9_3 + 1) == b"anntruet"


@pytest.mark.parametrize("length", [1, 63, 64, 65, 1024])
def test_signature_when_the_password_is_long_then_it_is_hashed_first(length: int) -> None:
    """Longer than a block of SHA-1, as HMAC has it; a user's password may have 1024 characters."""
    secret = ("a password of any length, " * 50)[:length]
    plain = hmac.new(secret.encode(), b"content", hashlib.sha1).digest()
    assert Key(secret).signature(b"content") == b64encode(plain).decode()


def test_fields_when_they_are_passed_on_then_without_who_has_signed() -> None:
    """The request itself keeps them: its fields may be those of others that come again."""
    fields = {"a": "1", "AccessKey": "ann", "Signature": "x", "SecurityToken": "t"}
    assert without_signature(fields) == {"a": "1"}
    assert len(fields) == 4
    assert without_signature(None) == {}


@given(st.dictionaries(TEXT, TEXT), st.binary(max_size=20), TEXT.filter(bool), TEXT.filter(bool))
def test_signature_when_anything_is_changed_then_it_fits_no_more(
    fields: dict[str, str], body: bytes, name: str, secret: str
) -> None:
    """And it is HMAC-SHA1, in base64."""
    for own in ("AccessKey", "Signature", "SecurityToken"):
        fields.pop(own, None)
    command = RemotingCommand(310, ext_fields=fields, body=body)
    Credentials(name, secret).sign(command)
    signed = command.ext_fields
    assert signed is not None
    content = signed_content(signed, body, command.version)
    plain = hmac.new(secret.encode(), content, hashlib.sha1).digest()
    assert signed["Signature"] == b64encode(plain).decode()
    assert Key(secret).fits(content, signed["Signature"])
    assert not Key(secret).fits(content + b"x", signed["Signature"])
    assert not Key(secret + "x").fits(content, signed["Signature"])
    assert not Key(secret).fits(content, "")
    assert not Key(secret).fits(content, "\ud800")
    before = dict(signed)
    Credentials(name, secret).sign(command)
    assert command.ext_fields == before, "a request that is sent again is signed as before"
