"""What proofs of a shared secret have in common, between controllers and between replicas."""

from __future__ import annotations

import hmac

CHALLENGE_BYTES = 16
SECRET_LENGTH_MIN = 16
"""Characters; a shorter one could be found by trying."""


def is_proof(expected: bytes, found: bytes) -> bool:
    """Compare without telling by the time it takes where they differ."""
    return hmac.compare_digest(expected, found)
