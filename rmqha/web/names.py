"""The full names of this machine, as its own files know them.

Pure. Nobody is asked: an answer from outside could take long at a start, and is not the machine's
own word.
"""

from __future__ import annotations

from collections.abc import Iterator

LOCAL = ("localhost", "localhost.localdomain")
_SERVICE_LABELS = 4
_SERVICE = "svc"


def machine_names(name: str, hosts: str, resolver: str) -> frozenset[str]:
    """What others may call a machine.

    A name that only begins like the machine's is not one of them: whoever owns ``evil.com`` has
    ``localhost.evil.com`` point wherever he likes.

    Args:
        name: of the machine, as it calls itself.
        hosts: the content of its ``/etc/hosts``.
        resolver: of its ``/etc/resolv.conf``.

    Returns:
        Names in lower case, without a dot at the end.
    """
    own = plain(name)
    listed = {one for one in _listed(hosts) if one.startswith(f"{own}.")}
    searched = {f"{own}.{domain}" for domain in _searched(resolver)}
    # Pods of Kubernetes say pod.service.namespace.svc for it, too. Not less than that: there are
    # domains like .broker and .dev, in which anybody can have a name like pod.service.
    parts = [one.split(".") for one in listed]
    services = {".".join(one[:_SERVICE_LABELS]) for one in parts if one[3:4] == [_SERVICE]}
    return frozenset({own, *LOCAL, *listed, *searched, *services} - {""})


def plain(name: str) -> str:
    """A name as it is compared."""
    return name.strip().lower().rstrip(".")


def _listed(hosts: str) -> Iterator[str]:
    for line in hosts.splitlines():
        yield from map(plain, line.partition("#")[0].split()[1:])


def _searched(resolver: str) -> Iterator[str]:
    for line in resolver.splitlines():
        keyword, *domains = line.split() or [""]
        if keyword in ("search", "domain"):
            yield from filter(None, map(plain, domains))
