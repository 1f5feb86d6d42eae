"""updateTopicPerm: change what may be done with a topic, and nothing else of it."""

from __future__ import annotations

import click
from msgspec.structs import replace

from rmqha.admin.commands.update_topic import PERM_MAX, TopicConfig
from rmqha.admin.places import place_options, places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    number_option,
    topic_option,
)
from rmqha.admin.topic_calls import mapped_config
from rmqha.base.errors import RmqhaError
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.values import as_number

_SAME = "new perm equals to the old one!\n"
_COLUMNS = ("Broker", "Topic", "Old perm", "New perm")


def run(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    topic: str,
    perm: int,
) -> Exchange[Report]:
    """Ask one broker, or every master of a cluster that has the topic (351, then 17).

    The Java tool gives all of them the queues that the first of the route has, and takes away that
    the topic is ordered; here each keeps what it has.

    Raises:
        click.UsageError: neither broker nor cluster, or both.
        NotFound: no such cluster; nobody has the topic.
    """
    asked = yield from places(name_servers, broker_address, cluster_name, masters=True)
    changed: list[tuple[str, int, TopicConfig]] = []
    failures: list[RmqhaError] = [*asked.failures]
    for address in asked.addresses:
        try:
            found = yield from _change(address, topic, perm)
        except (Refused, Unreachable) as error:
            failures.append(error)
            continue
        if found is not None:
            changed.append((address, *found))
    if not changed and not failures:
        raise NotFound(f"no broker that was asked has the topic {topic}")
    report = _report(topic, perm, changed, failures, of_cluster=bool(cluster_name))
    return replace(report, warnings=asked.warnings)


def _report(
    topic: str, perm: int, changed: list[tuple[str, int, TopicConfig]], failures: list[RmqhaError],
    *, of_cluster: bool,
) -> Report:  # fmt: skip
    plain = ""
    for address, old, config in changed:
        if old == perm and not of_cluster:
            plain += _SAME
            continue
        plain += f"update topic perm from {old} to {perm} in {address} success.\n"
        plain += "" if of_cluster else f"{config}.\n"
    rows = [(address, topic, old, perm) for address, old, _ in changed]
    data = {
        "topic": topic, "perm": perm,
        "brokers": [{"address": address, "oldPerm": old} for address, old, _ in changed],
    }  # fmt: skip
    tables = (Table("Changed", _COLUMNS, rows),) if rows else ()
    return Report(plain, data, tables, tuple(failures))


def _change(address: str, topic: str, perm: int) -> Exchange[tuple[int, TopicConfig] | None]:
    """Change the topic at one broker; returns the old permission, None where it has no such topic."""
    members = yield from mapped_config(address, topic)
    if members is None:
        return None
    old = TopicConfig(
        topic,
        as_number(members.get("readQueueNums")),
        as_number(members.get("writeQueueNums")),
        as_number(members.get("perm")),
        as_number(members.get("topicSysFlag")),
        order=members.get("order") is True,
    )
    new = replace(old, perm=perm)
    if old.perm != perm:
        fields = ext_fields(**new.fields())
        request = RemotingCommand(RequestCode.UPDATE_AND_CREATE_TOPIC, ext_fields=fields)
        yield from ask(address, request)
    return old.perm, new


def _options() -> list[click.Option]:
    return [
        *place_options(),
        topic_option(),
        number_option("-p", "--perm", "perm", high=PERM_MAX, required=True,
                      help="2 write, 4 read, 6 both."),
    ]  # fmt: skip


SPEC = CommandSpec("updateTopicPerm", "Change what may be done with a topic.", _options, run)
