"""Whether a user may do something. Pure.

A custom policy comes before a default one. Of the entries that match, the one with the most exact
resource counts: a literal name, then the longest prefix, then any name, then ``*``; of two with the
same resource, the one that denies.

Source: UserAuthorizationHandler and AclAuthorizationHandler of RocketMQ 5.3.3. Of two entries
with one resource Java takes the one that allows, though its comment wants the other.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.auth.accounts import Account, Decision, Entry, Policy, PolicyType
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.resources import Action, Resource


def check_allowed(
    account: Account, resource: Resource, actions: Iterable[Action], source_ip: str
) -> None:
    """Let a request pass, or not.

    Args:
        actions: the request needs one of them.
        source_ip: where it comes from.

    Raises:
        Refused: it may not, in Java's words.
    """
    if account.is_super:
        return
    entry = deciding_entry(account.policies, resource, actions, source_ip)
    if entry is not None and entry.decision is Decision.ALLOW:
        return
    detail = "no matched policies." if entry is None else "the decision is deny."
    raise Refused(
        Reason.NO_POLICY if entry is None else Reason.DENIED,
        f"{account.subject} has no permission to access {resource.key} from {source_ip}, {detail}",
    )


def deciding_entry(
    policies: Iterable[Policy], resource: Resource, actions: Iterable[Action], source_ip: str
) -> Entry | None:
    """The entry that decides; None where none says anything."""
    by_kind: dict[PolicyType, list[Entry]] = {kind: [] for kind in PolicyType}
    wanted = tuple(actions)
    for policy in policies:
        by_kind[policy.kind] += (
            e for e in policy.entries if e.matches(resource, wanted, source_ip)
        )
    found = by_kind[PolicyType.CUSTOM] or by_kind[PolicyType.DEFAULT]
    return min(found, key=_rank, default=None)


def _rank(entry: Entry) -> tuple[tuple[int, int, int], bool]:
    return entry.resource.rank, entry.decision is Decision.ALLOW
