"""Certificates of a process: loaded, looked at again while it runs, and replaced without a restart.

A new context takes the place of the old one for connections made from then on; those that exist
keep theirs. Files that cannot be used change nothing: the old ones stay, and the log says why.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import ssl
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.runtime.aio.certificates import expires_ms, self_signed
from rmqha.runtime.logs import Logger
from rmqha.runtime.properties import decode_properties
from rmqha.runtime.tls_settings import (
    ClientAuth,
    KeyPair,
    TlsMode,
    TlsSettings,
    check_kept,
    read_tls,
    with_tls_file,
)

LOOK_EVERY_S = 1.0
"""Java looks twice a second; a certificate is replaced some days before it is needed."""


_Stamp = tuple[int, int, int, int]


class Contexts(Struct, frozen=True):
    """What one reading of the files gave.

    Attributes:
        settings: as checked.
        server: for connections that are accepted; None where the ports speak no TLS.
        client: for connections that are opened; None where they speak none.
        expires_ms: when the server's certificate ends, since 1970; None without one.
        file_text: what ``tls.config.file`` held; None when there was no such file.
    """

    settings: TlsSettings
    server: ssl.SSLContext | None
    client: ssl.SSLContext | None
    expires_ms: int | None
    file_text: str | None


class Tls:
    """The present contexts, and what happened at the door.

    Attributes:
        refused: connections that were closed at the door, by reason.
        reloads, failures: how often the files had changed and could be used, or could not.
    """

    def __init__(self, values: Mapping[str, str], log: Logger) -> None:
        """Load what the files name.

        Args:
            values: of the process's properties file.
            log: told of every change.

        Raises:
            ConfigInvalid: a key, or a file that a key names, cannot be used.
        """
        self._values = dict(values)
        self._log = log
        self.rejected: Counter[str] = Counter()
        self.reloads = self.failures = 0
        self._file = self._values.get("tls.config.file", "")
        self._now = load(self._values)
        self._seen = self._look()
        self._trouble = ""

    @property
    def server(self) -> ssl.SSLContext | None:
        """For connections that are accepted; None where this process speaks no TLS."""
        return self._now.server

    @property
    def client(self) -> ssl.SSLContext | None:
        """For connections that are opened; None where they are plain."""
        return self._now.client

    @property
    def is_plain_taken(self) -> bool:
        """Whether a peer that does not speak TLS may come in."""
        return self._now.settings.mode is not TlsMode.ENFORCING

    @property
    def settings(self) -> TlsSettings:
        """What counts now, of both files together."""
        return self._now.settings

    @property
    def mode(self) -> TlsMode:
        """What the ports speak."""
        return self._now.settings.mode

    @property
    def expires_ms(self) -> int | None:
        """When the server's certificate ends."""
        return self._now.expires_ms

    def refuse(self, reason: str) -> None:
        """Count a connection that was closed at the door."""
        self.rejected[reason] += 1

    async def watch(self) -> None:
        """Look at the files for as long as the process runs."""
        while True:
            await asyncio.sleep(LOOK_EVERY_S)
            await self.check()

    async def check(self) -> bool:
        """Look once, in a thread, for the disk may hang; returns whether anything was replaced.

        Files that could not be used are read again at every look: a disk, or whoever may read them,
        can change without any sign in the files. A failure counts and is told once for each reason.
        """
        seen = await asyncio.to_thread(self._look)
        if seen == self._seen:
            self._trouble = ""
            return False
        try:
            self._now = await asyncio.to_thread(load, self._values, self._now.file_text)
        except ConfigInvalid as error:
            if str(error) != self._trouble:
                self._trouble = str(error)
                self.failures += 1
                self._log.log("error", "tls_not_reloaded", reason=self._trouble)
            return False
        self._trouble = ""
        self._seen = await asyncio.to_thread(self._look) if self._names_changed(seen) else seen
        self.reloads += 1
        self._log.log("info", "tls_reloaded", mode=self.mode.value, expires_ms=self.expires_ms)
        return True

    def _names_changed(self, seen: dict[str, _Stamp | None]) -> bool:
        """Whether the file of settings names other files now."""
        return set(seen) != {self._file, *self._now.settings.paths} - {""}

    def _look(self) -> dict[str, _Stamp | None]:
        """What tells one state of the files from the next."""
        paths = {self._file, *self._now.settings.paths} - {""}
        return {path: _stamp(path) for path in sorted(paths)}


def _stamp(path: str) -> _Stamp | None:
    """What shows a change: whoever copies a file can keep its time, and its size need not differ."""
    with contextlib.suppress(OSError):
        found = os.stat(path)
        return found.st_mtime_ns, found.st_ctime_ns, found.st_ino, found.st_size
    return None


def load(values: Mapping[str, str], before: str | None = None) -> Contexts:
    """Read all files and make contexts of them.

    Args:
        values: of the process's properties file.
        before: what ``tls.config.file`` held when it was used last.

    Raises:
        ConfigInvalid: one of them cannot be used, or leaves open what was closed.
    """
    text = _tls_file(values)
    check_kept(values, before, text)
    settings = read_tls(with_tls_file(values, text))
    server = client = None
    ends: int | None = None
    if settings.is_offered:
        server, ends = _server_context(settings)
    if settings.is_dialled:
        client = _client_context(settings)
    return Contexts(settings, server, client, ends, text)


def _tls_file(values: Mapping[str, str]) -> str | None:
    path = values.get("tls.config.file", "")
    if not path:
        return None
    try:
        return decode_properties(Path(path).read_bytes())
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ConfigInvalid(f"tls.config.file={path} cannot be read: {error.strerror}") from error


def _server_context(settings: TlsSettings) -> tuple[ssl.SSLContext, int]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if settings.is_test:
        with self_signed() as paths:
            context.load_cert_chain(*paths)
            return context, expires_ms(paths[0])
    _show(context, settings.server, "server")
    if settings.client_auth is not ClientAuth.NONE:
        _trust(context, settings.server.trust_path, "server")
        is_required = settings.client_auth is ClientAuth.REQUIRE
        context.verify_mode = ssl.CERT_REQUIRED if is_required else ssl.CERT_OPTIONAL
    return context, expires_ms(settings.server.cert_path)


def _client_context(settings: TlsSettings) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # Brokers are dialled by the addresses that they register; Java does not compare names either.
    context.check_hostname = False
    if not settings.is_server_checked or settings.is_test:
        context.verify_mode = ssl.CERT_NONE
    elif settings.client.trust_path:
        _trust(context, settings.client.trust_path, "client")
    else:
        context.load_default_certs()
    if settings.client.cert_path:
        _show(context, settings.client, "client")
    return context


def _show(context: ssl.SSLContext, pair: KeyPair, end: str) -> None:
    try:
        # Without a password OpenSSL would ask for one on the terminal.
        context.load_cert_chain(pair.cert_path, pair.key_path, lambda: pair.key_password)
    except (OSError, ValueError) as error:
        named = f"tls.{end}.certPath={pair.cert_path}, tls.{end}.keyPath={pair.key_path}"
        raise ConfigInvalid(f"{named}: {error}") from error


def _trust(context: ssl.SSLContext, path: str, end: str) -> None:
    try:
        context.load_verify_locations(path)
    except (OSError, ValueError) as error:
        raise ConfigInvalid(f"tls.{end}.trustCertPath={path}: {error}") from error
