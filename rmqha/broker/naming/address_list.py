"""Which servers there are behind a name, as far as it was ever told.

What is looked up may fail, or say nothing: the servers that were known do not go with their resolver.

Source: BrokerOuterAPI and DefaultTopAddressing of RocketMQ 5.3. Older brokers of Java were without
controllers after a look-up that failed (#6873).
"""

from __future__ import annotations

from collections.abc import Sequence

from rmqha.base.errors import ConfigInvalid
from rmqha.base.machine import Note
from rmqha.remoting.address import parse_address, split_addresses

ADDRESSES_MAX = 30
"""Servers behind one name; each costs a task and a connection."""

RETRY_MS, RETRY_MS_MAX = 1_000, 10_000
"""After a look-up that brought nothing, the pause before the next; it doubles."""

REASON_CHARACTERS_MAX = 200


class AddressList:
    """The addresses behind one name.

    Args:
        key: the setting that the name stands in.
        name: what is looked up.
        period_ms: between two look-ups.

    Attributes:
        addresses: of the servers, sorted; none before the first success.
    """

    def __init__(self, key: str, name: str, period_ms: int) -> None:
        self.key = key
        self.name = name
        self.addresses: tuple[str, ...] = ()
        self._period_ms = period_ms
        self._failures = 0
        self._reason = ""

    @property
    def pause_ms(self) -> int:
        """How long to wait before the next look-up; never longer than after a success."""
        if not self._failures:
            return self._period_ms
        return min(self._period_ms, RETRY_MS_MAX, RETRY_MS << min(self._failures - 1, 16))

    def found(self, found: Sequence[str], *, may_shrink: bool = True) -> list[Note]:
        """Take what a look-up brought; returns what to tell.

        Args:
            found: ``host:port`` each; one that is not spoils all, for it may be a page of an error.
            may_shrink: False where somebody counts a majority of them: addresses that are gone stay
                until others are there in their place.
        """
        if not found:
            return self.failed("it has no address")
        try:
            for address in found:
                parse_address(address)
        except ConfigInvalid as error:
            return self.failed(str(error))
        known, was_told = self.addresses, bool(self._reason)
        here = sorted(set(found))
        left_out = len(here) - len(here[:ADDRESSES_MAX])
        here = here[:ADDRESSES_MAX]
        if not may_shrink:
            gone = [one for one in known if one not in here]
            here = sorted(here + gone[: max(0, len(known) - len(here))])
        self.addresses = tuple(here)
        self._failures, self._reason = 0, ""
        if self.addresses == known and not was_told:
            return []
        facts = {"key": self.key, "name": self.name, "addresses": self.addresses}
        facts["gone"] = tuple(one for one in known if one not in here)
        if left_out:
            return [Note("addresses_found", "warning", facts | {"left_out": left_out})]
        return [Note("addresses_found", "info", facts)]

    def failed(self, reason: str) -> list[Note]:
        """Take that a look-up brought nothing; told once, until the reason is another."""
        self._failures += 1
        reason = reason[:REASON_CHARACTERS_MAX]
        if reason == self._reason:
            return []
        self._reason = reason
        facts = {"key": self.key, "name": self.name, "reason": reason, "kept": self.addresses}
        return [Note("addresses_not_found", "warning", facts)]


def listed_in(body: str) -> list[str]:
    """The addresses in the first line of an address server's answer; Java reads no further."""
    lines = body.strip().splitlines()
    return split_addresses(lines[0]) if lines else []
