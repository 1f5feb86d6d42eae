"""Which doors of a process stand open to whoever reaches its address."""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address

from rmqha.runtime.tls_settings import ClientAuth, TlsMode, TlsSettings

_LOCAL_NAMES = ("localhost", "localhost.localdomain")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches an address; an unknown name counts as one that others reach."""
    text = host.strip().strip("[]")
    if text.lower() in _LOCAL_NAMES:
        return True
    try:
        return ip_address(text).is_loopback
    except ValueError:
        return False


def open_doors(kind: str, values: Mapping[str, str], tls: TlsSettings) -> tuple[str, ...]:
    """What strangers may do, a sentence each; nothing on a loopback address or behind proof.

    Args:
        kind: ``controller``, ``name server`` or ``broker``.
        values: the configuration.
        tls: what counts of the keys about TLS, those of ``tls.config.file`` among them.
    """
    bind = values.get("bindAddress", "")
    if is_loopback(bind) or _asks_for_certificates(values, tls):
        return ()
    where = bind or "any address"
    found = []
    if not _is_true(values, "authenticationEnabled"):
        found.append(
            f"Whoever reaches {where} may send this {kind} any request:"
            " set authenticationEnabled=true, or have certificates asked for"
            " (tls.server.mode=enforcing, tls.server.need.client.auth=require)."
        )
    if kind == "controller" and not values.get("raftSecret"):
        found.append(
            f"Whoever reaches {where} may speak as a controller of this group: set raftSecret."
        )
    is_replicated = kind == "broker" and _is_true(values, "enableControllerMode")
    if is_replicated and not values.get("haSecret"):
        found.append(
            f"Whoever reaches {where} may copy the log, and acknowledge as a slave: set haSecret."
        )
    return tuple(found)


def _asks_for_certificates(values: Mapping[str, str], tls: TlsSettings) -> bool:
    return (
        tls.mode is TlsMode.ENFORCING
        and tls.client_auth is ClientAuth.REQUIRE
        and _is_true(values, "haTlsEnable", default=True)
    )


def _is_true(values: Mapping[str, str], key: str, *, default: bool = False) -> bool:
    return values.get(key, str(default)).lower() == "true"
