"""905, which a name server sends where brokers say: signed only for its own, and only to addresses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.auth.signature import Credentials
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.settings import RemotingSettings
from rmqha.sim.clock import SimClock
from tests.namesrv.node import broker_fields
from tests.namesrv.test_service import BODY, World

INNER = Credentials("inner", "inner-secret")
KEYS = {
    "notifyMinBrokerIdChanged": "true",
    "innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}',
}


class Hearing(World):
    """With a broker of id 2 that hears what is sent to its port."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[RemotingCommand] = []
        for host in ("ns", "client"):
            self.boot(host)
        network = self.boot("shop")
        self.do("ns", self.disk.make_dirs("/home/namesrv"))
        self.port = RemotingServer(
            network, SimClock(self.loop), RemotingSettings(), self, connection_ids=self.ids
        )
        self.do("shop", self.port.start("0.0.0.0", 20911))

    def on_commands(self, _: Connection, commands: list[RemotingCommand]) -> None:
        """Hear them."""
        self.heard += commands

    def on_closed(self, _: Connection, error: Exception | None) -> None:
        """Nothing to do."""

    def register(self, by: Credentials | None, broker_id: int, **more: str) -> RemotingCommand:
        """103."""
        fields = {
            **broker_fields(), "enableActingMaster": "true", "brokerId": str(broker_id),
            "brokerAddr": f"shop:2091{broker_id - 1}", **more,
        }  # fmt: skip
        command = RemotingCommand(103, ext_fields=fields, body=BODY)
        if by is not None:
            by.sign(command)
        return self.ask("client", 103, command.ext_fields, BODY)


@pytest.fixture
def world() -> Iterator[Hearing]:
    """A name server that tells of the smallest id, and may sign."""
    one = Hearing()
    one.start(KEYS)
    yield one
    one.do("shop", one.port.close(0))
    for host, client in one.clients.items():
        one.do(host, client.close())
    one.stop()
    assert one.loop.errors == []
    one.loop.close()


@pytest.mark.parametrize(
    "by", [None, Credentials("ann", "x"), Credentials("inner", "x"), INNER],
    ids=["nobody", "a user", "a liar", "one of theirs"],
)  # fmt: skip
def test_notice_when_its_address_was_registered_then_only_one_of_theirs_is_sent_a_signature(
    world: Hearing, by: Credentials | None
) -> None:
    """Its text is of whoever registered, and its signature is a super user's."""
    assert world.register(by, 2).code == 0
    assert world.register(None, 1).code == 0
    world.run_for(500)
    (notice,) = world.heard
    assert notice.code == 905
    assert INNER.have_signed(notice) == (by is INNER)
    assert ("Signature" in (notice.ext_fields or {})) == (by is INNER)


def test_notice_when_the_connection_that_proved_it_has_ended_then_it_is_not_signed(
    world: Hearing,
) -> None:
    """Another process may listen at the address by then, or a stranger's name it."""
    assert world.register(INNER, 2).code == 0
    world.clients["client"].disconnect("ns:9876")
    world.run_for(500)
    assert world.register(None, 2).code == 0
    assert world.register(None, 1).code == 0
    world.run_for(500)
    assert [one.code for one in world.heard] == [905]
    assert "Signature" not in (world.heard[0].ext_fields or {})


@pytest.mark.parametrize(
    "trouble",
    [{"brokerAddr": "shop"}, {"brokerAddr": "shop:0"}, {"brokerAddr": "a=b\n#:1"},
     {"haServerAddr": "enableTopicList=false\n#"}, {"haServerAddr": "shop:70000"}],
)  # fmt: skip
def test_registration_when_its_address_is_none_then_it_is_refused(
    world: Hearing, trouble: dict[str, str]
) -> None:
    """It is shown to clients, and sent to the other brokers of the set."""
    answer = world.register(INNER, 1, **trouble)
    (name,) = trouble
    assert (answer.code, answer.remark) == (1, f"{name} is not host:port with a port of 1 to 65535")
    assert world.register(INNER, 1, haServerAddr="").code == 0
