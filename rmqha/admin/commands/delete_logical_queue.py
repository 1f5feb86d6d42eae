"""deleteLogicalQueue: delete a static topic with all its logical queues.

One logical queue alone cannot be deleted. Clients spread their messages over all of them, and what
belongs together stays together only while their number does; brokers and clients refuse a number
that falls. Whoever needs fewer queues makes a new topic.
"""

from __future__ import annotations

import click

from rmqha.admin.commands import delete_topic
from rmqha.admin.report import Report
from rmqha.admin.spec import (
    CommandSpec,
    cluster_option,
    name_servers_option,
    need_name_servers,
    switch_option,
    topic_option,
)
from rmqha.admin.static_topics import gather
from rmqha.admin.topic_calls import topic_stats
from rmqha.client.exchange import Exchange, NotFound
from rmqha.statictopic.known import PlanRefused


def run(
    name_servers: tuple[str, ...] | None, topic: str, cluster_name: str, force: bool
) -> Exchange[Report]:
    """Delete the topic everywhere (215, 216) if no queue of it has a message left.

    Raises:
        click.UsageError: no name server.
        NotFound: no such cluster; no such topic, or an ordinary one.
        PlanRefused: there are messages, and ``force`` is not given.
    """
    servers = need_name_servers(name_servers)
    found = yield from gather(servers, topic, (cluster_name,), ())
    if not found.known.details:
        raise NotFound(f"{topic} has no logical queues in cluster {cluster_name}")
    for name, one in sorted(found.known.brokers.items()):
        if force or one.write_queue_nums == 0:
            continue
        ends, _ = yield from topic_stats(found.addresses[name], topic)
        left = sum(end.max_offset - end.min_offset for end in ends.values())
        if left:
            raise PlanRefused(f"{name} has {left} messages of {topic}; -fr true deletes it anyway")
    return (yield from delete_topic.run(servers, topic, cluster_name))


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        topic_option(),
        cluster_option(required=True),
        switch_option("-fr", "--forceReplace", "force", default=False,
                      help="Also while there are messages."),
    ]  # fmt: skip


SPEC = CommandSpec(
    "deleteLogicalQueue",
    "Delete a static topic with all its logical queues; one alone cannot be deleted, for clients "
    "spread messages over their number.",
    _options,
    run,
)
