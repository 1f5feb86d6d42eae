"""Users of a name server or controller: who is super, and a file that is looked at again."""

from __future__ import annotations

import asyncio
import json
import random

import pytest
from msgspec.structs import replace

from rmqha.auth.accounts import Account, UserStatus, UserType
from rmqha.auth.aio.server_users import ServerUsers
from rmqha.base.errors import ConfigInvalid
from rmqha.runtime.logs import Logger
from rmqha.sim.clock import SimClock
from rmqha.sim.disk import SimDisk
from rmqha.sim.loop import SimLoop

PATH, RELOAD_MS = "/users.json", 1000
ROOT = Account("root", "root-secret", UserType.SUPER)


class Told(Logger):
    """Keeps the events that it is told of."""

    def __init__(self) -> None:
        super().__init__()
        self.told: list[str] = []

    def log(self, level: str, event: str, **facts: object) -> None:
        """Keep it."""
        self.told.append(event)


def users_of(*accounts: Account) -> ServerUsers:
    """Those of settings alone."""
    loop = SimLoop()
    named = {one.name: one for one in accounts}
    found = ServerUsers(
        named, SimDisk(random.Random(1)), SimClock(loop), Told(), path="", reload_ms=RELOAD_MS
    )
    loop.close()
    return found


@pytest.mark.parametrize(
    ("account", "is_there"),
    [
        (ROOT, True),
        (replace(ROOT, user_status=UserStatus.DISABLE), False),
        (replace(ROOT, user_type=UserType.NORMAL), False),
    ],
)
def test_super_user_when_its_signature_does_not_count_then_there_is_none(
    account: Account, is_there: bool
) -> None:
    """Else nobody at all could change the configuration, the one who may being switched off."""
    assert users_of(account, Account("ann", "ann-secret")).has_super is is_there


def test_file_when_it_stays_broken_then_that_is_said_once() -> None:
    """A line each second hides all others; one that is mended and breaks again is news."""
    loop, disk, log = SimLoop(), SimDisk(random.Random(1)), Told()
    users = ServerUsers({}, disk, SimClock(loop), log, path=PATH, reload_ms=RELOAD_MS)
    whole = json.dumps([{"username": "ann", "password": "ann-secret"}]).encode()

    async def hold(content: bytes, looks: int) -> list[str]:
        """What is told while the file has this content for so many looks."""
        await disk.write_atomic(PATH, content)
        log.told.clear()
        await asyncio.sleep(looks * RELOAD_MS / 1000)
        return [*log.told]

    async def story() -> None:
        looking = asyncio.ensure_future(users.run())
        await asyncio.sleep(RELOAD_MS / 2000)  # in the middle between two looks
        assert await hold(b"[", 5) == ["users_not_read"]
        assert await hold(whole, 3) == ["users_read"]
        assert await hold(b"[", 3) == ["users_not_read"]
        assert await hold(b"7", 3) == ["users_not_read"]
        assert users.find("ann") is not None
        looking.cancel()

    loop.run_until_complete(story())
    loop.close()


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize(
    "content",
    [
        "[]",
        '[{"username":"ops","password":"p"}]',
        '[{"username":"ops","password":"p","userType":"Super","userStatus":"disable"}]',
    ],
)
def test_file_when_it_leaves_no_super_user_then_they_stay_until_a_restart(
    content: str, keeps: bool
) -> None:
    """Where nothing else is asked for: a stranger could change the configuration from then on."""
    loop, disk = SimLoop(), SimDisk(random.Random(1))

    def made() -> ServerUsers:
        return ServerUsers({}, disk, SimClock(loop), Told(), path=PATH, reload_ms=RELOAD_MS)

    async def story() -> None:
        users = made()
        if keeps:
            users.keep_super()
        for before in (b"[]", b'[{"username":"ops","password":"p","userType":"Super"}]'):
            await disk.write_atomic(PATH, before)
            await users.load()
        await disk.write_atomic(PATH, content.encode())
        if keeps:
            with pytest.raises(ConfigInvalid, match="it leaves no super user who is enabled"):
                await users.load()
        else:
            await users.load()
        assert users.has_super is keeps
        again = made()
        again.keep_super()
        await again.load()
        assert not again.has_super

    loop.run_until_complete(story())
    loop.close()


@pytest.mark.parametrize("change", ['"userStatus":"disable"', '"userType":"Normal"'])
def test_file_when_it_is_read_first_then_it_counts_though_it_disables_the_settings_super_user(
    change: str,
) -> None:
    """``innerClientAuthenticationCredentials`` names him: the server refused to start by that."""
    loop, disk = SimLoop(), SimDisk(random.Random(1))
    users = ServerUsers(
        {"root": ROOT}, disk, SimClock(loop), Told(), path=PATH, reload_ms=RELOAD_MS
    )

    async def story() -> None:
        users.keep_super()
        await disk.write_atomic(PATH, b'[{"username":"root","password":"p",%s}]' % change.encode())
        await users.load()
        assert not users.has_super
        await disk.write_atomic(PATH, b"[]")
        await users.load()
        assert users.has_super, "the settings' own again"
        await disk.write_atomic(PATH, b'[{"username":"root","password":"p"}]')
        with pytest.raises(ConfigInvalid, match="it leaves no super user"):
            await users.load()

    loop.run_until_complete(story())
    loop.close()


def test_file_when_a_word_is_none_then_the_users_stay() -> None:
    """``disabled`` for ``disable`` left the user on, and nobody was told."""
    loop, disk = SimLoop(), SimDisk(random.Random(1))
    users = ServerUsers({}, disk, SimClock(loop), Told(), path=PATH, reload_ms=RELOAD_MS)

    async def story() -> None:
        await disk.write_atomic(PATH, b'[{"username":"ann","password":"p"}]')
        await users.load()
        await disk.write_atomic(
            PATH, b'[{"username":"ann","password":"q","userStatus":"disabled"}]'
        )
        with pytest.raises(ConfigInvalid, match="userStatus disabled is none of enable, disable"):
            await users.load()
        assert users.find("ann") == Account("ann", "p")

    loop.run_until_complete(story())
    loop.close()
