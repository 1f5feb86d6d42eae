"""The changing verbs of RIP-21, on what RocketMQ 5 shipped.

updateLogicalQueueNum: have more logical queues. migrateLogicalQueue: move one, or all of a broker.
updateLogicalQueueMapping: finish what was left, and tell every broker what it lacks.
"""

from __future__ import annotations

from itertools import chain

import click

from rmqha.admin.commands import update_static_topic
from rmqha.admin.commands.update_static_topic import (
    gather_targets,
    need_topic,
    static_topic_options,
)
from rmqha.admin.report import Report
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    name_servers_option,
    names_option,
    number_option,
    text_option,
    topic_option,
)
from rmqha.admin.static_topic_report import perform
from rmqha.admin.static_topics import Wish, gather
from rmqha.client.exchange import Exchange, NotFound
from rmqha.statictopic.known import Known, histories, is_stale
from rmqha.statictopic.map_file import REMAPPING
from rmqha.statictopic.mapping import QUEUES_MAX
from rmqha.statictopic.placement import draining_moves
from rmqha.statictopic.plan import Change, remap, retell


def run_num(
    name_servers: tuple[str, ...] | None,
    topic: str,
    count: int,
    brokers: tuple[str, ...],
    clusters: tuple[str, ...],
    force: bool,
    dry_run: bool,
    here: Here,
) -> Exchange[Report]:
    """Do what updateStaticTopic does, where no map file is given.

    Raises:
        click.UsageError, NotFound, PlanRefused: as there.
    """
    return (
        yield from update_static_topic.run(
            name_servers, topic, count, brokers, clusters, None, force, dry_run, here
        )
    )


def run_migrate(
    name_servers: tuple[str, ...] | None,
    topic: str,
    logical_id: int | None,
    target: str | None,
    source: str | None,
    clusters: tuple[str, ...],
    force: bool,
    dry_run: bool,
    here: Here,
) -> Exchange[Report]:
    """Move one logical queue to a broker set, or all of one set to another, or to all others.

    Raises:
        click.UsageError: neither a queue with its target nor a set that is to be drained.
        NotFound: a topic, broker or cluster that is not there, or has no master.
        PlanRefused: no such queue; one whose broker is away, without ``force``.
    """
    servers = need_topic(name_servers, topic)
    if (logical_id is None) == (source is None) or (source is None and target is None):
        raise click.UsageError("give a logical queue with -i and its new broker set with -b, or a "
                               "broker set that is to be drained with -fb")  # fmt: skip
    # A set that is away for good is not known to the name server any more.
    named = (target,) if target else ()
    if not named and not clusters:
        named = (source,) if source else ()
    found = yield from gather(servers, topic, clusters, named)

    def change(known: Known) -> Change | None:
        if source is None:
            moves = {logical_id or 0: target or ""}
        else:
            _need_known(known, source)
            moves = draining_moves(known, source, [target] if target else [*known.brokers])
        wanted = remap(known, moves, here.now_ms, force=force)
        same = wanted.histories == retell(known, here.now_ms, force=force).histories
        return None if same and not is_stale(known, force=force) else wanted

    return (yield from perform(found, Wish(REMAPPING, change, force), here, dry_run=dry_run))


def _need_known(known: Known, source: str) -> None:
    """A set that is away for good may be drained too, as long as a queue has a segment of it.

    Raises:
        NotFound: nobody has heard of it; it was mistyped, and still leads what it leads.
    """
    segments = chain.from_iterable(histories(known).values())
    if source not in known.brokers and source not in {one.broker_name for one in segments}:
        raise NotFound(f"broker set {source} is not in the cluster, and no logical queue has a "
                       "segment of it")  # fmt: skip


def run_mapping(
    name_servers: tuple[str, ...] | None,
    topic: str,
    brokers: tuple[str, ...],
    clusters: tuple[str, ...],
    force: bool,
    dry_run: bool,
    here: Here,
) -> Exchange[Report]:
    """Finish what a command that died has left; tell brokers what they lack, new ones as well.

    Raises:
        click.UsageError: neither brokers nor a cluster, or both.
        NotFound: a topic, broker or cluster that is not there, or has no master.
    """
    found = yield from gather_targets(name_servers, topic, brokers, clusters)

    def change(known: Known) -> Change | None:
        return retell(known, here.now_ms, force=force) if is_stale(known, force=force) else None

    return (yield from perform(found, Wish(REMAPPING, change, force), here, dry_run=dry_run))


def _num_options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        number_option("-qn", "--totalQueueNum", "count", low=1, high=QUEUES_MAX, required=True,
                      help="Logical queues that there are to be; never fewer than before."),
        names_option("-b", "--brokers", "brokers", help="Broker sets for new queues, by name."),
        names_option("-c", "--clusters", "clusters", help="The cluster: all its broker sets."),
        *static_topic_options(),
    ]  # fmt: skip


def _migrate_options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        number_option("-i", "--index", "logical_id", high=QUEUES_MAX - 1,
                      help="The logical queue; needs -b."),
        text_option("-b", "--brokerName", "target", help="Its new broker set."),
        text_option("-fb", "--fromBroker", "source",
                    help="Drain this broker set: to -b, or evenly to all others."),
        names_option("-c", "--clusters", "clusters",
                     help="The cluster, where the broker sets do not tell."),
        *static_topic_options(),
    ]  # fmt: skip


def _mapping_options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        names_option("-b", "--brokers", "brokers", help="Broker sets of the cluster."),
        names_option("-c", "--clusters", "clusters", help="The cluster."),
        *static_topic_options(),
    ]


NUM_SPEC = CommandSpec(
    "updateLogicalQueueNum", "Give a static topic more logical queues.", _num_options, run_num,
    needs_here=True,
)  # fmt: skip
MIGRATE_SPEC = CommandSpec(
    "migrateLogicalQueue", "Move a logical queue, or all of a broker set.", _migrate_options,
    run_migrate, needs_here=True,
)  # fmt: skip
MAPPING_SPEC = CommandSpec(
    "updateLogicalQueueMapping", "Finish an unfinished change, and tell all brokers the mapping.",
    _mapping_options, run_mapping, needs_here=True,
)  # fmt: skip
