"""updateSubGroup: create a subscription group, or change it."""

from __future__ import annotations

from typing import Any

import click

from rmqha.admin.commands.update_topic import parse_attributes
from rmqha.admin.java_text import map_text, null, yes_no
from rmqha.admin.places import place_options, places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    number_option,
    switch_option,
    text_option,
)
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Exchange, ask_each
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import INT32_MAX

_POLICIES = {
    "EXPONENTIAL": ("exponentialRetryPolicy", ("initial", "max", "multiplier")),
    "CUSTOMIZED": ("customizedRetryPolicy", ("next",)),
}
_RETRY_TIMES = 16
_CONSUME_MINUTES = 15


def run(
    name_servers: tuple[str, ...] | None,
    broker_address: str | None,
    cluster_name: str | None,
    group: str,
    attributes: str | None,
    retry_policy: str | None,
    **settings: bool | int,
) -> Exchange[Report]:
    """Ask one broker, or every master of a cluster (200). What is not given gets its default.

    Raises:
        click.UsageError: neither broker nor cluster, or both; attributes or a policy that are none.
        NotFound: no such cluster.
    """
    config: dict[str, Any] = {
        "attributes": parse_attributes(attributes),
        "consumeTimeoutMinute": _CONSUME_MINUTES,
        "groupName": group,
        "groupRetryPolicy": _policy(retry_policy),
        "groupSysFlag": 0,
        **settings,
    }
    found = yield from places(name_servers, broker_address, cluster_name, masters=True)
    body = fastjson.dumps(dict(sorted(config.items())))
    done, failures = yield from ask_each(
        found.addresses, RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body
    )
    updated = [address for address, _ in done]
    plain = "".join(f"create subscription group to {address} success.\n" for address in updated)
    rows = [(name, _shown(value)) for name, value in sorted(config.items())]
    tables = (
        Table("Created or changed", ("Broker", "Group"), [(one, group) for one in updated]),
        Table(group, ("Key", "Value"), rows),
    )
    data = {"updated": updated, **config}
    text = f"{plain}{_text(config)}\n" if updated else ""
    shown, failed = tables if updated else (), (*failures, *found.failures)
    return Report(text, data, shown, failed, warnings=found.warnings)


def _policy(text: str | None) -> dict[str, Any]:
    """Read the JSON of a retry policy.

    Raises:
        click.UsageError: not the JSON of one.
    """
    if text is None:
        return {"type": "CUSTOMIZED"}
    try:
        policy = fastjson.loads(text.encode())
    except RemoteProtocolError as error:
        raise click.UsageError(f"-p is not JSON: {error}") from error
    if not isinstance(policy, dict) or policy.get("type") not in _POLICIES:
        raise click.UsageError("-p needs a type, EXPONENTIAL or CUSTOMIZED")
    for part, names in _POLICIES.values():
        members = policy.get(part)
        if members is not None and not (
            isinstance(members, dict) and set(members) <= set(names)
            and all(_is_delay(value) for value in members.values())
        ):  # fmt: skip
            raise click.UsageError(f"-p: {part} has {', '.join(names)}, in milliseconds")
    return policy


def _is_delay(value: object) -> bool:
    items = value if isinstance(value, list) else [value]
    return all(isinstance(item, int) and not isinstance(item, bool) and item >= 0 for item in items)


def _shown(value: object) -> str:
    return fastjson.dumps(value).decode() if isinstance(value, dict) else str(value)


def _text(config: dict[str, Any]) -> str:
    """The group as the Java tool shows it."""
    names = (
        "groupName", "consumeEnable", "consumeFromMinEnable", "consumeBroadcastEnable",
        "consumeMessageOrderly", "retryQueueNums", "retryMaxTimes", "groupRetryPolicy", "brokerId",
        "whichBrokerWhenConsumeSlowly", "notifyConsumerIdsChangedEnable", "groupSysFlag",
        "consumeTimeoutMinute", "subscriptionDataSet", "attributes",
    )  # fmt: skip
    parts = []
    for name in names:
        value = config.get(name)
        if name == "groupRetryPolicy":
            value = _policy_text(config[name])
        elif name == "attributes":
            value = map_text(config[name])
        elif isinstance(value, bool):
            value = yes_no(value)
        parts.append(f"{name}={null(value)}")
    return "SubscriptionGroupConfig{" + ", ".join(parts) + "}"


def _policy_text(policy: dict[str, Any]) -> str:
    shown = []
    for part, names in _POLICIES.values():
        members = policy.get(part)
        if members is None:
            shown.append(f"{part}=null")
            continue
        inner = ", ".join(f"{name}={members.get(name)}" for name in names)
        shown.append(f"{part}={part[0].upper()}{part[1:]}{{{inner}}}")
    return f"GroupRetryPolicy{{type={policy['type']}, {', '.join(shown)}}}"


def _options() -> list[click.Option]:
    return [
        *place_options(),
        text_option("-g", "--groupName", "group", required=True, help="Consumer group."),
        switch_option("-s", "--consumeEnable", "consumeEnable", default=True,
                      help="Whether it may consume (default true)."),
        switch_option("-m", "--consumeFromMinEnable", "consumeFromMinEnable", default=False,
                      help="Whether it may start at the lowest offset."),
        switch_option("-d", "--consumeBroadcastEnable", "consumeBroadcastEnable", default=False,
                      help="Whether it may consume broadcasting (default false)."),
        switch_option("-o", "--consumeMessageOrderly", "consumeMessageOrderly", default=False,
                      help="Whether it consumes in order."),
        number_option("-q", "--retryQueueNums", "retryQueueNums", high=INT32_MAX, default=1,
                      help="Queues of its retry topic (default 1)."),
        number_option("-r", "--retryMaxTimes", "retryMaxTimes", low=-1, high=INT32_MAX,
                      default=_RETRY_TIMES, help="Retries before the dead letters (default 16)."),
        text_option("-p", "--groupRetryPolicy", "retry_policy", help="Retry policy, as JSON."),
        number_option("-i", "--brokerId", "brokerId", default=0,
                      help="Id of the broker to consume from (default 0)."),
        number_option("-w", "--whichBrokerWhenConsumeSlowly", "whichBrokerWhenConsumeSlowly",
                      default=1, help="Id of the broker for those that lag (default 1)."),
        switch_option("-a", "--notifyConsumerIdsChanged", "notifyConsumerIdsChangedEnable",
                      default=True, help="Whether members hear of each other (default true)."),
        text_option("--attributes", "attributes", help="+name=value,-name,..."),
    ]  # fmt: skip


SPEC = CommandSpec("updateSubGroup", "Create or change a subscription group.", _options, run)
