"""What a host's kernel drops: nftables' rules for the links that a fault takes.

Each host drops what it would hear, so a direction can be cut by itself. Rules are replaced as a
whole in one transaction: there is no moment with half of them.

Source: nftables, ``numgen`` for loss.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.chaos.scenarios import Fault

TABLE = "inet rmqha_chaos"


def rules(host: str, addresses: Mapping[str, str], fault: Fault | None) -> str:
    """The script that leaves a host with a fault's rules and no others.

    Args:
        host: whose rules.
        addresses: of all hosts, by name.
        fault: None for no rule at all.
    """
    unheard = [] if fault is None else sorted(a for a, b in fault.links if b == host)
    lines = [f"add table {TABLE}", f"delete table {TABLE}"]
    if fault is not None and unheard:
        sources = ", ".join(addresses[one] for one in unheard)
        some = "" if fault.loss_percent >= 100 else f"numgen random mod 100 < {fault.loss_percent} "
        lines += [
            f"table {TABLE} {{",
            " chain heard {",
            "  type filter hook input priority 0; policy accept;",
            f"  ip saddr {{ {sources} }} {some}drop",
            " }",
            "}",
        ]
    return "\n".join(lines) + "\n"
