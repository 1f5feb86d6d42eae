"""Up to where a log is read: to its end, to what its set has confirmed, or to an offset.

Behind the confirm offset of a running store stands what nobody was promised: another replica may be
elected that does not have it, and then it is cut. The checkpoint tells that offset as it was when the
broker wrote it last: ours every second, Java's as seldom as once a minute, or never (``confirmed``).
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.ha.epochs import OFFSET_MAX
from rmqha.pipeline.commitlog.confirmed import confirmed_offset
from rmqha.pipeline.commitlog.numbers import number_of
from rmqha.pipeline.commitlog.store_folder import StoreFolder, is_running

END, CONFIRMED = "end", "confirmed"


class UpTo(Struct, frozen=True):
    """What was asked for.

    Attributes:
        what: ``end``, ``confirmed``, or empty: confirmed for a running store that knows it.
        offset: a physical offset, which goes before all of these.
    """

    what: str = ""
    offset: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> UpTo:
        """Read an option; None and the empty text are the default.

        Raises:
            ConfigInvalid: it is none of these.
        """
        plain = (text or "").strip().lower()
        if plain in ("", END, CONFIRMED):
            return cls(plain)
        offset = number_of(plain, OFFSET_MAX)
        if offset is not None:
            return cls(offset=offset)
        raise ConfigInvalid(f"upTo={text} must be {END}, {CONFIRMED}, or a physical offset")

    def limit(self, store: StoreFolder) -> int:
        """Records of a store that begin before are read; ``OFFSET_MAX`` for all there are.

        Raises:
            ConfigInvalid: the confirmed ones are asked for, and the store does not know them.
        """
        if self.offset is not None:
            return self.offset
        if self.what == END or (not self.what and not is_running(store.root)):
            return OFFSET_MAX
        known = confirmed_offset(store)
        if known is not None:
            return known
        if self.what:
            raise ConfigInvalid(
                f"{store.root}: its checkpoint tells no confirm offset, or one that is not kept up (its "
                "broker has no controller, is a Java master alone in its set, or has confirmed nothing "
                f"yet); upTo={END} reads all of it"
            )
        return OFFSET_MAX


ALL = UpTo(END)
"""Whatever is there."""
