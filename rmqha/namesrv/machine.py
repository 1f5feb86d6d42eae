"""The name server's core: a request in, an answer and effects out.

Source: DefaultRequestProcessor and ClientRequestProcessor, RocketMQ namesrv.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from typing import Any, NamedTuple, assert_never

from msgspec.structs import replace

from rmqha.auth.signature import ACCESS_KEY
from rmqha.base.errors import RemoteProtocolError
from rmqha.base.machine import Note, Ticked
from rmqha.namesrv import routes
from rmqha.namesrv.config_requests import config_text, update_config
from rmqha.namesrv.kv_config import ORDER_TOPIC_CONFIG, KvConfig
from rmqha.namesrv.messages import (
    Again,
    Answer,
    CloseConnection,
    ConnectionClosed,
    ElectedMaster,
    ElectedMasters,
    NamesrvEffect,
    NamesrvEvent,
    Registration,
    Stored,
    TimerRang,
)
from rmqha.namesrv.register import register
from rmqha.namesrv.registration import crc_matches, reading, required
from rmqha.namesrv.registration_members import TOPICS_MAX, queue_data_of
from rmqha.namesrv.route_table import BrokerAddr, RouteTable
from rmqha.namesrv.settings import NamesrvConfig
from rmqha.namesrv.static_topics import front_of
from rmqha.remoting import fastjson
from rmqha.remoting.broker_figures import STATUS_PAGE
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.data_version import DataVersion
from rmqha.remoting.headers import bool_field, ext_fields, text_field
from rmqha.remoting.old_clients import VERSION_5_0_0, knows_static_topics
from rmqha.remoting.topic_names import UNIT_FLAG, UNIT_SUB_FLAG
from rmqha.runtime.late import PAUSED_MS, READ_MS
from rmqha.runtime.parts import at_once

NO_ROUTE_HELP = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."
NULL = "null"
"""What Java's remarks call a name that is missing from a question."""
DONE = Answer(ResponseCode.SUCCESS)
DISABLED = Answer(ResponseCode.SYSTEM_ERROR, "disable")


SMALL_BODY_BYTES_MAX = 64 * 1024
"""Of a 217 and of a 322: a broker sends the queues of one topic on itself, or a DataVersion. More is
not even read: JSON with fastjson's bare keys takes half a second a megabyte."""


class Request(NamedTuple):
    """A request as the core needs it.

    Attributes:
        version: the sender's release, by which its JSON is written.
    """

    now_ms: int
    connection_id: int
    version: int
    fields: Mapping[str, str]
    body: bytes


LEAVING_ROUTES_MAX = 5_000
LEAVING_MAX = 500
"""What leaves the table in one step, some 20 ms: a connection that had brought a million routes kept
everybody waiting for 4 s when it closed."""


class NamesrvMachine:
    """All state of one name server, and every rule about it.

    Args:
        config: checked; changed by 318.
        started_ms: when it began to serve, for ``needWaitForService``.
        masters: what an embedded controller knows; None without one.

    Attributes:
        table: the routes.
        kv: the KV configuration.
        settings: taken from ``config`` anew after each change.
    """

    def __init__(
        self, config: NamesrvConfig, started_ms: int, masters: ElectedMasters | None = None
    ) -> None:
        self.config = config
        self.status_page = ""
        self.settings = config.route_settings()
        self.table = RouteTable()
        self.kv = KvConfig(self.settings.kv_bytes_max)
        self._started_ms = started_ms
        self._masters = masters
        self._handlers: dict[int, Callable[[Request], Answer]] = {
            RequestCode.PUT_KV_CONFIG: self._put_kv,
            RequestCode.GET_KV_CONFIG: self._get_kv,
            RequestCode.DELETE_KV_CONFIG: self._delete_kv,
            RequestCode.REGISTER_BROKER: self._register,
            RequestCode.UNREGISTER_BROKER: self._unregister,
            RequestCode.GET_ROUTEINFO_BY_TOPIC: self._route,
            RequestCode.GET_BROKER_CLUSTER_INFO: self._cluster_info,
            RequestCode.WIPE_WRITE_PERM_OF_BROKER: self._wipe_write_perm,
            RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER: self._all_topics,
            RequestCode.DELETE_TOPIC_IN_NAMESRV: self._delete_topic,
            RequestCode.REGISTER_TOPIC_IN_NAMESRV: self._register_topic,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self._kv_list,
            RequestCode.GET_TOPICS_BY_CLUSTER: self._cluster_topics,
            RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS: self._system_topics,
            RequestCode.GET_UNIT_TOPIC_LIST: self._unit_topics,
            RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST: self._unit_sub_topics,
            RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST: self._unit_sub_only_topics,
            RequestCode.UPDATE_NAMESRV_CONFIG: self._update_config,
            RequestCode.GET_NAMESRV_CONFIG: self._get_config,
            RequestCode.QUERY_DATA_VERSION: self._query_data_version,
            RequestCode.ADD_WRITE_PERM_OF_BROKER: self._add_write_perm,
            RequestCode.GET_BROKER_MEMBER_GROUP: self._member_group,
            RequestCode.BROKER_HEARTBEAT: self._heartbeat,
        }

    def request(self, code: int, request: Request) -> Answer | None:
        """Answer a request; None for a code that no name server knows."""
        handler = self._handlers.get(code)
        return None if handler is None else _answer(handler, request)

    def step(self, now_ms: int, event: NamesrvEvent) -> list[NamesrvEffect]:
        """Take what happens without a request."""
        match event:
            case ConnectionClosed(connection_id):
                owned = self.table.owned_by(connection_id)
                return self._leave_all(owned, "connection closed", event)
            case TimerRang(due_ms):
                return self._timer_rang(now_ms, now_ms - due_ms)
            case Ticked():
                return self._expire(now_ms, event)
            case _:
                assert_never(event)

    def _timer_rang(self, now_ms: int, late_ms: int) -> list[NamesrvEffect]:
        """Look for silent brokers when all that they have sent is read."""
        look = Again(Ticked(), READ_MS)
        if late_ms < PAUSED_MS:
            return [look]
        self.table.spare(now_ms)
        return [Note("name_server_was_away", "warning", {"late_ms": late_ms}), look]

    def _expire(self, now_ms: int, event: Ticked) -> list[NamesrvEffect]:
        silent = self.table.silent(now_ms)
        connections = {key: self.table.live[key].connection_id for key in silent}
        effects = self._leave_all(silent, "silent for too long", event)
        # The others of a crowd are cut off when they leave, in the steps after this one.
        gone = {number: None for key, number in connections.items() if key not in self.table.live}
        return [*effects, *map(CloseConnection, gone)]

    def _leave_all(
        self, keys: list[BrokerAddr], reason: str, event: NamesrvEvent
    ) -> list[NamesrvEffect]:
        """Take brokers off, as many as have ``LEAVING_ROUTES_MAX`` routes; the others next."""
        effects: list[NamesrvEffect] = []
        left_from = self.table.route_count
        for at, key in enumerate(keys):
            if at and (
                at >= LEAVING_MAX or left_from - self.table.route_count >= LEAVING_ROUTES_MAX
            ):
                return [*effects, Again(event)]
            name = self.table.live[key].broker_name
            effects += self.table.unregister(name, key, reason, self.settings)
        return effects

    # -- brokers -----------------------------------------------------------------------------

    def begin_speaking(self, request: Request) -> None:
        """A 103 or 104 waits to be read: its broker is heard for as long as it does."""
        if (speaker := _speaker(request.fields)) is not None:
            self.table.begin_speaking(*speaker)

    def end_speaking(self, request: Request, now_ms: int) -> None:
        """It waits no more, whatever has come of it."""
        if (speaker := _speaker(request.fields)) is not None:
            self.table.end_speaking(*speaker, now_ms)

    def reading(self, request: Request) -> Generator[None, None, Registration | Answer]:
        """Read a 103 part by part, and change nothing; an answer where it is refused."""
        if not crc_matches(request.fields, request.body):
            return Answer(ResponseCode.SYSTEM_ERROR, "crc32 not match")
        try:
            return (
                yield from reading(request.version, request.fields, request.body, self.settings)
            )
        except RemoteProtocolError as error:
            return _refused(error)

    def unregister(self, request: Request) -> Answer:
        """Take a 104."""
        return _answer(self._unregister, request)

    def _register(self, request: Request) -> Answer:
        read = at_once(self.reading(request))
        return read if isinstance(read, Answer) else self.register(request, read)

    def register(self, request: Request, read: Registration) -> Answer:
        """Take a 103 that has been read: all that it changes is changed here."""
        broker = self._by_whom(request, read)
        done = register(
            self.table, self.settings, request.now_ms, request.connection_id, broker,
            self._elected(broker.broker_name),
        )  # fmt: skip
        effects = tuple(done.effects)
        if done.refused is not None:
            return Answer(ResponseCode.SYSTEM_ERROR, done.refused, effects=effects)
        address, ha_address = done.master or (None, None)
        fields = ext_fields(haServerAddr=ha_address, masterAddr=address)
        body = None
        if self.settings.return_order_topic_config_to_broker:
            body = self.kv.namespace_body(ORDER_TOPIC_CONFIG)
        return Answer(ResponseCode.SUCCESS, None, fields, body or b"", effects)

    def _by_whom(self, request: Request, broker: Registration) -> Registration:
        """The same with the user who signed it, which the guard has seen to where it asks."""
        auth, code = self.config.auth, RequestCode.REGISTER_BROKER
        if not auth.authentication or code in auth.authentication_free | auth.authorization_free:
            return broker
        account = request.fields.get(ACCESS_KEY, "")
        return replace(broker, account=account, is_super=account in auth.named)

    def _elected(self, broker_name: str) -> ElectedMaster | None:
        found = self._masters.elected_master(broker_name) if self._masters is not None else None
        return None if found is None else ElectedMaster(*found)

    def _unregister(self, request: Request) -> Answer:
        name, key = required(request.fields, "brokerName"), _broker_addr(request.fields)
        live = self.table.live.get(key)
        if live is not None and live.connection_id != request.connection_id:
            # The last word of a process that ended: another one has the address now (#11043).
            facts = {"broker": name, "address": key.address, "reason": "registered anew"}
            return Answer(ResponseCode.SUCCESS, effects=(Note("unregister_stale", "info", facts),))
        effects = self.table.unregister(name, key, "request", self.settings)
        return Answer(ResponseCode.SUCCESS, effects=tuple(effects))

    def _heartbeat(self, request: Request) -> Answer:
        key = _broker_addr(request.fields)
        self.table.touch(key, request.fields.get("brokerName"), request.now_ms)
        return DONE

    def _query_data_version(self, request: Request) -> Answer:
        key = _broker_addr(request.fields)
        asked = DataVersion.of(_small_body(request)) if request.body else None
        self.table.touch(key, request.fields.get("brokerName"), request.now_ms)
        live = self.table.live.get(key)
        if live is None:
            return Answer(ResponseCode.SUCCESS, None, ext_fields(changed=True))
        changed = asked != live.data_version
        body = fastjson.dumps(live.data_version.members())
        return Answer(ResponseCode.SUCCESS, None, ext_fields(changed=changed), body)

    def _wipe_write_perm(self, request: Request) -> Answer:
        name = required(request.fields, "brokerName")
        count = self.table.change_perm(name, writable=False)
        note = Note("write_perm_wiped", "warning", {"broker": name, "topics": count})
        return Answer(ResponseCode.SUCCESS, None, ext_fields(wipeTopicCount=count), effects=(note,))

    def waits_for_brokers(self, now_ms: int) -> bool:
        """Whether routes are refused still, so that brokers may register (``needWaitForService``)."""
        settings = self.settings
        since_ms = now_ms - self._started_ms
        return settings.need_wait_for_service and since_ms < settings.wait_for_service_ms

    def _add_write_perm(self, request: Request) -> Answer:
        name = required(request.fields, "brokerName")
        count = self.table.change_perm(name, writable=True)
        note = Note("write_perm_added", "warning", {"broker": name, "topics": count})
        return Answer(ResponseCode.SUCCESS, None, ext_fields(addTopicCount=count), effects=(note,))

    def _member_group(self, request: Request) -> Answer:
        cluster = required(request.fields, "clusterName")
        name = required(request.fields, "brokerName")
        body = routes.member_group_body(self.table, cluster, name)
        return Answer(ResponseCode.SUCCESS, body=body)

    # -- topics ------------------------------------------------------------------------------

    def _route(self, request: Request) -> Answer:
        settings, fields = self.settings, request.fields
        if self.waits_for_brokers(request.now_ms):
            return Answer(ResponseCode.SYSTEM_ERROR, "name server not ready")
        topic = text_field(fields, "topic", NULL)
        zone = text_field(fields, "__ZONE_NAME", "")
        in_zone = bool_field(fields, "__ZONE_MODE") and bool(zone.strip())
        knows = knows_static_topics(request.version)
        made = self.table.kept.made
        body = routes.route_body(
            self.table,
            topic,
            standard_json=request.version >= routes.VERSION_4_9_4
            or bool_field(fields, "acceptStandardJsonOnly"),
            support_acting_master=settings.support_acting_master,
            order_conf=self.kv.get(ORDER_TOPIC_CONFIG, topic)
            if settings.order_message_enable
            else None,
            zone=routes.Zone(zone) if in_zone else None,
            knows_static_topics=knows,
        )
        if body is None:
            remark = f"No topic route info in name server for the topic: {topic}{NO_ROUTE_HELP}"
            return Answer(ResponseCode.TOPIC_NOT_EXIST, remark)
        if not knows and topic in self.table.mappings and self.table.kept.made > made:
            # Clients ask every 30 s; one line for each time that the route changes is enough.
            return Answer(
                ResponseCode.SUCCESS, body=body, effects=(self._old_client(request, topic),)
            )
        return Answer(ResponseCode.SUCCESS, body=body)

    def _old_client(self, request: Request, topic: str) -> Note:
        """Who serves a static topic to a client that knows none, or that nobody does."""
        facts = {"topic": topic, "version": request.version}
        front = front_of(self.table, topic)
        if front is None:
            return Note("static_topic_refused", "warning", {**facts, "needed": VERSION_5_0_0})
        return Note("static_topic_served", "info", {**facts, "by": front.broker_name})

    def _cluster_info(self, request: Request) -> Answer:
        return Answer(ResponseCode.SUCCESS, body=routes.cluster_info_body(self.table))

    def _all_topics(self, request: Request) -> Answer:
        if not self.settings.enable_all_topic_list:
            return DISABLED
        return Answer(ResponseCode.SUCCESS, body=routes.all_topics_body(self.table))

    def _cluster_topics(self, request: Request) -> Answer:
        if not self.settings.enable_topic_list:
            return DISABLED
        cluster = required(request.fields, "cluster")
        return Answer(ResponseCode.SUCCESS, body=routes.cluster_topics_body(self.table, cluster))

    def _system_topics(self, request: Request) -> Answer:
        return Answer(ResponseCode.SUCCESS, body=routes.system_topics_body(self.table))

    def _unit_topics(self, request: Request) -> Answer:
        return self._topics_by_flag(lambda flag: flag & UNIT_FLAG != 0)

    def _unit_sub_topics(self, request: Request) -> Answer:
        return self._topics_by_flag(lambda flag: flag & UNIT_SUB_FLAG != 0)

    def _unit_sub_only_topics(self, request: Request) -> Answer:
        both = UNIT_FLAG | UNIT_SUB_FLAG
        return self._topics_by_flag(lambda flag: flag & both == UNIT_SUB_FLAG)

    def _topics_by_flag(self, wanted: Callable[[int], bool]) -> Answer:
        if not self.settings.enable_topic_list:
            return DISABLED
        return Answer(ResponseCode.SUCCESS, body=routes.unit_topics_body(self.table, wanted))

    def _delete_topic(self, request: Request) -> Answer:
        topic, cluster = required(request.fields, "topic"), request.fields.get("clusterName")
        names = self.table.clusters.get(cluster, {}) if cluster else self.table.brokers_of(topic)
        gone = self.table.delete_topic(topic, names)
        if not gone:
            return DONE
        note = Note("topic_deleted", "info", {"topic": topic, "brokers": list(gone)})
        return Answer(ResponseCode.SUCCESS, effects=(note,))

    def _register_topic(self, request: Request) -> Answer:
        """217: one topic, all its queues; dropped as a whole if it names an unknown broker."""
        topic = required(request.fields, "topic")
        members = _small_body(request) if request.body else None
        listed = members.get("queueDatas") if isinstance(members, dict) else None
        if listed is not None and not isinstance(listed, list):
            raise RemoteProtocolError("queueDatas is no list")
        queues = [queue_data_of(value, self.settings) for value in listed or ()]
        unknown = [one.broker_name for one in queues if one.broker_name not in self.table.sets]
        if unknown:
            note = Note("topic_dropped", "warning", {"topic": topic, "unknown": unknown[0]})
            return Answer(ResponseCode.SUCCESS, effects=(note,))
        limit = self.settings.routes_max
        if len(topic) > self.settings.name_length_max or (
            self.table.route_count + len(queues) > limit
        ):
            return Answer(
                ResponseCode.SYSTEM_ERROR, f"more than {limit} routes, or too long a name"
            )
        full = [one.broker_name for one in queues if self._is_full(topic, one.broker_name)]
        if full:
            remark = f"more than {TOPICS_MAX} topics of {full[0]}"
            return Answer(ResponseCode.SYSTEM_ERROR, remark)
        for one in queues:
            self.table.put_queues(topic, one)
        return DONE

    def _is_full(self, topic: str, broker_name: str) -> bool:
        """Whether a set has so many topics that another one is too much."""
        listed = self.table.topics_of.get(broker_name, {})
        return topic not in listed and len(listed) >= TOPICS_MAX

    # -- configuration -----------------------------------------------------------------------

    def _put_kv(self, request: Request) -> Answer:
        namespace, key = request.fields.get("namespace"), request.fields.get("key")
        if namespace is None or key is None:
            return Answer(ResponseCode.SYSTEM_ERROR, "namespace or key is null")
        if not self.kv.put(namespace, key, required(request.fields, "value")):
            limit = self.settings.kv_bytes_max
            return Answer(ResponseCode.SYSTEM_ERROR, f"KV configuration is full: {limit} bytes")
        return self._kv_changed(namespace, key)

    def _delete_kv(self, request: Request) -> Answer:
        namespace, key = required(request.fields, "namespace"), required(request.fields, "key")
        self.kv.delete(namespace, key)
        return self._kv_changed(namespace, key)

    def _kv_changed(self, namespace: str, key: str) -> Answer:
        if namespace == ORDER_TOPIC_CONFIG:
            self.table.forget_topic(key)
        return Answer(ResponseCode.SUCCESS, stored=Stored.KV_CONFIG)

    def _get_kv(self, request: Request) -> Answer:
        namespace = text_field(request.fields, "namespace", NULL)
        key = text_field(request.fields, "key", NULL)
        value = self.kv.get(namespace, key)
        if value is None:
            remark = f"No config item, Namespace: {namespace} Key: {key}"
            return Answer(ResponseCode.QUERY_NOT_FOUND, remark)
        return Answer(ResponseCode.SUCCESS, None, {"value": value})

    def _kv_list(self, request: Request) -> Answer:
        namespace = text_field(request.fields, "namespace", NULL)
        body = self.kv.namespace_body(namespace)
        if body is None:
            return Answer(ResponseCode.QUERY_NOT_FOUND, f"No config item, Namespace: {namespace}")
        return Answer(ResponseCode.SUCCESS, body=body)

    def _update_config(self, request: Request) -> Answer:
        return self.change_config(request.body)

    def change_config(self, body: bytes) -> Answer:
        """Take the values of a 318's body, all or none of them."""
        answer = update_config(self.config, body)
        if answer.stored is not None:
            self.settings = self.config.route_settings()
            self.table.forget_all()
        return answer

    def _get_config(self, request: Request) -> Answer:
        page = {STATUS_PAGE: self.status_page} if self.status_page else None
        return Answer(ResponseCode.SUCCESS, None, page, config_text(self.config))


def _answer(handler: Callable[[Request], Answer], request: Request) -> Answer:
    try:
        return handler(request)
    except RemoteProtocolError as error:
        return _refused(error)


def _refused(error: RemoteProtocolError) -> Answer:
    return Answer(ResponseCode.SYSTEM_ERROR, str(error))


def _speaker(fields: Mapping[str, str]) -> tuple[BrokerAddr, str] | None:
    """Whose word it is, and of which set; None where it does not say so, and will be refused."""
    try:
        return _broker_addr(fields), required(fields, "brokerName")
    except RemoteProtocolError:
        return None


def _broker_addr(fields: Mapping[str, str]) -> BrokerAddr:
    return BrokerAddr(required(fields, "clusterName"), required(fields, "brokerAddr"))


def _small_body(request: Request) -> Any:
    if len(request.body) > SMALL_BODY_BYTES_MAX:
        raise RemoteProtocolError(f"the body is larger than {SMALL_BODY_BYTES_MAX} bytes")
    return fastjson.loads(request.body)
