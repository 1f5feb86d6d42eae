"""Whose a ``clientID`` is: its replies go to him alone."""

from __future__ import annotations

from rmqha.base.ids import ConnectionId
from rmqha.broker.groups.client_names import SILENT_MS, USERS_SHARE, ClientNames
from rmqha.broker.groups.memberships import CHANNEL_EXPIRED_MS, Client

MANY = 100


class Names:
    """The names, and a clock.

    Attributes:
        disabled: users whose signatures do not count.
    """

    def __init__(self, kept_max: int = MANY) -> None:
        self.names = ClientNames(kept_max)
        self.now_ms = 0
        self.disabled: set[str] = set()

    def beat(self, number: int, user: str, name: str = "same") -> None:
        """A heartbeat on a connection."""
        client = Client(ConnectionId(number), name, "JAVA", 479, "h:1", user)
        self.names.heard(self.now_ms, client)

    def close(self, *numbers: int) -> None:
        """Connections end."""
        for number in numbers:
            self.names.left(self.now_ms, ConnectionId(number))

    def found(self, name: str = "same") -> int | None:
        """Which connection gets the replies."""
        one = self.names.find(self.now_ms, name, lambda user: user not in self.disabled)
        return None if one is None else one.connection


def test_name_when_another_user_takes_it_then_it_is_the_first_one_s() -> None:
    """The newest connection of his; one that is another user's now stands behind all others."""
    names = Names()
    names.beat(3, "root")
    names.beat(1, "ann")
    names.beat(5, "ann")
    assert names.found() == 3
    names.beat(4, "root")
    assert names.found() == 4
    names.close(4)
    assert names.found() == 3
    names.beat(3, "eve")
    assert names.found() == 5
    names.beat(6, "root")
    assert names.found() == 5
    names.close(1)
    names.beat(5, "eve")
    assert names.found() == 5, "eve has a connection that was there before root's"


def test_name_when_its_user_is_cut_off_for_a_moment_then_it_is_his_still() -> None:
    """Who waits behind him got the replies for ever as soon as he connected anew."""
    names = Names()
    names.beat(1, "victim")
    names.beat(2, "eve")
    names.close(1)
    assert names.found() is None
    names.now_ms += CHANNEL_EXPIRED_MS - 1
    names.beat(2, "eve")
    assert names.found() is None
    names.beat(3, "victim")
    assert names.found() == 3
    names.now_ms += 2
    assert names.found() == 3, "it is kept no longer, for it is in use"


def test_name_when_its_user_stays_away_then_it_is_the_next_one_s() -> None:
    """Also if nobody else has it yet: then it is as one that nobody ever had."""
    names = Names()
    for name in ("same", "other"):
        names.beat(1, "victim", name)
        names.close(1)
    names.beat(2, "eve")
    names.now_ms += CHANNEL_EXPIRED_MS
    names.beat(2, "eve")
    assert names.found() == 2
    names.beat(3, "victim")
    assert names.found() == 2
    assert len(names.names) == 1


def test_name_when_its_user_is_silent_then_it_is_another_one_s_who_is_not() -> None:
    """A client that starts again with another user, and whose old connection is dead and open."""
    names = Names()
    names.beat(1, "before")
    names.beat(2, "now")
    names.now_ms += SILENT_MS
    names.beat(2, "now")
    assert names.found() == 1
    names.now_ms += 1
    assert names.found() == 2
    names.close(1)
    assert names.found() == 2, "who was silent is not waited for"


def test_name_when_all_are_silent_then_it_is_the_first_one_s() -> None:
    """Clients may be set to send a heartbeat more seldom."""
    names = Names()
    names.beat(1, "first")
    names.beat(2, "second")
    names.now_ms += SILENT_MS + 1
    assert names.found() == 1


def test_name_when_its_user_is_switched_off_then_it_is_the_next_one_s() -> None:
    """At once, whether he is there or not; and nobody's where there is no other."""
    names = Names()
    names.beat(1, "before")
    names.disabled = {"before"}
    assert names.found() is None
    names.beat(2, "now")
    assert names.found() == 2
    names.close(1)
    assert names.found() == 2
    names.disabled = set()
    assert names.found() is None


def test_name_when_one_leaves_who_waited_for_it_then_nothing_is_kept_for_her() -> None:
    """Else she could stand between its user and the next one without being there."""
    names = Names()
    names.beat(1, "before")
    names.beat(2, "eve")
    names.close(2)
    names.beat(3, "now")
    names.disabled = {"before"}
    assert names.found() == 3


def test_name_when_permissions_are_not_looked_at_then_nothing_is_kept() -> None:
    """All are the same user; the newest connection counts."""
    names = Names()
    names.beat(1, "")
    names.beat(2, "")
    assert names.found() == 2
    names.close(2)
    assert names.found() == 1
    names.close(1)
    assert len(names.names) == 0


def test_names_when_one_user_leaves_very_many_then_others_keep_theirs() -> None:
    """Memory stays bounded, and nobody can drive another one's name out."""
    names = Names()
    for number in range(2 * MANY):
        names.beat(number, "eve", f"e{number}")
        names.close(number)
    assert len(names.names) == MANY // USERS_SHARE
    names.beat(1, "victim")
    names.close(1)
    names.beat(2, "eve")
    assert names.found() is None
    for number in range(2 * MANY):
        names.beat(1_000 + number, f"u{number}", f"n{number}")
        names.close(1_000 + number)
    assert len(names.names) == MANY
    names.now_ms += CHANNEL_EXPIRED_MS
    names.close(2)
    assert len(names.names) == 0
    assert not names.names._kept_of


def test_name_when_a_client_gives_it_up_then_it_is_free() -> None:
    """No client of RocketMQ calls itself otherwise on a connection that is open."""
    names = Names()
    names.beat(1, "eve")
    names.beat(1, "eve", "another")
    names.beat(2, "victim")
    assert (names.found(), names.found("another")) == (2, 1)
