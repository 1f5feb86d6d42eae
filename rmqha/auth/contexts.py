"""What a request to a broker asks for: resources, each with actions of which one is needed.

Java looks at the codes of :data:`SPECIAL` by hand and at others by annotations of their headers. A
code that it has no header for passes with any user's signature: so every user could change a
broker's configuration (25), make groups (200), or pull any topic as a lite consumer (361). Here a
code that nothing else is known of needs Update of the cluster, and :data:`BODIES` and :data:`RULES`
know those of clients.

Source: DefaultAuthorizationContextBuilder and the request headers of RocketMQ 5.3.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from rmqha.auth.refused import Reason, Refused
from rmqha.auth.resources import Action, Resource, ResourceType, group, topic
from rmqha.base.errors import RemoteProtocolError
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.topic_names import (
    CLOSED_TOPICS,
    RETRY_PREFIX,
    REVIVE_TOPIC,
    TIMER_TOPIC,
    topics_listed,
)

NO_FIELDS: dict[str, str] = {}

PUB, SUB, GET = (Action.PUB,), (Action.SUB,), (Action.GET,)
CREATE, UPDATE, DELETE = (Action.CREATE,), (Action.UPDATE,), (Action.DELETE,)
SUB_OR_GET, SUB_OR_UPDATE = (Action.SUB, Action.GET), (Action.SUB, Action.UPDATE)


class Context(NamedTuple):
    """One thing that a request asks for.

    Attributes:
        actions: the user needs one of them.
    """

    resource: Resource
    actions: tuple[Action, ...]


class Rule(NamedTuple):
    """What fields of a request name; with none of them, or without any, it is the cluster.

    Attributes:
        has_list: ``topicList`` names some, too.
    """

    actions: tuple[Action, ...]
    topics: tuple[str, ...] = ()
    groups: tuple[str, ...] = ()
    has_list: bool = False


FREE = frozenset({int(RequestCode.CHECK_CLIENT_CONFIG), int(RequestCode.SEND_REPLY_MESSAGE),
                  int(RequestCode.SEND_REPLY_MESSAGE_V2)})  # fmt: skip
"""Any user may: a selector is compiled, or an answer goes to the client that waits for it."""

_TOPIC, _GROUP = ("topic",), ("consumerGroup",)
RULES: dict[int, Rule] = {
    RequestCode.CLONE_GROUP_OFFSET: Rule(UPDATE, _TOPIC, ("destGroup",)),
    RequestCode.CONSUME_MESSAGE_DIRECTLY: Rule(SUB, (), _GROUP),
    RequestCode.DELETE_SUBSCRIPTIONGROUP: Rule(DELETE, (), ("groupName",)),
    RequestCode.DELETE_TOPIC_IN_BROKER: Rule(DELETE, _TOPIC),
    RequestCode.GET_ALL_CONSUMER_OFFSET: Rule(GET),
    RequestCode.GET_ALL_DELAY_OFFSET: Rule(GET),
    RequestCode.GET_ALL_MESSAGE_REQUEST_MODE: Rule(GET),
    RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG: Rule(GET),
    RequestCode.GET_ALL_TOPIC_CONFIG: Rule((Action.GET, Action.LIST)),
    RequestCode.GET_ALL_PRODUCER_INFO: Rule(GET),
    RequestCode.GET_BROKER_CONFIG: Rule(GET),
    RequestCode.GET_BROKER_CONSUME_STATS: Rule(GET),
    RequestCode.GET_BROKER_EPOCH_CACHE: Rule(GET),
    RequestCode.GET_BROKER_HA_STATUS: Rule(GET),
    RequestCode.GET_BROKER_RUNTIME_INFO: Rule(GET),
    RequestCode.GET_CONTROLLER_VIEW: Rule(GET),
    RequestCode.GET_CONSUMER_CONNECTION_LIST: Rule(GET, (), _GROUP),
    RequestCode.GET_CONSUMER_LIST_BY_GROUP: Rule(SUB_OR_GET, (), _GROUP),
    RequestCode.GET_CONSUMER_RUNNING_INFO: Rule(GET, (), _GROUP),
    RequestCode.GET_CONSUME_STATS: Rule(GET, _TOPIC, _GROUP, has_list=True),
    RequestCode.GET_EARLIEST_MSG_STORETIME: Rule(GET, _TOPIC),
    RequestCode.GET_MAX_OFFSET: Rule(GET, _TOPIC),
    RequestCode.GET_MIN_OFFSET: Rule(GET, _TOPIC),
    RequestCode.GET_PRODUCER_CONNECTION_LIST: Rule(GET),
    RequestCode.GET_SUBSCRIPTIONGROUP_CONFIG: Rule(GET, (), ("group",)),
    RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_BROKER: Rule(GET),
    RequestCode.GET_TIMER_CHECK_POINT: Rule(GET),
    RequestCode.GET_TIMER_METRICS: Rule(GET),
    RequestCode.GET_TOPIC_CONFIG: Rule(GET, _TOPIC),
    RequestCode.GET_TOPIC_STATS_INFO: Rule(GET, _TOPIC),
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: Rule(GET, _TOPIC, ("group",)),
    RequestCode.INVOKE_BROKER_TO_RESET_OFFSET: Rule(UPDATE, _TOPIC, ("group",)),
    RequestCode.NOTIFICATION: Rule(SUB, _TOPIC, _GROUP),
    RequestCode.PEEK_MESSAGE: Rule(SUB, _TOPIC, _GROUP),
    RequestCode.POLLING_INFO: Rule(GET, _TOPIC, _GROUP),
    RequestCode.POP_MESSAGE: Rule(SUB, _TOPIC, _GROUP),
    RequestCode.QUERY_CONSUME_QUEUE: Rule(GET, _TOPIC, _GROUP),
    RequestCode.QUERY_CONSUME_TIME_SPAN: Rule(GET, _TOPIC, ("group",)),
    RequestCode.QUERY_CORRECTION_OFFSET: Rule(GET, _TOPIC, ("compareGroup",)),
    RequestCode.QUERY_MESSAGE: Rule(SUB_OR_GET, _TOPIC),
    RequestCode.QUERY_SUBSCRIPTION_BY_CONSUMER: Rule(GET, _TOPIC, ("group",)),
    RequestCode.QUERY_TOPICS_BY_CONSUMER: Rule(GET, (), ("group",)),
    RequestCode.QUERY_TOPIC_CONSUME_BY_WHO: Rule(GET, _TOPIC),
    RequestCode.RECALL_MESSAGE: Rule(PUB, _TOPIC),
    RequestCode.SEARCH_OFFSET_BY_TIMESTAMP: Rule(GET, _TOPIC),
    RequestCode.UPDATE_AND_CREATE_STATIC_TOPIC: Rule(CREATE, _TOPIC),
    RequestCode.UPDATE_AND_CREATE_TOPIC: Rule(CREATE, _TOPIC),
    RequestCode.VIEW_BROKER_STATS_DATA: Rule(GET),
    RequestCode.VIEW_MESSAGE_BY_ID: Rule(GET, _TOPIC),
    RequestCode.AUTH_GET_USER: Rule(GET),
    RequestCode.AUTH_LIST_USER: Rule(GET),
    RequestCode.AUTH_GET_ACL: Rule(GET),
    RequestCode.AUTH_LIST_ACL: Rule(GET),
}
OTHERWISE = Rule(UPDATE)

READING = frozenset({int(RequestCode.PULL_MESSAGE), int(RequestCode.LITE_PULL_MESSAGE),
                     int(RequestCode.POP_MESSAGE), int(RequestCode.PEEK_MESSAGE),
                     int(RequestCode.QUERY_MESSAGE), int(RequestCode.QUERY_CONSUME_QUEUE)})  # fmt: skip
"""Messages of a topic that is named, whatever they are of."""

HOLDING_OTHERS = CLOSED_TOPICS - {"SELF_TEST_TOPIC", "OFFSET_MOVED_EVENT"} | {TIMER_TOPIC}
"""What waits for its time or its commit is there, or could not be committed, and what is known of it.
The two others hold nobody's messages: tools consume the second."""


def contexts_of(request: RemotingCommand, cluster: str) -> list[Context]:
    """All that a request asks for; each has to be allowed.

    Raises:
        Refused: what it asks for cannot be read.
    """
    code, fields = request.code, request.ext_fields or NO_FIELDS
    if code in FREE:
        return []
    if code in READING and holds_others(fields.get("topic", "")):
        return [*_named(request, fields, cluster), _whole_cluster(cluster, GET)]
    return _named(request, fields, cluster)


def holds_others(topic_name: str) -> bool:
    """Whether a topic is a broker's own, in which messages of all topics wait (``HOLDING_OTHERS``).

    Who reads it reads them all, whatever is denied to him: it takes what it takes to read a broker's
    configuration. Java asks for the topic that is named alone, and ``Topic:*`` has it.
    """
    return topic_name in HOLDING_OTHERS or topic_name.startswith(REVIVE_TOPIC)


def _named(request: RemotingCommand, fields: Mapping[str, str], cluster: str) -> list[Context]:
    code = request.code
    try:
        if (special := SPECIAL.get(code)) is not None:
            return [one for one in special(fields) if one.resource.name]
        if (bodied := BODIES.get(code)) is not None:
            return list(bodied(fastjson.loads(request.body) if request.body else {}))
    except (RemoteProtocolError, AttributeError, LookupError, TypeError) as error:
        raise Refused(Reason.MALFORMED, "parse authorization context error.") from error
    return _by_rule(RULES.get(code, OTHERWISE), fields, cluster)


def _by_rule(rule: Rule, fields: Mapping[str, str], cluster: str) -> list[Context]:
    found = [
        Context(resource(fields[name]), rule.actions)
        for resource, names in ((group, rule.groups), (topic, rule.topics))
        for name in names
        if fields.get(name)
    ]
    if rule.has_list:
        found += (Context(topic(name), rule.actions) for name in topics_listed(fields))
    return found or [_whole_cluster(cluster, rule.actions)]


def _whole_cluster(cluster: str, actions: tuple[Action, ...]) -> Context:
    return Context(Resource(ResourceType.CLUSTER, cluster), actions)


def send_context(topic_name: str) -> Context:
    """What a message asks for: one of a retry topic is a consumer's that hands it back.

    Java asks for the group that the *sender* names, which may be another than the topic's.
    """
    if topic_name.startswith(RETRY_PREFIX):
        return Context(group(topic_name), SUB)
    return Context(topic(topic_name), PUB)


def record_contexts(topic_name: str, group_name: str, actions: tuple[Action, ...]) -> list[Context]:
    """What a record of a topic is of, for who names it by its place in the log, and is given it.

    Args:
        group_name: who consumes it; empty for nobody.
    """
    found = list(_of_topic(topic_name, group_name, actions, is_handle=False))
    return found or [Context(group(group_name), actions)]


def _of_topic(
    name: str, group_name: str, actions: tuple[Action, ...], *, is_handle: bool = True
) -> Iterator[Context]:
    """What a topic asks for beside the group that consumes it; that group's retry topic nothing.

    Where pops are retried, the topic's name comes behind the group's: ``%RETRY%group+topic``, or
    with an underscore, which may as well be of another group's name. So it counts only where
    nothing is delivered, as in an acknowledgement.

    Args:
        is_handle: the name is of a message that was delivered before.
    """
    if not name.startswith(RETRY_PREFIX):
        yield Context(topic(name), actions)
        return
    of_group, plus, of_topic = name.removeprefix(RETRY_PREFIX).partition("+")
    if plus:
        if of_group != group_name:
            yield Context(group(of_group), actions)
        yield Context(topic(of_topic), actions)
    elif group_name and is_handle and of_group.startswith(f"{group_name}_"):
        yield Context(topic(of_group.removeprefix(f"{group_name}_")), actions)
    elif of_group != group_name:
        yield Context(group(of_group), actions)


# -- codes that Java looks at by hand ------------------------------------------------------------------

_Fields = Mapping[str, str]


def _send(fields: _Fields) -> Iterator[Context]:
    yield send_context(fields.get("topic", ""))


def _send_short(fields: _Fields) -> Iterator[Context]:
    yield send_context(fields.get("b", ""))


def _end_transaction(fields: _Fields) -> Iterator[Context]:
    """Clients before 5.2 name no topic; the half message was one that its sender might send."""
    if fields.get("topic"):
        yield Context(topic(fields["topic"]), PUB)


def _send_back(fields: _Fields) -> Iterator[Context]:
    yield Context(group(fields.get("group", "")), SUB)


def _consumed(
    fields: _Fields, actions: tuple[Action, ...], *, is_handle: bool = True
) -> Iterator[Context]:
    """Java lets every group pull the retry topics of others, and for an acknowledgement in one where
    pops are retried it asks for a group of that name."""
    name, of_group = fields.get("topic", ""), fields.get("consumerGroup", "")
    yield from _of_topic(name, of_group, actions, is_handle=is_handle)
    yield Context(group(of_group), actions)


def _pull(fields: _Fields) -> Iterator[Context]:
    return _consumed(fields, SUB, is_handle=False)


def _handle(fields: _Fields) -> Iterator[Context]:
    return _consumed(fields, SUB)


def _unregister(fields: _Fields) -> Iterator[Context]:
    if fields.get("consumerGroup"):
        yield Context(group(fields["consumerGroup"]), SUB)


SPECIAL: dict[int, Callable[[_Fields], Iterator[Context]]] = {
    RequestCode.SEND_MESSAGE: _send,
    RequestCode.SEND_MESSAGE_V2: _send_short,
    RequestCode.SEND_BATCH_MESSAGE: _send_short,
    RequestCode.END_TRANSACTION: _end_transaction,
    RequestCode.CONSUMER_SEND_MSG_BACK: _send_back,
    RequestCode.ACK_MESSAGE: _handle,
    RequestCode.CHANGE_MESSAGE_INVISIBLETIME: _handle,
    RequestCode.PULL_MESSAGE: _pull,
    RequestCode.LITE_PULL_MESSAGE: _pull,
    RequestCode.UNREGISTER_CLIENT: _unregister,
    RequestCode.QUERY_CONSUMER_OFFSET: lambda fields: _consumed(fields, SUB_OR_GET),
    RequestCode.UPDATE_CONSUMER_OFFSET: lambda fields: _consumed(fields, SUB_OR_UPDATE),
}


# -- codes whose bodies say it ---------------------------------------------------------------------------


def _heartbeat(body: Any) -> Iterator[Context]:
    for consumer in body.get("consumerDataSet") or ():
        yield Context(group(consumer["groupName"]), SUB)
        for one in consumer.get("subscriptionDataSet") or ():
            yield from _of_topic(one["topic"], consumer["groupName"], SUB)


def _locks(body: Any) -> Iterator[Context]:
    yield Context(group(body["consumerGroup"]), SUB)
    for one in body.get("mqSet") or ():
        yield from _of_topic(one["topic"], body["consumerGroup"], SUB)


def _assignment(body: Any) -> Iterator[Context]:
    yield Context(group(body["consumerGroup"]), SUB_OR_GET)
    yield from _of_topic(body["topic"], body["consumerGroup"], SUB_OR_GET)


def _request_mode(body: Any) -> Iterator[Context]:
    yield Context(group(body["consumerGroup"]), UPDATE)


def _batch_ack(body: Any) -> Iterator[Context]:
    for one in body.get("acks") or ():
        yield Context(group(one["c"]), SUB)
        yield from _of_topic(one["t"], one["c"], SUB)


def _group_config(body: Any) -> Iterator[Context]:
    yield Context(group(body["groupName"]), CREATE)


def _group_configs(body: Any) -> Iterator[Context]:
    for one in body.get("groupConfigList") or ():
        yield Context(group(one["groupName"]), CREATE)


def _topic_configs(body: Any) -> Iterator[Context]:
    for one in body.get("topicConfigList") or ():
        yield Context(topic(one["topicName"]), CREATE)


BODIES: dict[int, Callable[[Any], Iterator[Context]]] = {
    RequestCode.HEART_BEAT: _heartbeat,
    RequestCode.LOCK_BATCH_MQ: _locks,
    RequestCode.UNLOCK_BATCH_MQ: _locks,
    RequestCode.QUERY_ASSIGNMENT: _assignment,
    RequestCode.SET_MESSAGE_REQUEST_MODE: _request_mode,
    RequestCode.BATCH_ACK_MESSAGE: _batch_ack,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP: _group_config,
    RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST: _group_configs,
    RequestCode.UPDATE_AND_CREATE_TOPIC_LIST: _topic_configs,
}
