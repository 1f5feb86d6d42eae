"""What proofs of a shared secret have in common, between controllers and between replicas.

A secret comes, changes and goes node by node. Whoever proves something does it by one secret, its own;
whoever checks believes the proof by any that it accepts. So nodes understand each other as long as each
accepts what the other proves by: first all accept the new one, then each proves by it, then the old one
goes. A secret where there was none is first demanded of nobody (``is_optional``).
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import NamedTuple

from rmqha.base.errors import ConfigInvalid

CHALLENGE_BYTES = 16
SECRET_LENGTH_MIN = 16
"""Characters; a shorter one could be found by trying."""


def is_proof(expected: bytes, found: bytes) -> bool:
    """Compare without telling by the time it takes where they differ."""
    return hmac.compare_digest(expected, found)


class Secrets(NamedTuple):
    """What a node proves by, and what it believes.

    Attributes:
        own: proves; empty where nothing is proven and everybody believed.
        also: is accepted as well; empty for none.
        is_optional: who proves nothing is let in; a wrong proof is refused all the same.
    """

    own: str = ""
    also: str = ""
    is_optional: bool = False

    @classmethod
    def of(cls, values: Mapping[str, str], kind: str) -> Secrets:
        """Those of a checked configuration; ``kind`` begins the keys: ``raft`` or ``ha``."""
        is_optional = values[f"{kind}ProofOptional"].lower() == "true"
        return cls(values[f"{kind}Secret"], values[f"{kind}SecretAccepted"], is_optional)

    @property
    def accepted(self) -> tuple[str, ...]:
        """By which others may prove."""
        return tuple(one for one in (self.own, self.also) if one)


NO_SECRETS = Secrets()


def check_secrets(values: Mapping[str, str], kind: str) -> None:
    """Look at a secret and what goes with it; ``kind`` as above.

    Raises:
        ConfigInvalid: a secret is too short, or what goes with it says nothing without it.
    """
    own, also, optional = f"{kind}Secret", f"{kind}SecretAccepted", f"{kind}ProofOptional"
    for key in (own, also):
        if 0 < len(values[key]) < SECRET_LENGTH_MIN:
            raise ConfigInvalid(f"{key} must have {SECRET_LENGTH_MIN} characters or more")
    if values[own]:
        return
    if values[also]:
        raise ConfigInvalid(f"{also} needs {own}, by which this node proves itself")
    if values[optional].lower() == "true":
        raise ConfigInvalid(f"{optional}=true needs {own}: without one everybody is let in")
