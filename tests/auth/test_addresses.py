"""Addresses that a policy counts for."""

from __future__ import annotations

import pytest

from rmqha.auth.addresses import address_error, is_in_range


@pytest.mark.parametrize(
    ("ip", "text", "is_in"),
    [
        ("10.1.2.3", "10.0.0.0/8", True),
        # The bits behind the mask say nothing, as in Java: people write an address of theirs there.
        ("10.1.2.3", "10.200.0.7/8", True),
        ("11.1.2.3", "10.200.0.7/8", False),
        ("[2001:db8::7]", "2001:db8::1/64", True),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "nowhere", False),
        ("", "10.0.0.0/8", False),
    ],
)
def test_range_when_an_address_is_looked_at_then_only_the_mask_counts(
    ip: str, text: str, is_in: bool
) -> None:
    """A range that is taken for none lets nobody in, or keeps nobody out."""
    assert is_in_range(ip, text) is is_in


@pytest.mark.parametrize("text", ["10.200.0.7/8", "2001:db8::1/64", "10.1.2.3"])
def test_range_when_it_has_bits_behind_the_mask_then_a_policy_may_have_it(text: str) -> None:
    """It is refused where it is made, or it would be there and count for nobody."""
    assert address_error(text) is None
