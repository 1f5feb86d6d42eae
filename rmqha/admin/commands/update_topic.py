"""updateTopic: create a topic, or change it."""

from __future__ import annotations

import click
from msgspec import Struct, field
from msgspec.structs import replace

from rmqha.admin.java_text import map_text, yes_no
from rmqha.admin.places import Places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    broker_address_option,
    cluster_option,
    name_servers_option,
    need_address_or_cluster,
    need_name_servers,
    number_option,
    switch_option,
    text_option,
    topic_option,
)
from rmqha.base.errors import RmqhaError
from rmqha.client.brokers import cluster_info, masters
from rmqha.client.exchange import Exchange, NotFound, Refused, ask_any, ask_each
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.headers import INT32_MAX, FieldValue
from rmqha.remoting.topic_names import AUTO_CREATE_TOPIC

_ORDER_NAMESPACE = "ORDER_TOPIC_CONFIG"
_QUEUES = 8
_PERM_INHERIT, _PERM_WRITE, _PERM_READ = 1, 2, 4
PERM_MAX = 7
_UNIT, _UNIT_SUB = 1, 2


class TopicConfig(Struct, frozen=True):
    """A topic as it is asked for."""

    topic: str
    read_queue_nums: int
    write_queue_nums: int
    perm: int
    topic_sys_flag: int
    order: bool
    attributes: dict[str, str] = field(default_factory=dict)

    def fields(self) -> dict[str, FieldValue]:
        """The fields of request 17."""
        pairs = [f"{key}={value}" if value else key for key, value in self.attributes.items()]
        return {
            "topic": self.topic,
            "defaultTopic": AUTO_CREATE_TOPIC,
            "readQueueNums": self.read_queue_nums,
            "writeQueueNums": self.write_queue_nums,
            "perm": self.perm,
            "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": self.topic_sys_flag,
            "order": self.order,
            "attributes": ",".join(pairs),
        }

    def __str__(self) -> str:
        bits = ((_PERM_READ, "R"), (_PERM_WRITE, "W"), (_PERM_INHERIT, "X"))
        perm = "".join(letter if self.perm & bit else "-" for bit, letter in bits)
        return (
            f"TopicConfig [topicName={self.topic}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={perm}, topicFilterType=SINGLE_TAG, "
            f"topicSysFlag={self.topic_sys_flag}, order={yes_no(self.order)}, "
            f"attributes={map_text(self.attributes)}]"
        )


def parse_attributes(text: str | None) -> dict[str, str]:
    """Read ``+a=b,+c=d,-e``.

    Raises:
        click.UsageError: not of this form, or a key twice.
    """
    found: dict[str, str] = {}
    for pair in text.split(",") if text else []:
        key, equals, value = pair.strip().partition("=")
        if not (key.startswith("+") and value if equals else key.startswith("-")) or len(key) == 1:
            raise click.UsageError(f"-a {pair!r} is neither +name=value nor -name")
        if key in found:
            raise click.UsageError(f"-a names {key} twice")
        found[key] = value
    return found


def run(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    topic: str,
    read_queue_nums: int,
    write_queue_nums: int,
    perm: int,
    order: bool,
    unit: bool,
    has_unit_sub: bool,
    attributes: str | None,
) -> Exchange[Report]:
    """Ask one broker, or every master of a cluster (17); an ordered topic is noted at 100.

    Raises:
        click.UsageError: neither broker nor cluster, or both; attributes that are none.
        NotFound: no such cluster, or the name server does not know the broker.
    """
    need_address_or_cluster(broker_address, cluster_name, exclusive=True)
    flag = (_UNIT if unit else 0) | (_UNIT_SUB if has_unit_sub else 0)
    config = TopicConfig(
        topic, read_queue_nums, write_queue_nums, perm, flag, order, parse_attributes(attributes)
    )
    servers = need_name_servers(name_servers) if cluster_name or order else ()
    found = Places((broker_address or "",))
    names = []
    if cluster_name:
        now = yield from masters(servers, cluster_name)
        found, names = Places.of(now), [one.broker_name for one in now.groups]
    elif order:
        names = [(yield from _name_of(servers, found.addresses[0]))]
    done, failures = yield from ask_each(
        found.addresses, RequestCode.UPDATE_AND_CREATE_TOPIC, **config.fields()
    )
    failures += found.failures
    updated = [address for address, _ in done]
    lines = [f"create topic to {address} success.\n" for address in updated]
    order_line = ""
    # The configuration names all broker sets that have the topic: it waits until all have it.
    if order and not failures:
        order_conf = ";".join(f"{name}:{write_queue_nums}" for name in names)
        failures += yield from _note_order(servers, topic, order_conf, whole=bool(cluster_name))
        kind = "cluster" if cluster_name else "broker"
        order_line = f"set {kind} orderConf. isOrder=true, orderConf=[{order_conf}]\n"
    text = "".join([*lines, order_line] if cluster_name else [order_line, *lines])
    report = _report(config, updated, f"{text}{config}\n" if updated else "", failures)
    return replace(report, warnings=found.warnings)


def _report(
    config: TopicConfig, updated: list[str], plain: str, failures: list[RmqhaError]
) -> Report:
    fields = config.fields()
    data: dict[str, object] = {
        "updated": updated,
        **{key: fields[key] for key in fields if key != "defaultTopic"},
    }
    data["attributes"] = config.attributes
    columns = ("Broker", "Topic", "Read queues", "Write queues", "Perm", "Ordered")
    rows = [
        (
            address, config.topic, config.read_queue_nums, config.write_queue_nums, config.perm,
            config.order,
        )
        for address in updated
    ]  # fmt: skip
    tables = (Table("Created or changed", columns, rows),) if updated else ()
    return Report(plain, data, tables, tuple(failures))


def _name_of(name_servers: tuple[str, ...], address: str) -> Exchange[str]:
    cluster = yield from cluster_info(name_servers)
    for name, group in sorted(cluster.broker_addr_table.items()):
        if address in group.broker_addrs.values():
            return name
    raise NotFound(f"broker {address} is not known to the name server")


def _note_order(
    name_servers: tuple[str, ...], topic: str, order_conf: str, *, whole: bool
) -> Exchange[list[RmqhaError]]:
    """Write the order configuration (100) at every name server; one broker's joins the others'."""
    if not whole:
        parts = {}
        try:
            _, answer = yield from ask_any(
                name_servers, RequestCode.GET_KV_CONFIG, namespace=_ORDER_NAMESPACE, key=topic
            )
            old = (answer.ext_fields or {}).get("value", "")
            parts = {part.partition(":")[0]: part for part in old.split(";") if part}
        except Refused as error:
            if error.code != ResponseCode.QUERY_NOT_FOUND:
                raise
        parts[order_conf.partition(":")[0]] = order_conf
        order_conf = ";".join(parts.values())
    _, failures = yield from ask_each(
        name_servers, RequestCode.PUT_KV_CONFIG,
        namespace=_ORDER_NAMESPACE, key=topic, value=order_conf,
    )  # fmt: skip
    return failures


def _options() -> list[click.Option]:
    return [
        name_servers_option(),
        broker_address_option(),
        cluster_option(),
        topic_option(),
        number_option("-r", "--readQueueNums", "read_queue_nums", high=INT32_MAX, default=_QUEUES,
                      help="Queues to read (default 8)."),
        number_option("-w", "--writeQueueNums", "write_queue_nums", high=INT32_MAX,
                      default=_QUEUES, help="Queues to write (default 8)."),
        number_option("-p", "--perm", "perm", high=PERM_MAX, default=_PERM_READ | _PERM_WRITE,
                      help="2 write, 4 read, 6 both (default)."),
        switch_option("-o", "--order", "order", default=False, help="Ordered topic."),
        switch_option("-u", "--unit", "unit", default=False, help="Unit topic."),
        switch_option("-s", "--hasUnitSub", "has_unit_sub", default=False,
                      help="Has unit subscriptions."),
        text_option("-a", "--attributes", "attributes", help="+name=value,-name,..."),
    ]  # fmt: skip


SPEC = CommandSpec("updateTopic", "Create or change a topic.", _options, run)
