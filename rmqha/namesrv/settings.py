"""The name server's configuration: Java's property keys, and our own limits beside them.

Source: NamesrvConfig and NettyServerConfig of RocketMQ 5.1.1 to 5.5.
Keys that size Java's thread pools and buffers are known, shown and without effect here, but for
``defaultThreadPoolQueueCapacity``, the requests that may wait for a file. Keys that nobody knows are kept and shown, for a file may serve several processes.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from types import MappingProxyType

from msgspec import Struct

from rmqha.auth.settings import SERVER_DEFAULTS as AUTH_DEFAULTS
from rmqha.auth.settings import AuthSettings
from rmqha.auth.settings import load_settings as load_auth_settings
from rmqha.base.errors import ConfigInvalid
from rmqha.remoting.address import PORT_MAX
from rmqha.remoting.headers import INT32_MAX, INT64_MAX
from rmqha.remoting.settings import SERVER_DEFAULTS, too_little_held
from rmqha.runtime.tls_settings import TLS_DEFAULTS
from rmqha.web.settings import DEFAULTS as STATUS_PAGE_DEFAULTS
from rmqha.web.settings import not_a_port

NOTHING: Mapping[str, str | None] = MappingProxyType({})
BLACK_LIST = ("configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome")

# Defaults as Java prints them. Every key of this table is shown by 319.
DEFAULTS: dict[str, str] = {
    **SERVER_DEFAULTS,
    **AUTH_DEFAULTS,
    "clientRequestThreadPoolNums": "8",
    "clientRequestThreadPoolQueueCapacity": "50000",
    "clusterTest": "false",
    "configBlackList": "configBlackList;configStorePath;kvConfigPath",
    "defaultThreadPoolNums": "16",
    "defaultThreadPoolQueueCapacity": "10000",
    "deleteTopicWithBrokerRegistration": "false",
    "enableAllTopicList": "true",
    "enableControllerInNamesrv": "false",
    "enableTopicList": "true",
    "kvConfigPath": "",
    "listenPort": "9876",
    "needWaitForService": "false",
    "notifyMinBrokerIdChanged": "false",
    "orderMessageEnable": "false",
    "productEnvName": "center",
    "returnOrderTopicConfigToBroker": "true",
    "supportActingMaster": "false",
    "unRegisterBrokerQueueCapacity": "3000",
    "waitSecondsForService": "45",
    # our own
    "brokersMax": "10000",
    "kvBytesMax": "16777216",
    "nameLengthMax": "512",
    "registrationBytesMax": "67108864",
    "routesMax": "1000000",
    **STATUS_PAGE_DEFAULTS,
    **TLS_DEFAULTS,
}

# What a running name server can change; everything else is read at the start only.
MUTABLE = frozenset(
    {
        "deleteTopicWithBrokerRegistration",
        "enableAllTopicList",
        "enableTopicList",
        "needWaitForService",
        "notifyMinBrokerIdChanged",
        "orderMessageEnable",
        "returnOrderTopicConfigToBroker",
        "supportActingMaster",
        "waitSecondsForService",
    }
)
IMPORTANT = (
    "bindAddress", "configStorePath", "enableControllerInNamesrv", "kvConfigPath", "listenPort",
)  # fmt: skip
POSITIVE = (
    "brokersMax", "connectionsMax", "defaultThreadPoolQueueCapacity", "kvBytesMax", "nameLengthMax", "registrationBytesMax",
    "routesMax", "scanNotActiveBrokerInterval",
)  # fmt: skip
# Java keeps these in a long, all other numbers in an int.
LONGS = frozenset({"scanNotActiveBrokerInterval"})
# int() alone would also take 1_000 and digits of other scripts.
_INTEGER = re.compile(r"[+-]?[0-9]{1,18}")


class RouteSettings(Struct, frozen=True):
    """What the route table and the answers about it go by; the names are Java's.

    Attributes:
        brokers_max: addresses that are listed at once.
        name_length_max: characters of a cluster's, broker's, topic's or zone's name, or address.
        routes_max: pairs of topic and brokerName.
        registration_bytes_max: of a registration's body once inflated.
        kv_bytes_max: of all KV configuration, keys and values.
    """

    delete_topic_with_broker_registration: bool = False
    enable_all_topic_list: bool = True
    enable_topic_list: bool = True
    need_wait_for_service: bool = False
    notify_min_broker_id_changed: bool = False
    order_message_enable: bool = False
    return_order_topic_config_to_broker: bool = True
    support_acting_master: bool = False
    wait_for_service_ms: int = 45_000
    brokers_max: int = 10_000
    name_length_max: int = 512
    routes_max: int = 1_000_000
    registration_bytes_max: int = 64 << 20
    kv_bytes_max: int = 16 << 20


class NamesrvConfig(Struct):
    """A checked configuration.

    Attributes:
        values: every key with its text, the defaults and the unknown ones included.
        auth: users and permissions.
        unknown: keys of the file that this process has no use for.
        outside: what the file says of keys that the environment has said, None for nothing. Those
            may be secrets, and are never written; nor is what this process worked out.
        is_own_file: whether changes are kept in the file that was read.
    """

    values: dict[str, str]
    auth: AuthSettings
    unknown: tuple[str, ...] = ()
    outside: Mapping[str, str | None] = NOTHING
    is_own_file: bool = False

    @property
    def to_store(self) -> dict[str, str]:
        """What a file that is written whole holds after a change."""
        found = {**self.values, **self.outside}
        return {key: value for key, value in found.items() if value is not None}

    def integer(self, key: str) -> int:
        """A key's value as a number."""
        return _integer(key, self.values[key])

    def boolean(self, key: str) -> bool:
        """Java's rule: ``true`` in any case is true, everything else false."""
        return self.values[key].strip().lower() == "true"

    @property
    def kv_path(self) -> str:
        """The file that KV configuration is kept in."""
        return os.path.abspath(self.values["kvConfigPath"])

    @property
    def config_path(self) -> str:
        """The file that a changed configuration is kept in."""
        return os.path.abspath(self.values["configStorePath"])

    def route_settings(self) -> RouteSettings:
        """What the cores need; taken anew after a change."""
        return RouteSettings(
            delete_topic_with_broker_registration=self.boolean("deleteTopicWithBrokerRegistration"),
            enable_all_topic_list=self.boolean("enableAllTopicList"),
            enable_topic_list=self.boolean("enableTopicList"),
            need_wait_for_service=self.boolean("needWaitForService"),
            notify_min_broker_id_changed=self.boolean("notifyMinBrokerIdChanged"),
            order_message_enable=self.boolean("orderMessageEnable"),
            return_order_topic_config_to_broker=self.boolean("returnOrderTopicConfigToBroker"),
            support_acting_master=self.boolean("supportActingMaster"),
            wait_for_service_ms=self.integer("waitSecondsForService") * 1000,
            brokers_max=self.integer("brokersMax"),
            name_length_max=self.integer("nameLengthMax"),
            routes_max=self.integer("routesMax"),
            registration_bytes_max=self.integer("registrationBytesMax"),
            kv_bytes_max=self.integer("kvBytesMax"),
        )


def load_config(
    properties: dict[str, str], *, user_home: str, home: str = "", store_path: str = "",
    outside: Mapping[str, str | None] = NOTHING,
) -> NamesrvConfig:  # fmt: skip
    """Check a properties file's content.

    Args:
        properties: as read; empty for Java's defaults.
        user_home: for Java's default paths.
        home: ROCKETMQ_HOME or empty; it only appears in 319.
        store_path: of the file that was read: changes by 318 are kept there, as in Java.
        outside: what the file says of the properties that are not from it.

    Raises:
        ConfigInvalid: the first key that cannot be used, and why.
    """
    values = dict(DEFAULTS)
    values.update({key: value.strip() for key, value in properties.items()})
    folder = os.path.join(user_home, "namesrv")
    values["rocketmqHome"] = values["rocketmqHome"] or home
    values["kvConfigPath"] = values["kvConfigPath"] or os.path.join(folder, "kvConfig.json")
    values["configStorePath"] = (
        store_path or values["configStorePath"] or os.path.join(folder, "namesrv.properties")
    )
    unknown = tuple(sorted(key for key in values if key not in DEFAULTS))
    # Written, it would be read at the next start, also by a controller in this process.
    outside = {"configStorePath": properties.get("configStorePath"), **outside}
    config = NamesrvConfig(values, load_auth_settings(values), unknown, outside, bool(store_path))
    for key in sorted(DEFAULTS):
        reason = malformed(key, values[key])
        if reason is not None:
            raise ConfigInvalid(reason)
    return config


def malformed(key: str, value: str) -> str | None:
    """Why a known key cannot have this value; None when it can."""
    default = DEFAULTS[key]
    if default.isdigit():
        reason = _not_a_count(key, value)
        if reason is None and key == "heldBytesMax":
            return too_little_held(value)
        return reason
    if default in ("true", "false") and value.strip().lower() not in ("true", "false"):
        return f"{key}={value} is neither true nor false"
    if key == "statusPagePort":
        return not_a_port(value)
    if key == "logLevel" and value not in ("debug", "info", "warning", "error"):
        return f"logLevel={value} is not a level"
    if key == "logStyle" and value not in ("auto", "json", "console"):
        return f"logStyle={value} is not a style"
    return None


def _not_a_count(key: str, value: str) -> str | None:
    if _INTEGER.fullmatch(value) is None:
        return f"{key}={value} is not a number"
    number, largest = int(value), INT64_MAX if key in LONGS else INT32_MAX
    if number < 0:
        return f"{key}={value} must not be negative"
    if number == 0 and key in POSITIVE:
        return f"{key}=0 must be at least 1"
    if number > (PORT_MAX if key in ("listenPort", "metricsPromExporterPort") else largest):
        return f"{key}={value} is too large"
    return None


def _integer(key: str, value: str) -> int:
    if _INTEGER.fullmatch(value) is None:
        raise ConfigInvalid(f"{key}={value} is not a number")
    return int(value)
