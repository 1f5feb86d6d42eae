"""What a client shows to be let in: TLS, and a user's signature."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct, field


class Access(Struct, frozen=True):
    """How a cluster with closed doors is spoken to; nothing of it for an open one.

    Attributes:
        tls: Java's ``tls.*`` keys; none for plain connections.
        access_key, secret_key: of the user who signs; empty for nobody.
    """

    tls: Mapping[str, str] = field(default_factory=dict)
    access_key: str = ""
    secret_key: str = ""
