"""updateStaticTopic: create a static topic, or give one more logical queues."""

from __future__ import annotations

import click

from rmqha.admin.report import Report
from rmqha.admin.spec import (
    CommandSpec,
    Here,
    file_option,
    name_servers_option,
    names_option,
    need_name_servers,
    number_option,
    switch_option,
    topic_option,
)
from rmqha.admin.static_topic_report import perform
from rmqha.admin.static_topics import Found, Wish, gather
from rmqha.client.exchange import Exchange
from rmqha.remoting.topic_names import topic_error
from rmqha.statictopic.known import Known, is_stale
from rmqha.statictopic.map_file import CREATE_OR_UPDATE, apply_file, read_map_file
from rmqha.statictopic.mapping import QUEUES_MAX
from rmqha.statictopic.plan import Change, grow, retell


def run(
    name_servers: tuple[str, ...] | None,
    topic: str,
    count: int | None,
    brokers: tuple[str, ...],
    clusters: tuple[str, ...],
    map_file: bytes | None,
    force: bool,
    dry_run: bool,
    here: Here,
) -> Exchange[Report]:
    """Have so many logical queues, new ones at the brokers, or at all of the cluster.

    Where there are so many already, all brokers of the cluster are told the mapping if one of them
    lacks something.

    Raises:
        click.UsageError: neither brokers nor a cluster, or both; no number of queues.
        NotFound: a broker or cluster that is not there, or has no master.
        PlanRefused: an ordinary topic, a smaller number.
    """
    if map_file is not None:
        return (
            yield from from_file(
                name_servers, topic, brokers, clusters, map_file, force, dry_run, here
            )
        )
    if count is None:
        raise click.UsageError("give the number of logical queues with -qn, or a file with -mf")
    wanted = count
    found = yield from gather_targets(name_servers, topic, brokers, clusters)

    def change(known: Known) -> Change | None:
        if known.total_queues == wanted:
            return retell(known, here.now_ms, force=force) if is_stale(known, force=force) else None
        return grow(known, wanted, brokers or [*known.brokers], here.now_ms, force=force)

    wish = Wish(CREATE_OR_UPDATE, change, force, may_create=True)
    return (yield from perform(found, wish, here, dry_run=dry_run))


def from_file(
    name_servers: tuple[str, ...] | None,
    topic: str,
    brokers: tuple[str, ...],
    clusters: tuple[str, ...],
    map_file: bytes,
    force: bool,
    dry_run: bool,
    here: Here,
) -> Exchange[Report]:
    """Carry out what an after-file says; raises RemoteProtocolError, PlanRefused, NotFound."""
    servers = need_topic(name_servers, topic)
    file = read_map_file(map_file)
    if not clusters and not brokers:
        brokers = tuple(file.known.brokers)
    found = yield from gather(servers, topic, clusters, brokers)

    def change(known: Known) -> Change | None:
        wanted = apply_file(known, file, here.now_ms, force=force)
        same = wanted.histories == retell(known, here.now_ms, force=force).histories
        return None if same and not is_stale(known, force=force) else wanted

    wish = Wish(file.kind, change, force, may_create=True)
    return (yield from perform(found, wish, here, dry_run=dry_run))


def need_topic(name_servers: tuple[str, ...] | None, topic: str) -> tuple[str, ...]:
    """The name servers; a name that no topic has is refused: files are named after it.

    Raises:
        click.UsageError: shown with the command's usage.
    """
    servers = need_name_servers(name_servers)
    error = topic_error(topic)
    if error is not None:
        raise click.UsageError(f"-t: {error}")
    return servers


def gather_targets(
    name_servers: tuple[str, ...] | None,
    topic: str,
    brokers: tuple[str, ...],
    clusters: tuple[str, ...],
) -> Exchange[Found]:
    """What is known of a topic, where the command line says where its queues shall be.

    Raises:
        click.UsageError: neither brokers nor a cluster, or both; no name server; no topic's name.
        NotFound: a broker or cluster that is not there, or has no master.
    """
    servers = need_topic(name_servers, topic)
    if bool(brokers) == bool(clusters):
        raise click.UsageError("give either broker sets with -b or a cluster with -c")
    return (yield from gather(servers, topic, clusters, brokers))


def static_topic_options() -> list[click.Option]:
    """The options that all changes of static topics have."""
    return [
        switch_option("-fr", "--forceReplace", "force", default=False,
                      help="Also against what brokers have, and giving up brokers that are away."),
        click.Option(["--dry-run", "dry_run"], is_flag=True,
                     help="Print the steps and take none of them."),
    ]  # fmt: skip


def map_file_option() -> click.Option:
    """``-mf``: an after-file to carry out."""
    return file_option("-mf", "--mapFile", "map_file", help="An .after file to carry out (again).")


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        number_option("-qn", "--totalQueueNum", "count", low=1, high=QUEUES_MAX,
                      help="Logical queues that there are to be."),
        names_option("-b", "--brokers", "brokers", help="Broker sets for new queues, by name."),
        names_option("-c", "--clusters", "clusters", help="The cluster: all its broker sets."),
        map_file_option(),
        *static_topic_options(),
    ]  # fmt: skip


SPEC = CommandSpec(
    "updateStaticTopic", "Create a static topic, or give it more logical queues.", _options, run,
    needs_here=True,
)  # fmt: skip
