"""What is set about TLS: Java's ``tls.*`` keys, from a process's file or from ``tls.config.file``.

Source: TlsSystemConfig and TlsHelper of RocketMQ 5.x. Java takes them from system properties; here
they stand in the process's own properties file, and what ``tls.config.file`` says comes before it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import TypeVar

from msgspec import Struct

from rmqha.base.errors import ConfigInvalid
from rmqha.runtime.properties import parse_properties, shown

TLS_DEFAULTS: dict[str, str] = {
    "tls.client.authServer": "false",
    "tls.client.certPath": "",
    "tls.client.keyPassword": "",
    "tls.client.keyPath": "",
    "tls.client.trustCertPath": "",
    "tls.config.file": "/etc/rocketmq/tls.properties",
    "tls.enable": "false",
    "tls.server.authClient": "false",
    "tls.server.certPath": "",
    "tls.server.keyPassword": "",
    "tls.server.keyPath": "",
    "tls.server.mode": "permissive",
    "tls.server.need.client.auth": "none",
    "tls.server.trustCertPath": "",
    "tls.test.mode.enable": "false",
}
"""Java's defaults, but for the test mode, which is off."""

ChoiceT = TypeVar("ChoiceT", bound=Enum)

GUARDS = (
    "tls.client.authServer", "tls.client.certPath", "tls.client.trustCertPath", "tls.enable",
    "tls.server.authClient", "tls.server.certPath", "tls.server.mode",
    "tls.server.need.client.auth", "tls.server.trustCertPath", "tls.test.mode.enable",
)  # fmt: skip
"""Keys whose loss may open a door."""

FLAGS = ("tls.client.authServer", "tls.enable", "tls.server.authClient", "tls.test.mode.enable")


class TlsMode(Enum):
    """What a port speaks (``tls.server.mode``)."""

    DISABLED = "disabled"
    PERMISSIVE = "permissive"
    ENFORCING = "enforcing"


class ClientAuth(Enum):
    """Whether a port asks for a client's certificate (``tls.server.need.client.auth``)."""

    NONE = "none"
    OPTIONAL = "optional"
    REQUIRE = "require"


_WORDS = {"true", "false", *(one.value for one in (*TlsMode, *ClientAuth))}


class KeyPair(Struct, frozen=True):
    """PEM files of one end; empty texts where there is none.

    Attributes:
        cert_path, key_path, key_password: the certificate chain shown to the other end.
        trust_path: the certificates that sign those of the other end.
    """

    cert_path: str
    key_path: str
    key_password: str
    trust_path: str

    @property
    def paths(self) -> tuple[str, ...]:
        """The files that are named."""
        return tuple(path for path in (self.cert_path, self.key_path, self.trust_path) if path)


class TlsSettings(Struct, frozen=True):
    """What is set, checked: modes as they are meant, and files that belong together.

    Attributes:
        mode: what the ports speak.
        client_auth: whether they ask for a certificate.
        is_dialled: whether connections that this process opens speak TLS (``tls.enable``).
        is_server_checked: whether the certificate of who is dialled is checked.
        is_test: a certificate is made at the start, and nobody can check it.
        server, client: the files of both ends.
    """

    mode: TlsMode
    client_auth: ClientAuth
    is_dialled: bool
    is_server_checked: bool
    is_test: bool
    server: KeyPair
    client: KeyPair

    @property
    def is_offered(self) -> bool:
        """Whether the ports can speak TLS at all."""
        return self.mode is not TlsMode.DISABLED and (self.is_test or bool(self.server.cert_path))

    @property
    def paths(self) -> tuple[str, ...]:
        """All files that are named, to be watched."""
        return (*self.server.paths, *self.client.paths)


def with_tls_file(values: Mapping[str, str], text: str | None) -> dict[str, str]:
    """The keys of both files together; ``text`` is the TLS file's, None when there is none.

    Raises:
        ConfigInvalid: the file is no properties file, or has keys that are not about TLS.
    """
    merged = {key: values.get(key, default) for key, default in TLS_DEFAULTS.items()}
    if text is None:
        return merged
    path = merged["tls.config.file"]
    try:
        found = parse_properties(text)
    except ConfigInvalid as error:
        raise ConfigInvalid(f"tls.config.file={path}: {error}") from error
    for key, value in found.items():
        if key not in TLS_DEFAULTS or key == "tls.config.file":
            raise ConfigInvalid(f"{path}: {shown(key)} is no key of this file")
        merged[key] = value.strip()
    return merged


def check_kept(values: Mapping[str, str], before: str | None, now: str | None) -> None:
    """Refuse a TLS file that lost what it said: nobody opens a port by leaving something out.

    An editor empties a file before it writes it, and who removes one rarely means every door. A
    value that is written down counts, also one that opens.

    Args:
        values: of the process's own file.
        before: the TLS file as it was used last; None when there was none.
        now: as it is; None when it is gone.

    Raises:
        ConfigInvalid: the file is gone, or a key of :data:`GUARDS` that had an effect is.
    """
    if before is None:
        return
    path = values.get("tls.config.file", "")
    if now is None:
        raise ConfigInvalid(f"tls.config.file={path} is gone")
    old, new = with_tls_file(values, before), with_tls_file(values, now)
    written = parse_properties(now)
    lost = [key for key in GUARDS if key not in written and _meant(old[key]) != _meant(new[key])]
    if lost:
        raise ConfigInvalid(
            f"{path} says nothing more of {', '.join(lost)}: write what shall count"
        )


def _meant(text: str) -> str:
    """Flags and modes in one way of writing; paths as they are, unless they are words like these."""
    said = text.strip()
    return said.lower() if said.lower() in _WORDS else said


def read_tls(values: Mapping[str, str]) -> TlsSettings:
    """Check the keys; those that are missing have their defaults.

    Raises:
        ConfigInvalid: a value that cannot be used, or files that do not do what is asked for.
    """
    merged = {**TLS_DEFAULTS, **{key: values[key] for key in TLS_DEFAULTS if key in values}}
    for key in FLAGS:
        if merged[key].lower() not in ("true", "false"):
            raise ConfigInvalid(f"{key}={merged[key]} is neither true nor false")
    on = {key: merged[key].lower() == "true" for key in FLAGS}
    settings = TlsSettings(
        _choice(TlsMode, "tls.server.mode", merged),
        _choice(ClientAuth, "tls.server.need.client.auth", merged),
        on["tls.enable"],
        on["tls.client.authServer"],
        on["tls.test.mode.enable"],
        _pair("server", merged),
        _pair("client", merged),
    )
    _check(settings, checks_clients=on["tls.server.authClient"])
    return settings


def _choice(kind: type[ChoiceT], key: str, merged: Mapping[str, str]) -> ChoiceT:
    try:
        return kind(merged[key].lower())
    except ValueError:
        named = ", ".join(one.value for one in kind)
        raise ConfigInvalid(f"{key}={merged[key]} is none of {named}") from None


def _pair(end: str, merged: Mapping[str, str]) -> KeyPair:
    pair = KeyPair(
        merged[f"tls.{end}.certPath"], merged[f"tls.{end}.keyPath"],
        merged[f"tls.{end}.keyPassword"], merged[f"tls.{end}.trustCertPath"],
    )  # fmt: skip
    if bool(pair.cert_path) != bool(pair.key_path):
        raise ConfigInvalid(f"tls.{end}.certPath and tls.{end}.keyPath belong together")
    return pair


def _check(settings: TlsSettings, *, checks_clients: bool) -> None:
    if settings.mode is TlsMode.ENFORCING and not settings.is_offered:
        raise ConfigInvalid(
            "tls.server.mode=enforcing needs tls.server.certPath and tls.server.keyPath"
        )
    asks = settings.client_auth is not ClientAuth.NONE
    if asks and not settings.is_test and not (checks_clients and settings.server.trust_path):
        # Java takes any certificate then: it looks safe and is not.
        raise ConfigInvalid(
            f"tls.server.need.client.auth={settings.client_auth.value} needs "
            "tls.server.authClient=true and tls.server.trustCertPath"
        )
    if settings.is_test and settings.client_auth is ClientAuth.REQUIRE:
        raise ConfigInvalid(
            "tls.test.mode.enable=true cannot check the certificates that "
            "tls.server.need.client.auth=require asks for"
        )
