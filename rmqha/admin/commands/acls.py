"""createAcl, updateAcl, deleteAcl, getAcl, listAcl and copyAcl."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rmqha.admin.commands.users import (
    Members,
    Servers,
    change,
    copied,
    copy_options,
    found_at,
    need_found,
)
from rmqha.admin.java_text import null
from rmqha.admin.places import Places, place_options, places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import CommandSpec, names_option, text_option
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.client.exchange import Exchange, Refused, Unreachable
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.headers import FieldValue

_HEAD = "#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"
_WIDTHS = 16, 10, 22, 20, 24, 10


def _putting(verb: str, code: RequestCode) -> Callable[..., Exchange[Report]]:
    def run(
        name_servers: Servers, broker_address: str | None, cluster_name: str | None, subject: str,
        resources: tuple[str, ...], actions: tuple[str, ...], decision: str,
        source_ips: tuple[str, ...],
    ) -> Exchange[Report]:  # fmt: skip
        if not resources or not actions:
            raise click.UsageError("give resources with -r and actions with -a")
        found = yield from places(name_servers, broker_address, cluster_name, masters=False)
        more = {"sourceIps": list(source_ips)} if source_ips else {}
        entries = [
            {"actions": list(actions), "decision": decision, "resource": one, **more}
            for one in resources
        ]
        body = {"policies": [{"entries": entries}], "subject": subject}
        return (yield from change(verb, found, code, body, subject=subject))

    return run


def _delete(
    name_servers: Servers, broker_address: str | None, cluster_name: str | None, subject: str,
    resource: str | None,
) -> Exchange[Report]:  # fmt: skip
    """One resource's entry, or all."""
    found = yield from places(name_servers, broker_address, cluster_name, masters=False)
    fields: dict[str, FieldValue] = {"subject": subject}
    if resource is not None:
        fields["resource"] = resource
    code = RequestCode.AUTH_DELETE_ACL
    return (yield from change("delete acl", found, code, None, **fields))


def _get(
    name_servers: Servers, broker_address: str | None, cluster_name: str | None, subject: str | None
) -> Exchange[Report]:
    """The policies of one user, at each master."""
    found = yield from places(name_servers, broker_address, cluster_name, masters=True)
    fields = {"subject": subject or ""}
    return (yield from _all_of(found, RequestCode.AUTH_GET_ACL, fields))


def _list(
    name_servers: Servers, broker_address: str | None, cluster_name: str | None,
    subject: str | None, resource: str | None,
) -> Exchange[Report]:  # fmt: skip
    """The policies of all users, at each master."""
    found = yield from places(name_servers, broker_address, cluster_name, masters=True)
    wanted = {"subjectFilter": subject, "resourceFilter": resource}
    fields = {name: value for name, value in wanted.items() if value is not None}
    return (yield from _all_of(found, RequestCode.AUTH_LIST_ACL, fields))


def _all_of(found: Places, code: RequestCode, fields: dict[str, str]) -> Exchange[Report]:
    """What each has; one that fails hides no other, and is one when all fail.

    Raises:
        Refused, Unreachable, RemoteProtocolError: the first of them, when nobody answered.
    """
    plain, data, tables = "", {}, []
    failures: list[RmqhaError] = []
    for address in found.addresses:
        try:
            acls = yield from found_at(address, code, **fields)
        except (Refused, Unreachable, RemoteProtocolError) as error:
            failures.append(error)
            continue
        if not acls:
            continue
        rows = [row for acl in acls for row in _rows(acl)]
        plain += "".join(map(_line, [_HEAD, *rows]))
        data[address] = acls
        tables.append(Table(address, tuple(one[1:] for one in _HEAD), rows))
    if len(failures) == len(found.addresses):
        raise failures[0]
    failed = (*failures, *found.failures)
    return Report(plain, data, tuple(tables), failed, warnings=found.warnings)


def _rows(acl: Members) -> list[tuple[str, str, str, str, str, str]]:
    subject = null(acl.get("subject"))
    rows = [
        (
            subject, null(policy.get("policyType")), null(entry.get("resource")),
            _list_text(entry.get("actions")), _list_text(entry.get("sourceIps")),
            null(entry.get("decision")),
        )
        for policy in _objects(acl.get("policies"))
        for entry in _objects(policy.get("entries"))
    ]  # fmt: skip
    return rows or [(subject, "", "", "", "", "")]


def _objects(value: Any) -> list[Members]:
    found = value or []
    if not isinstance(found, list) or not all(isinstance(one, dict) for one in found):
        raise RemoteProtocolError("the policies of an acl are no list of objects")
    return found


def _list_text(value: Any) -> str:
    """As Java prints a list."""
    return f"[{', '.join(map(str, value))}]" if isinstance(value, list) else null(value)


def _line(row: tuple[str, ...]) -> str:
    return "  ".join(f"{one:<{width}}" for one, width in zip(row, _WIDTHS, strict=True)) + "\n"


def _copy(source: str, target: str, subjects: tuple[str, ...]) -> Exchange[Report]:
    """The policies of some users, or of all."""
    acls: list[Members] = []
    if subjects:
        for subject in subjects:
            found = yield from found_at(source, RequestCode.AUTH_GET_ACL, subject=subject)
            acls += need_found(source, subject, found)
    else:
        acls = yield from found_at(source, RequestCode.AUTH_LIST_ACL)
    codes = RequestCode.AUTH_GET_ACL, RequestCode.AUTH_CREATE_ACL, RequestCode.AUTH_UPDATE_ACL
    return (yield from copied("acl", source, target, acls, "subject", codes))


def _subject(*, required: bool) -> click.Option:
    return text_option("-s", "--subject", "subject", required=required, help="User:name.")


def _put_options() -> list[click.Option]:
    return [
        *place_options(),
        _subject(required=True),
        names_option("-r", "--resources", "resources", help="Topic:name, Group:na*, Cluster:*, *"),
        names_option(
            "-a", "--actions", "actions", help="All, Pub, Sub, Create, Update, Delete, Get, List"
        ),
        text_option("-d", "--decision", "decision", required=True, help="Allow or Deny."),
        names_option("-i", "--sourceIp", "source_ips", help="Addresses or ranges (default all)."),
    ]


def _resource(flag: str, help: str) -> click.Option:  # noqa: A002
    return text_option("-r", flag, "resource", help=help)


def _subjects() -> click.Option:
    return names_option("-s", "--subjects", "subjects", help="Users to copy (default all).")


SPECS = (
    CommandSpec(
        "createAcl", "Allow or deny a user something.", _put_options,
        _putting("create acl", RequestCode.AUTH_CREATE_ACL),
    ),
    CommandSpec(
        "updateAcl", "Change what a user is allowed or denied.", _put_options,
        _putting("update acl", RequestCode.AUTH_UPDATE_ACL),
    ),
    CommandSpec(
        "deleteAcl", "Delete what is said about a resource, or all of a user.",
        lambda: [
            *place_options(), _subject(required=True),
            _resource("--resources", "Resource (default all)."),
        ],
        _delete,
    ),
    CommandSpec(
        "getAcl", "Show what a user is allowed and denied.",
        lambda: [*place_options(), _subject(required=False)], _get,
    ),
    CommandSpec(
        "listAcl", "Show what users are allowed and denied.",
        lambda: [
            *place_options(), text_option("-s", "--subject", "subject", help="Part of the name."),
            _resource("--resource", "Part of the resource."),
        ],
        _list,
    ),
    CommandSpec(
        "copyAcl", "Copy what users are allowed and denied from one broker to another.",
        lambda: [*copy_options(), _subjects()], _copy,
    ),
)  # fmt: skip
