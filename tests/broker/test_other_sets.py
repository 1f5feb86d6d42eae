"""Requests to other broker sets: whom they go to, and what is never sent twice."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

import pytest

from rmqha.base.errors import ConnectFailed, ConnectionLost, RequestTimeout
from rmqha.broker.naming.aio.other_sets import OtherSets, SetUnreachable
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.runtime.ports import Clock

NAMESRV, OLD, NEW = "ns:9876", "old:10911", "new:10911"
SEND = 310


class Still:
    """A clock that stands still."""

    def now_ms(self) -> int:
        """Always the same."""
        return 0


class Peers:
    """A name server whose word changes with each question, and masters that do as they are told.

    Args:
        reactions: of each master, by its address.
    """

    def __init__(self, reactions: dict[str, Callable[[RemotingCommand], RemotingCommand]]) -> None:
        self._reactions = reactions
        self._masters = iter([OLD, NEW, NEW])
        self.asked = list[str]()

    async def invoke(
        self, address: str, command: RemotingCommand, timeout_ms: int
    ) -> RemotingCommand:
        """Answer as the peer at an address does."""
        if address != NAMESRV:
            self.asked.append(address)
            return self._reactions[address](command)
        assert command.code == RequestCode.GET_BROKER_MEMBER_GROUP
        group = {"brokerAddrs": {"0": next(self._masters)}, "brokerName": "b", "cluster": "C"}
        return command.reply(0, body=fastjson.dumps({"brokerMemberGroup": group}))


def of(peers: Peers) -> OtherSets:
    """The way to them."""
    return OtherSets(cast(RemotingClient, peers), cast(Clock, Still()), lambda: [NAMESRV], "C")


def done(command: RemotingCommand) -> RemotingCommand:
    """It is the master."""
    return command.reply(ResponseCode.SUCCESS, "done")


def failing(error: Exception) -> Callable[[RemotingCommand], RemotingCommand]:
    """It gives no answer."""

    def fail(_: RemotingCommand) -> RemotingCommand:
        raise error

    return fail


@pytest.mark.parametrize("error", [ConnectionLost("reset"), RequestTimeout("late")])
async def test_request_when_it_was_sent_and_not_answered_then_it_is_not_sent_again(
    error: Exception,
) -> None:
    """A message would be written twice."""
    peers = Peers({OLD: failing(error), NEW: done})
    with pytest.raises(SetUnreachable, match="b at old:10911"):
        await of(peers).ask("b", SEND, {}, timeout_ms=1_000)
    assert peers.asked == [OLD]


async def test_request_when_its_connection_was_lost_then_the_next_one_asks_who_is_master() -> None:
    """The one that was known has died: each request would fail for half a minute."""
    peers = Peers({OLD: failing(ConnectionLost("reset")), NEW: done})
    sets = of(peers)
    with pytest.raises(SetUnreachable):
        await sets.ask("b", SEND, {}, timeout_ms=1_000)
    assert (await sets.ask("b", SEND, {}, timeout_ms=1_000)).remark == "done"
    assert peers.asked == [OLD, NEW]


async def test_request_when_it_could_not_be_sent_then_whoever_is_master_now_gets_it() -> None:
    """Nothing has been done yet."""
    peers = Peers({OLD: failing(ConnectFailed("refused")), NEW: done})
    assert (await of(peers).ask("b", SEND, {}, timeout_ms=1_000)).remark == "done"
    assert peers.asked == [OLD, NEW]


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
async def test_request_when_its_master_is_none_any_more_then_the_next_one_gets_it(
    code: ResponseCode,
) -> None:
    """A failover that the name servers know of would fail requests that could be served."""
    peers = Peers({OLD: lambda command: command.reply(code, "a slave"), NEW: done})
    assert (await of(peers).ask("b", SEND, {}, timeout_ms=1_000)).remark == "done"
    assert peers.asked == [OLD, NEW]


async def test_request_when_nobody_is_master_then_it_is_asked_once_more_and_no_longer() -> None:
    """Whoever asks decides how long to wait for an election."""
    busy = ResponseCode.SYSTEM_BUSY
    peers = Peers({one: lambda command: command.reply(busy, "a slave") for one in (OLD, NEW)})
    assert (await of(peers).ask("b", SEND, {}, timeout_ms=1_000)).code == busy
    assert peers.asked == [OLD, NEW]


async def test_request_when_it_is_refused_then_its_answer_is_passed_on() -> None:
    """The master has said no; another question changes nothing."""
    no = ResponseCode.NO_PERMISSION
    peers = Peers({OLD: lambda command: command.reply(no, "no")})
    assert (await of(peers).ask("b", SEND, {}, timeout_ms=1_000)).code == no
    assert peers.asked == [OLD]


async def test_name_servers_when_they_are_others_meanwhile_then_those_are_asked() -> None:
    """They may be looked up again and again (fetchNameSrvAddrByDnsLookup)."""
    peers, known = Peers({OLD: done}), list[str]()
    sets = OtherSets(cast(RemotingClient, peers), cast(Clock, Still()), lambda: known, "C")
    with pytest.raises(SetUnreachable, match="no name server is known"):
        await sets.ask("b", SEND, {}, timeout_ms=1_000)
    known.append(NAMESRV)
    assert (await sets.ask("b", SEND, {}, timeout_ms=1_000)).remark == "done"
