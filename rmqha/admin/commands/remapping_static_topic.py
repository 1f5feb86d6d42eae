"""remappingStaticTopic: spread a static topic's logical queues over other brokers."""

from __future__ import annotations

import click

from rmqha.admin.commands.update_static_topic import (
    from_file,
    gather_targets,
    map_file_option,
    static_topic_options,
)
from rmqha.admin.report import Report
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    name_servers_option,
    names_option,
    topic_option,
)
from rmqha.admin.static_topic_report import perform
from rmqha.admin.static_topics import Wish
from rmqha.client.exchange import Exchange
from rmqha.statictopic.known import Known, is_stale
from rmqha.statictopic.map_file import REMAPPING
from rmqha.statictopic.placement import balancing_moves
from rmqha.statictopic.plan import Change, remap


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    brokers: tuple[str, ...],
    clusters: tuple[str, ...],
    map_file: bytes | None,
    force: bool,
    dry_run: bool,
    here: Here,
) -> Exchange[Report]:
    """Have the brokers, or all of the cluster, lead all queues, evenly and with few moves.

    Raises:
        click.UsageError: neither brokers nor a cluster, or both.
        NotFound: a topic, broker or cluster that is not there, or has no master.
        PlanRefused: an ordinary topic; a queue whose broker is away, without ``force``.
    """
    if map_file is not None:
        return (
            yield from from_file(
                name_servers, topic, brokers, clusters, map_file, force, dry_run, here
            )
        )
    found = yield from gather_targets(name_servers, topic, brokers, clusters)

    def change(known: Known) -> Change | None:
        moves = balancing_moves(known, brokers or [*known.brokers])
        wanted = remap(known, moves, here.now_ms, force=force)
        return wanted if moves or is_stale(known, force=force) else None

    return (yield from perform(found, Wish(REMAPPING, change, force), here, dry_run=dry_run))


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        names_option("-b", "--brokers", "brokers", help="Broker sets that are to lead all queues."),
        names_option("-c", "--clusters", "clusters", help="The cluster: all its broker sets."),
        map_file_option(),
        *static_topic_options(),
    ]


SPEC = CommandSpec(
    "remappingStaticTopic", "Move a static topic's logical queues to other brokers.", _options,
    run, needs_here=True,
)  # fmt: skip
