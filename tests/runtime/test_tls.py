"""TLS on loopback: which peers come in, what is checked, and certificates that are replaced."""

from __future__ import annotations

import asyncio
import functools
import gc
import os
import re
import resource
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import uvloop
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid, ConnectFailed, ConnectionLost
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.aio.server import RemotingServer
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.frame import encode
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio import net
from rmqha.runtime.aio import tls as tls_module
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.runtime.tls_settings import (
    GUARDS,
    TLS_DEFAULTS,
    KeyPair,
    TlsMode,
    check_kept,
    read_tls,
    with_tls_file,
)
from rmqha.testing.certificates import Authority, tls_properties
from tests.remoting.harness import RecordingHandler

REQUEST = RemotingCommand(1005, body=b"who leads?")
NO_FILE = {"tls.config.file": ""}
ROOT = Path(__file__).resolve().parents[2]


def in_uvloop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """Run a test in the loop of the processes: its TLS is its own."""

    @functools.wraps(test)
    def run(**fixtures: Any) -> None:
        uvloop.run(test(**fixtures))

    return run


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    """Of this test's certificates."""
    return Authority(tmp_path)


def make(values: Mapping[str, str]) -> Tls:
    """Certificates of a process; nothing under /etc counts."""
    return Tls({**NO_FILE, **values}, Logger())


@asynccontextmanager
async def served(values: Mapping[str, str]) -> AsyncIterator[tuple[RemotingServer, Tls]]:
    """A server that answers whoever comes in."""
    tls = make(values)
    server = RemotingServer(TcpNetwork(tls), SystemClock(), RemotingSettings(), RecordingHandler())
    await server.start("127.0.0.1", 0)
    try:
        yield server, tls
    finally:
        await server.close()


async def ask(server: RemotingServer, tls: Tls | None, body: bytes = REQUEST.body) -> bytes:
    """One request over a new connection; the answer's body."""
    client = RemotingClient(TcpNetwork(tls), SystemClock(), RemotingSettings())
    try:
        request = RemotingCommand(1005, body=body)
        return (await client.invoke(f"127.0.0.1:{server.port}", request)).body
    finally:
        await client.close()


# -- who comes in ----------------------------------------------------------------------------------


@in_uvloop
async def test_enforcing_port_takes_tls_alone(authority: Authority) -> None:
    """And says by its counters whom it sent away."""
    values = tls_properties(authority)
    async with served(values) as (server, tls):
        large = os.urandom(3_000_000)
        assert await ask(server, tls, large) == large
        with pytest.raises(ConnectionLost):
            await ask(server, None)
        assert tls.rejected == {"plain": 1}


@in_uvloop
async def test_permissive_port_takes_both(authority: Authority) -> None:
    """As Java's: one port, and clients may change over one by one."""
    async with served(tls_properties(authority, mode="permissive")) as (server, tls):
        assert await ask(server, None) == REQUEST.body
        assert await ask(server, tls) == REQUEST.body
        assert not tls.rejected


@in_uvloop
async def test_port_without_a_certificate_tells_a_tls_client_so() -> None:
    """Java's server closes it without a word."""
    async with served({}) as (server, _):
        dialler = make({"tls.enable": "true"})
        with pytest.raises(ConnectFailed):
            await ask(server, dialler)


@in_uvloop
async def test_a_client_that_dials_a_plain_peer_is_told_what_is_wrong() -> None:
    """Not "WRONG_VERSION_NUMBER"."""

    async def hello(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 this is another protocol\r\n")
        await writer.drain()
        writer.close()

    other = await asyncio.start_server(hello, "127.0.0.1", 0)
    port = other.sockets[0].getsockname()[1]
    client = RemotingClient(
        TcpNetwork(make({"tls.enable": "true"})), SystemClock(), RemotingSettings()
    )
    with pytest.raises(ConnectFailed, match="does not speak TLS"):
        await client.invoke(f"127.0.0.1:{port}", REQUEST)
    await client.close()
    other.close()


@in_uvloop
async def test_server_of_another_authority_is_not_believed(
    authority: Authority, tmp_path: Path
) -> None:
    """``tls.client.authServer`` with a trust file."""
    other = Authority(tmp_path, "other")
    async with served(tls_properties(other)) as (server, _):
        with pytest.raises(ConnectFailed, match="certificate verify failed"):
            await ask(server, make(tls_properties(authority, "client")))
        assert await ask(server, make({"tls.enable": "true"})) == REQUEST.body


@in_uvloop
async def test_client_without_the_certificate_that_is_asked_for_stays_out(
    authority: Authority, tmp_path: Path
) -> None:
    """Mutual TLS: a certificate of somebody else does not help."""
    async with served(tls_properties(authority, mutual=True)) as (server, tls):
        assert await ask(server, tls) == REQUEST.body
        for stranger in (
            make({"tls.enable": "true"}),
            make({**tls_properties(Authority(tmp_path, "other"), "other-client"),
                  "tls.client.authServer": "false"}),
        ):  # fmt: skip
            with pytest.raises((ConnectFailed, ConnectionLost)):
                await ask(server, stranger)
        assert tls.rejected == {"handshake": 2}


@in_uvloop
async def test_old_versions_of_tls_are_refused(authority: Authority) -> None:
    """1.2 is the least."""
    async with served(tls_properties(authority)) as (server, tls):
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
        context.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            context.minimum_version = context.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await asyncio.open_connection("127.0.0.1", server.port, ssl=context)
        assert tls.rejected == {"handshake": 1}


@in_uvloop
async def test_test_mode_speaks_tls_without_files() -> None:
    """Java's default; here it is asked for by name."""
    values = {"tls.test.mode.enable": "true", "tls.enable": "true"}
    async with served(values) as (server, tls):
        assert await ask(server, tls) == REQUEST.body


@in_uvloop
async def test_key_with_a_password(authority: Authority) -> None:
    """And a wrong one is named at the start instead of asked for on the terminal."""
    cert_path, key_path = authority.make("locked", password="open sesame")
    values = {
        "tls.server.certPath": str(cert_path), "tls.server.keyPath": str(key_path),
        "tls.server.keyPassword": "open sesame",
    }  # fmt: skip
    assert make(values).server is not None
    with pytest.raises(ConfigInvalid, match="locked"):
        make({**values, "tls.server.keyPassword": "wrong"})


# -- who says nothing ------------------------------------------------------------------------------


@in_uvloop
async def test_silent_connections_keep_nobody_out(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The oldest of those that have not said what they speak goes for a new one."""
    monkeypatch.setattr(net, "OPENING_MAX", 8)
    async with served(tls_properties(authority)) as (server, tls):
        silent = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(20)]
        assert await ask(server, tls) == REQUEST.body
        assert tls.rejected["crowd"] >= 12
        for one in silent:
            one.close()


@pytest.mark.costly
@in_uvloop
async def test_silence_and_half_a_handshake_end(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stranger holds no descriptor for longer than a moment."""
    monkeypatch.setattr(net, "FIRST_BYTE_S", 0.1)
    monkeypatch.setattr(net, "HANDSHAKE_S", 0.1)
    async with served(tls_properties(authority)) as (server, tls):
        for said in (b"", b"\x16\x03\x01"):
            reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
            writer.write(said)
            with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
                async with asyncio.timeout(5):
                    await reader.readexactly(1)
            writer.close()
        assert tls.rejected == {"silent": 1, "handshake": 1}
        assert server.connections == ()


@in_uvloop
async def test_server_that_closes_ends_those_at_its_door(authority: Authority) -> None:
    """Nothing is left open behind it."""
    async with served(tls_properties(authority)) as (server, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
        await ask(server, make({"tls.enable": "true"}))
    async with asyncio.timeout(5):
        with pytest.raises((asyncio.IncompleteReadError, ConnectionResetError)):
            await reader.readexactly(1)
    writer.close()


# -- certificates that are replaced ----------------------------------------------------------------


@in_uvloop
async def test_new_certificates_count_for_new_connections(authority: Authority) -> None:
    """Those that exist go on: nobody is sent away by a renewal."""
    values = tls_properties(authority)
    async with served(values) as (server, tls):
        client = RemotingClient(TcpNetwork(tls), SystemClock(), RemotingSettings())
        address = f"127.0.0.1:{server.port}"
        await client.invoke(address, REQUEST)
        before = tls.expires_ms
        assert not await tls.check()
        authority.make("server", days=9)
        assert await tls.check()
        assert tls.expires_ms != before
        await client.invoke(address, REQUEST)
        assert len(server.connections) == 1
        assert await ask(server, make({"tls.enable": "true"})) == REQUEST.body
        await client.close()


@in_uvloop
async def test_files_that_do_not_fit_change_nothing(authority: Authority) -> None:
    """A key that is there before its certificate: the pair counts when both are."""
    values = tls_properties(authority)
    async with served(values) as (server, tls):
        cert_path = Path(values["tls.server.certPath"])
        old = cert_path.read_bytes()
        authority.make("server")
        new = cert_path.read_bytes()
        cert_path.write_bytes(old)
        assert not await tls.check()
        assert (tls.reloads, tls.failures) == (0, 1)
        assert not await tls.check()
        assert tls.failures == 1, "told once"
        assert await ask(server, make({"tls.enable": "true"})) == REQUEST.body
        cert_path.write_bytes(new)
        assert await tls.check()


@in_uvloop
async def test_new_certificate_when_it_could_not_be_read_for_a_while_then_it_is_used_all_the_same(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that failed leaves no sign in a file when it works again."""
    values, show, why = tls_properties(authority), tls_module._show, "Permission denied"
    tls = make(values)
    before = tls.server

    def fail(context: ssl.SSLContext, pair: KeyPair, end: str) -> None:
        raise ConfigInvalid(f"{end}: {why}")

    authority.make("server")
    monkeypatch.setattr(tls_module, "_show", fail)
    for _ in range(3):
        assert not await tls.check()
    assert tls.failures == 1, "told once"
    why = "Input/output error"
    for _ in range(3):
        assert not await tls.check()
    assert tls.failures == 2, "another reason is news"
    monkeypatch.setattr(tls_module, "_show", show)
    assert await tls.check()
    assert (tls.reloads, tls.server is before) == (1, False)
    assert not await tls.check(), "nothing is read again that could be used"
    monkeypatch.setattr(tls_module, "_show", fail)
    Path(values["tls.server.keyPath"]).touch()
    assert not await tls.check()
    assert tls.failures == 3, "the same reason after it was over is news"


@in_uvloop
async def test_certificate_when_its_folder_is_away_for_a_while_then_each_time_is_told(
    authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As a network's file system is; what comes back is what is in use."""
    tls, stamp = make(tls_properties(authority)), tls_module._stamp

    def fail(*_: object) -> None:
        raise ConfigInvalid("Stale file handle")

    for times in (1, 2):
        with monkeypatch.context() as away:
            away.setattr(tls_module, "_stamp", lambda _: None)
            away.setattr(tls_module, "_show", fail)
            for _ in range(2):
                assert not await tls.check()
        assert tls_module._stamp is stamp
        assert not await tls.check()
        assert (tls.reloads, tls.failures) == (0, times)


@in_uvloop
async def test_new_certificate_when_it_keeps_the_time_of_the_old_one_then_it_is_used(
    authority: Authority,
) -> None:
    """As copies do that keep times (cp -p, rsync -a, archives)."""
    values = tls_properties(authority)
    tls = make(values)
    paths = [Path(values[key]) for key in ("tls.server.certPath", "tls.server.keyPath")]
    stats = [path.stat() for path in paths]
    authority.make("server", days=9)
    for path, was in zip(paths, stats, strict=True):
        os.utime(path, ns=(was.st_atime_ns, was.st_mtime_ns))
    assert await tls.check()


@pytest.mark.parametrize("field", ["st_mtime_ns", "st_ctime_ns", "st_ino", "st_size"])
def test_stamp_when_anything_of_a_file_differs_then_it_differs(
    monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    """Each file system keeps some of it exactly."""
    same = {"st_mtime_ns": 1, "st_ctime_ns": 2, "st_ino": 3, "st_size": 4}
    stamps = []
    for found in (same, same, {**same, field: 9}):
        monkeypatch.setattr(os, "stat", lambda _, found=found: SimpleNamespace(**found))
        stamps.append(tls_module._stamp("c"))
    monkeypatch.undo()
    assert stamps[0] == stamps[1] != stamps[2]


@in_uvloop
async def test_mode_changes_while_the_server_runs(authority: Authority, tmp_path: Path) -> None:
    """From open to enforcing by one file, without a restart and without a lost connection."""
    path = tmp_path / "tls.properties"
    keys = tls_properties(authority)

    def write(mode: str, names: tuple[str, ...] = tuple(keys)) -> None:
        path.write_text("".join(f"{name}={keys[name]}\n" for name in names if "mode" not in name))
        with path.open("a") as file:
            file.write(f"tls.server.mode={mode}\n")

    async with served({"tls.config.file": str(path)}) as (server, tls):
        client = RemotingClient(TcpNetwork(tls), SystemClock(), RemotingSettings())
        address = f"127.0.0.1:{server.port}"
        await client.invoke(address, REQUEST)
        write("permissive")
        assert await tls.check()
        assert await ask(server, None) == await ask(server, tls) == REQUEST.body
        write("enforcing")
        assert await tls.check()
        with pytest.raises(ConnectionLost):
            await ask(server, None)
        assert await ask(server, tls) == REQUEST.body
        await client.invoke(address, REQUEST)
        # A certificate that the file names only now is watched from now on.
        authority.make("server", days=9)
        assert await tls.check()
        await client.close()


def closed_file(authority: Authority, tmp_path: Path) -> Path:
    """A file of its own that closes every door."""
    path = tmp_path / "tls.properties"
    keys = tls_properties(authority, mutual=True)
    path.write_text("".join(f"{key}={value}\n" for key, value in keys.items()))
    return path


@pytest.mark.parametrize("content", [None, "", "# nothing yet\n"])
@in_uvloop
async def test_file_of_its_own_when_it_is_gone_or_emptied_then_the_doors_stay_as_they_were(
    authority: Authority, tmp_path: Path, content: str | None
) -> None:
    """An editor empties a file before it writes it: nobody comes in meanwhile."""
    path = closed_file(authority, tmp_path)
    whole = path.read_text()
    async with served({"tls.config.file": str(path)}) as (server, tls):
        contexts = tls.server, tls.client
        path.unlink()
        if content is not None:
            path.write_text(content)
        assert not await tls.check()
        assert (tls.mode, tls.server, tls.client) == (TlsMode.ENFORCING, *contexts)
        with pytest.raises(ConnectionLost):
            await ask(server, None)
        assert await ask(server, tls) == REQUEST.body
        path.write_text(whole)
        assert await tls.check()
        assert (tls.reloads, tls.failures) == (1, 1)


@pytest.mark.parametrize("key", GUARDS)
def test_file_of_its_own_when_a_line_is_missing_then_what_it_kept_is_kept(
    authority: Authority, tmp_path: Path, key: str
) -> None:
    """Half of a file may fit together, and open what the other half closed."""
    path = closed_file(authority, tmp_path)
    with path.open("a") as file:
        file.write("tls.test.mode.enable=false\n")
    lines = path.read_text().splitlines(keepends=True)
    assert any(line.startswith(f"{key}=") for line in lines)
    values = {"tls.config.file": str(path), "tls.test.mode.enable": "true"}
    before = path.read_text()
    path.write_text("".join(line for line in lines if not line.startswith(f"{key}=")))
    with pytest.raises(ConfigInvalid, match=rf"says nothing more of {re.escape(key)}: write what"):
        check_kept(values, before, path.read_text())
    check_kept({**values, **with_tls_file(values, before)}, before, path.read_text())


def test_file_of_its_own_when_the_other_says_the_same_in_other_letters_then_a_line_may_go() -> None:
    """Nothing opens by that."""
    own = {"tls.config.file": "f", "tls.server.mode": "ENFORCING", "tls.test.mode.enable": " FALSE"}
    check_kept(own, "tls.server.mode=enforcing\ntls.test.mode.enable=false\n", "")
    with pytest.raises(ConfigInvalid, match=r"nothing more of tls\.server\.mode"):
        check_kept({**own, "tls.server.mode": "PERMISSIVE"}, "tls.server.mode=enforcing\n", "")


@in_uvloop
async def test_file_of_its_own_when_it_says_that_it_opens_then_it_opens(
    authority: Authority, tmp_path: Path
) -> None:
    """The way back from enforcing, without a restart."""
    path = closed_file(authority, tmp_path)
    async with served({"tls.config.file": str(path)}) as (server, tls):
        path.write_text(path.read_text().replace("mode=enforcing", "mode=permissive"))
        assert await tls.check()
        assert await ask(server, None) == REQUEST.body


@pytest.mark.slow
def test_ten_thousand_reloads_do_not_grow(authority: Authority) -> None:
    """A certificate a day for 27 years."""
    # In a process of its own: what other tests have left behind comes and goes by more than that.
    work = f"from {__name__} import reloads; reloads({tls_properties(authority)!r})"
    done = subprocess.run(
        [sys.executable, "-c", work], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert not done.returncode, done.stderr[-2_000:]


def reloads(values: Mapping[str, str]) -> None:
    """What that process does."""
    uvloop.run(_reloads(values))


async def _reloads(values: Mapping[str, str]) -> None:
    tls = make(values)
    path = Path(tls._now.settings.server.cert_path)

    async def reload(times: int) -> None:
        for _ in range(times):
            stamp = path.stat()
            os.utime(path, ns=(stamp.st_atime_ns, stamp.st_mtime_ns + 1_000_000))
            assert await tls.check()
        gc.collect()

    await reload(500)
    before, files = _resident_bytes(), len(os.listdir("/proc/self/fd"))
    await reload(9_500)
    assert tls.reloads == 10_000
    assert len(os.listdir("/proc/self/fd")) <= files
    assert _resident_bytes() - before < 8 << 20


def _resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


# -- settings --------------------------------------------------------------------------------------


def test_file_of_its_own_comes_before_the_process_file() -> None:
    """As in Java, whose file has the keys without the mode; ours may have it too."""
    merged = with_tls_file({"tls.server.mode": "disabled"}, "tls.server.mode=permissive\n")
    assert read_tls(merged).mode is TlsMode.PERMISSIVE
    with pytest.raises(ConfigInvalid, match="listenPort"):
        with_tls_file({}, "listenPort=9\n")


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"tls.server.mode": "enforced"}, "disabled, permissive, enforcing"),
        ({"tls.server.mode": "enforcing"}, "certPath"),
        ({"tls.enable": "yes"}, "neither true nor false"),
        ({"tls.server.certPath": "/x"}, "belong together"),
        ({"tls.server.need.client.auth": "require"}, "trustCertPath"),
        ({"tls.server.need.client.auth": "require", "tls.test.mode.enable": "true"}, "test.mode"),
    ],
)
def test_values_that_would_not_do_what_they_say_are_refused(
    values: dict[str, str], words: str
) -> None:
    """Java takes each of them, and then is open."""
    with pytest.raises(ConfigInvalid, match=words):
        read_tls(values)


@given(st.dictionaries(st.sampled_from(sorted(TLS_DEFAULTS)), st.text(max_size=12)))
def test_any_values_are_settings_or_refused(values: dict[str, str]) -> None:
    """Nothing else comes out, and what is offered has files."""
    try:
        settings = read_tls(values)
    except ConfigInvalid:
        return
    assert settings.mode is not TlsMode.ENFORCING or settings.is_offered


def test_files_that_are_none_are_named(tmp_path: Path) -> None:
    """At the start, with the key that names them."""
    missing = str(tmp_path / "none.pem")
    values = {"tls.server.certPath": missing, "tls.server.keyPath": missing}
    with pytest.raises(ConfigInvalid, match=r"none\.pem"):
        make(values)
    with pytest.raises(ConfigInvalid, match="trustCertPath"):
        make({"tls.enable": "true", "tls.client.authServer": "true",
              "tls.client.trustCertPath": missing})  # fmt: skip


def test_frame_never_begins_as_a_handshake_does() -> None:
    """What the door relies on: a length below 16 MiB begins with a zero."""
    assert encode(RemotingCommand(310, body=bytes(1 << 20)))[:1] == b"\0"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"\xff\xfe\x1b[31mkey=1\n", r"\\x1b\[31mkey is no key of this file"),
        (b"\x80" * 3000 + b"=1\n", r"(\\x80){80}\.\.\. is no key"),
        (b"a\\u12\x1b\x9b=1\n", r"broken escape \\u12\\x1b\\x9b"),
    ],
)
def test_file_of_its_own_when_it_is_no_text_then_the_line_names_it_and_can_be_printed(
    tmp_path: Path, content: bytes, says: str
) -> None:
    """Somebody gave the certificate, or a program: a terminal does what it is told."""
    path = tmp_path / "tls.properties"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match=says) as caught:
        Tls({"tls.config.file": str(path)}, Logger())
    said = str(caught.value)
    assert str(path) in said
    assert said.isprintable()
    assert len(said) < 600
