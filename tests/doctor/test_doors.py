"""How a server has to be spoken to, found out at real ones; and what the command then says."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from rmqha.cli.doctor_check import Timing, _look_again
from rmqha.cli.mqadmin import TOOLS_FILE, client_tls
from rmqha.doctor.aio.doors import Doors
from rmqha.doctor.aio.looking import Target
from rmqha.doctor.facts import Door
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.testing.cluster import RmqCluster
from rmqha.testing.sockets import LOOPBACK
from tests.doctor.test_check import QUICK, found

ROOT = {"username": "root", "password": "a password"}
ASKING = {"authenticationEnabled": True, "initAuthenticationUser": json.dumps(ROOT)}


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Servers that speak TLS alone and ask for certificates."""
    folder = tmp_path_factory.mktemp("secure")
    with RmqCluster(folder, controllers=1, namesrv=1, replicas=1, tls=True) as one:
        yield one


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RmqCluster]:
    """Servers without TLS."""
    with RmqCluster(tmp_path_factory.mktemp("plain"), controllers=1, namesrv=1, replicas=0) as one:
        yield one


def servers(cluster: RmqCluster) -> tuple[str, ...]:
    """The options that name all servers."""
    return ("-a", cluster.controller_addr, "-n", cluster.namesrv_addr, *QUICK)


def kinds(rows: dict[str, dict[str, str]]) -> set[str]:
    """The codes that were found."""
    return {key.split()[0] for key in rows}


async def _door(address: str, *, speaks_tls: bool) -> Door | None:
    clock = SystemClock()
    doors = Doors(
        speaks_tls=speaks_tls, secure=lambda: TcpNetwork(client_tls(True, None)),
        plain=RemotingClient(TcpNetwork(None), clock, RemotingSettings()), timeout_ms=2_000,
    )  # fmt: skip
    try:
        return await doors.of(address)
    finally:
        await doors.close()


@pytest.mark.costly
@pytest.mark.parametrize(("speaks_tls", "door"), [(False, Door.TLS), (True, Door.CERTIFICATE)])
def test_door_when_the_server_speaks_tls_then_it_is_known(
    secure: RmqCluster, speaks_tls: bool, door: Door
) -> None:
    assert asyncio.run(_door(secure.controller_addr, speaks_tls=speaks_tls)) is door


def test_door_when_the_server_is_plain_or_not_there_then_that_is_known(plain: RmqCluster) -> None:
    """One that is down has no door, however it is tried."""
    assert asyncio.run(_door(plain.controller_addr, speaks_tls=True)) is Door.PLAIN
    assert asyncio.run(_door(plain.controller_addr, speaks_tls=False)) is None
    assert asyncio.run(_door(f"{LOOPBACK}:1", speaks_tls=True)) is None
    assert asyncio.run(_door("nonsense", speaks_tls=True)) is None


@pytest.mark.costly
def test_check_when_tls_differs_then_nobody_is_called_down_or_without_leader(
    secure: RmqCluster, plain: RmqCluster, tmp_path: Path
) -> None:
    """Nothing was wrong with the cluster that was called one without a leader."""
    for cluster, options, said in (
        (secure, (), "speaks TLS alone"),
        (secure, ("--tls",), "a certificate"),
        (plain, ("--tls",), "speaks no TLS"),
    ):
        code, rows = found(*servers(cluster), *options)
        assert (code, kinds(rows)) == (1, {"tls-differs"}), rows
        assert len(rows) == 2
        assert all(said in row["what"] for row in rows.values()), rows
    keys = tmp_path / "tls.properties"
    keys.write_text("".join(f"{key}={value}\n" for key, value in secure.tls_keys.items()))
    # A process of its own: its connections by TLS need a moment to end, and nobody waits for that.
    command = [sys.executable, "-m", "rmqha.cli.mqdoctor", "check", *servers(secure), "--tlsConfig"]
    done = subprocess.run([*command, str(keys)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.costly
def test_check_when_servers_ask_for_a_user_then_what_they_refused_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The controller lets through who asks for the leader (1005), as for old brokers."""
    monkeypatch.delenv(TOOLS_FILE, raising=False)
    monkeypatch.delitem(os.environ, "ROCKETMQ_HOME", raising=False)
    with RmqCluster(
        tmp_path / "asking", controllers=1, namesrv=1, replicas=0, namesrv_settings=ASKING,
        controller_settings={**ASKING, "authenticationWhitelist": "1005"},
    ) as cluster:  # fmt: skip
        code, rows = found(*servers(cluster))
        assert (code, kinds(rows)) == (1, {"credentials-refused"}), rows
        assert {row["subject"] for row in rows.values()} == {
            cluster.controller_addr, cluster.namesrv_addr,
        }  # fmt: skip
        assert all("code 16" in row["what"] for row in rows.values()), rows
        tools = tmp_path / "tools.yml"
        tools.write_text(f"accessKey: root\nsecretKey: {ROOT['password']}\n")
        monkeypatch.setenv(TOOLS_FILE, str(tools))
        code, rows = found(*servers(cluster))
        assert (code, kinds(rows)) == (1, {"name-server-empty"}), "there is no broker"


class Other(asyncio.Protocol):
    """A server of another protocol: it answers whatever comes, and ends the connection."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer."""
        assert isinstance(self._transport, asyncio.Transport)
        self._transport.write(self._answer)
        self._transport.close()


@pytest.mark.parametrize(
    "answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"SSH-2.0-OpenSSH_9.6\r\n", b""]
)
async def test_check_when_a_server_of_another_kind_listens_there_then_it_is_told(
    answer: bytes,
) -> None:
    """The port of a status page was a name server that was down, a warning, and to be started."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(lambda: Other(answer), LOOPBACK, 0)
    address = f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"
    async with server:
        target = Target((address,), (address,))
        _, found = await _look_again(target, Timing(5_000, 1, 0), None)
    kinds = {"not-a-controller", "not-a-name-server"}
    silent = {"controller-unreachable", "name-server-unreachable"}
    wanted = kinds if answer else silent
    assert {one.code for one in found} == {"no-controller-answers", *wanted}
