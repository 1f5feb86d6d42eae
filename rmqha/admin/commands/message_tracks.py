"""One message in full, with what each consumer group did with it."""

from __future__ import annotations

from typing import NamedTuple

import click

from rmqha.admin.bodies import ConsumerConnection
from rmqha.admin.commands.consume_stats import consume_stats, consumer_connection
from rmqha.admin.commands.topic_list import groups_of_topic
from rmqha.admin.java_text import hash_order, null
from rmqha.admin.messages import StoredMessage
from rmqha.admin.report import Report, Table
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import cluster_info, topic_route
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable
from rmqha.remoting.topic_names import BROADCASTING

_OFFLINE = 206
_ACTIVELY, _PASSIVELY = "CONSUME_ACTIVELY", "CONSUME_PASSIVELY"


class Track(NamedTuple):
    """What a group did with a message, in the Java tool's words."""

    group: str
    kind: str
    reason: str | None = None

    def __str__(self) -> str:
        return (
            f"MessageTrack [consumerGroup={self.group}, trackType={self.kind}, "
            f"exceptionDesc={null(self.reason)}]"
        )


def charset_option() -> click.Option:
    """``-f``: the encoding to show the body in."""
    return click.Option(
        ["-f", "--bodyFormat", "charset"], callback=_charset, help="Show the body, such as UTF-8."
    )


def _charset(context: click.Context, parameter: click.Parameter, value: str | None) -> str | None:
    if value is not None:
        try:
            "x".encode(value.strip())
        except (LookupError, ValueError) as error:
            raise click.BadParameter(f"{value!r} is no encoding", context, parameter) from error
        return value.strip()
    return None


def described(
    name_servers: tuple[str, ...],
    message: StoredMessage,
    charset: str | None,
    *,
    number: int = 0,
    has_place: bool = True,
) -> Exchange[Report]:
    """Report one message, its body in a file, and its tracks.

    A broker that cannot say who consumes it costs the tracks, not the message.

    Args:
        number: of several messages of one id, whose bodies need files of their own.
        has_place: the id of the message's place is shown, too.
    """
    tracks: list[Track] = []
    failures: tuple[RmqhaError, ...] = ()
    try:
        tracks = yield from _tracks(name_servers, message)
    except (Refused, Unreachable) as error:
        failures = (error,)
    path = message.body_path + (f"_{number}" if number else "")
    lines = message.lines(path)[0 if has_place else 1 :]
    if charset:
        lines.append(("Message Body:", message.body.decode(charset, "replace")))
    plain = "".join(f"{name:<20} {value}\n" for name, value in lines)
    if tracks:
        plain += "\n\n" + "".join(f"{track}\n" for track in tracks)
    elif not failures:
        plain += "\n\nWARN: No Consumer\n"
    data = {**message.data(), "tracks": [_track_data(track) for track in tracks]}
    rows = [(name.removesuffix(":"), value) for name, value in lines]
    tables = [Table(message.message_id, ("What", "Value"), rows)]
    if tracks:
        tables.append(Table("Consumers", ("Group", "Track", "Why"), tracks))
    files = {path: message.body}
    return Report(plain, data, tuple(tables), failures, files, makes_folders=True)


def merged(reports: list[Report]) -> Report:
    """The reports on several messages as one."""
    return Report(
        "".join(report.plain for report in reports),
        [report.data for report in reports],
        tuple(table for report in reports for table in report.tables),
        tuple(failure for report in reports for failure in report.failures),
        {path: body for report in reports for path, body in report.files.items()},
        makes_folders=True,
    )


def _track_data(track: Track) -> dict[str, object]:
    return {"consumerGroup": track.group, "trackType": track.kind, "exceptionDesc": track.reason}


def _tracks(name_servers: tuple[str, ...], message: StoredMessage) -> Exchange[list[Track]]:
    route = yield from topic_route(name_servers, message.stored.topic)
    groups = yield from groups_of_topic(route, message.stored.topic)
    tracks = []
    for group in hash_order(groups):
        track = yield from _track(name_servers, message, group)
        tracks.append(track)
    return tracks


def _track(name_servers: tuple[str, ...], message: StoredMessage, group: str) -> Exchange[Track]:
    try:
        _, connection = yield from consumer_connection(name_servers, group)
        if connection.consume_type == _ACTIVELY:
            return Track(group, "PULL")
        if connection.consume_type != _PASSIVELY:
            return Track(group, "UNKNOWN")
        if connection.message_model == BROADCASTING:
            return Track(group, "CONSUME_BROADCASTING")
        if not (yield from _is_consumed(name_servers, message, group)):
            return Track(group, "NOT_CONSUME_YET")
    except Refused as error:
        reason = f"CODE:{error.code} DESC:{error.remark}"
        return Track(group, "NOT_ONLINE" if error.code == _OFFLINE else "UNKNOWN", reason)
    except (Unreachable, NotFound) as error:
        return Track(group, "UNKNOWN", str(error))
    return Track(group, "CONSUMED" if _is_wanted(connection, message) else "CONSUMED_BUT_FILTERED")


def _is_wanted(connection: ConsumerConnection, message: StoredMessage) -> bool:
    tags = connection.subscriptions.get(message.stored.topic, ())
    return not tags or "*" in tags or message.tags in tags


def _is_consumed(
    name_servers: tuple[str, ...], message: StoredMessage, group: str
) -> Exchange[bool]:
    """Whether the group is beyond the message's place at the broker that stored it.

    After a failover that broker need not be the master: any address of the set counts.
    """
    stats, failures = yield from consume_stats(name_servers, group)
    cluster = yield from cluster_info(name_servers)
    stored = message.stored
    for key, offset in stats.offset_table.items():
        if (key.topic, key.queue_id) != (stored.topic, stored.queue_id):
            continue
        members = cluster.broker_addr_table.get(key.broker_name)
        here = members is not None and message.store_address in members.broker_addrs.values()
        if here and offset.consumer_offset > stored.queue_offset:
            return True
    if failures:
        raise failures[0]  # it may be the one that would have known
    return False
