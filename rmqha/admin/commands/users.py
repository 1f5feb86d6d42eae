"""createUser, updateUser, deleteUser, getUser, listUser and copyUser."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import click

from rmqha.admin.java_text import null
from rmqha.admin.places import Places, place_options, places
from rmqha.admin.report import Report, Table
from rmqha.admin.spec import (
    CommandSpec,
    names_option,
    text_option,
)
from rmqha.base.errors import RemoteProtocolError
from rmqha.client.exchange import Exchange, NotFound, Refused, Unreachable, ask, ask_each
from rmqha.remoting import fastjson
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import FieldValue, ext_fields

Servers = tuple[str, ...] | None
Members = dict[str, Any]

_USER = ("username", "password", "userType", "userStatus")
_HEAD = "#UserName", "#Password", "#UserType", "#UserStatus"


def change(
    verb: str, found: Places, code: RequestCode, body: Members | None,
    **fields: FieldValue,
) -> Exchange[Report]:  # fmt: skip
    """Send a change to each; what the Java tool prints of those that have done it."""
    data = b"" if body is None else fastjson.dumps({k: v for k, v in body.items() if v is not None})
    done, failures = yield from ask_each(found.addresses, code, data, **fields)
    changed = [address for address, _ in done]
    table = Table("Done", ("Broker", "What"), [(one, verb) for one in changed])
    return Report(
        "".join(f"{verb} to {one} success.\n" for one in changed),
        {"done": changed}, (table,) if changed else (), tuple(failures), warnings=found.warnings,
    )  # fmt: skip


def found_at(address: str, code: RequestCode, **fields: FieldValue) -> Exchange[list[Members]]:
    """What a broker answers: an object, a list of them, or nothing; raises RemoteProtocolError."""
    command = RemotingCommand(code, ext_fields=ext_fields(**fields) or None)
    answer = yield from ask(address, command)
    if not answer.body:
        return []
    value = fastjson.loads(answer.body)
    found = value if isinstance(value, list) else [value]
    if not all(isinstance(one, dict) for one in found):
        raise RemoteProtocolError(f"{address} answered other than objects")
    return found


def first_found(
    addresses: Iterable[str], code: RequestCode, **fields: FieldValue
) -> Exchange[tuple[str, list[Members]]]:
    """The first broker that has any, with what it has.

    Raises:
        Refused, Unreachable: the first that failed, when none of the others has any.
    """
    last, why = "", None
    for last in addresses:
        try:
            found = yield from found_at(last, code, **fields)
        except (Refused, Unreachable) as error:
            why = why or error
            continue
        if found:
            return last, found
    if why is not None:
        raise why
    return last, []


def _changing(verb: str, code: RequestCode) -> Callable[..., Exchange[Report]]:
    def run(
        name_servers: Servers, broker_address: str | None, cluster_name: str | None, username: str,
        password: str | None = None, user_type: str | None = None, user_status: str | None = None,
    ) -> Exchange[Report]:  # fmt: skip
        given = [password, user_type, user_status]
        if code is RequestCode.AUTH_UPDATE_USER and given.count(None) != len(given) - 1:
            raise click.UsageError("give one of -p, -t and -s")
        found = yield from places(name_servers, broker_address, cluster_name, masters=False)
        body = dict(zip(_USER, (username, password, user_type, user_status), strict=True))
        deletes = code is RequestCode.AUTH_DELETE_USER
        return (yield from change(verb, found, code, None if deletes else body, username=username))

    return run


def _shown(users: list[Members]) -> tuple[str, tuple[Table, ...]]:
    rows = [tuple(one.get(name) for name in _USER) for one in users]
    plain = "".join(
        f"{a:<16}  {b:<22}  {c:<22}  {d:<22}\n"
        for a, b, c, d in [_HEAD, *(tuple(map(null, row)) for row in rows)]
    )
    hidden = [(row[0], *row[2:]) for row in rows]
    return plain, (Table("Users", ("User", "Type", "Status"), hidden),)


def _get(
    name_servers: Servers,
    broker_address: str | None,
    cluster_name: str | None,
    username: str | None,
) -> Exchange[Report]:
    """One user, of the first master that has it."""
    asked = yield from places(name_servers, broker_address, cluster_name, masters=True)
    code = RequestCode.AUTH_GET_USER
    _, users = yield from first_found(asked.addresses, code, username=username or "")
    if not users:
        raise next(iter(asked.failures), NotFound(f"there is no user {username or ''}"))
    plain, tables = _shown(users)
    return Report(plain, users[0], tables, warnings=asked.warnings)


def _list(
    name_servers: Servers, broker_address: str | None, cluster_name: str | None, wanted: str | None
) -> Exchange[Report]:
    """All users, of the first master that has any; where none has, a set without one may have some."""
    asked = yield from places(name_servers, broker_address, cluster_name, masters=True)
    fields = {} if wanted is None else {"filter": wanted}
    address, users = yield from first_found(asked.addresses, RequestCode.AUTH_LIST_USER, **fields)
    if not users:
        return Report("", [], (), asked.failures, warnings=asked.warnings)
    plain, tables = _shown(users)
    if cluster_name:
        plain += f"get user from {address} success.\n"
    return Report(plain, users, tables, warnings=asked.warnings)


def need_found(source: str, name: str, found: list[Members]) -> list[Members]:
    """What was found of an item that was named; nothing is copied while one is missing.

    Raises:
        NotFound: nothing.
    """
    if not found:
        raise NotFound(f"{source}: there is nothing of {name} to copy")
    return found


def copied(
    what: str, source: str, target: str, items: list[Members], name: str,
    codes: tuple[RequestCode, RequestCode, RequestCode],
) -> Exchange[Report]:  # fmt: skip
    """Make or change items at another broker.

    Args:
        name: the member that names an item, and the field that asks for it.
        codes: that ask for one, make one, and change one.
    """
    get, create, update = codes
    plain, done = "", []
    for one in items:
        key = str(one.get(name, ""))
        there = yield from found_at(target, get, **{name: key})
        code = update if there else create
        fields = ext_fields(**{name: key})
        yield from ask(target, RemotingCommand(code, ext_fields=fields, body=fastjson.dumps(one)))
        done.append(key)
        plain += f"copy {what} of {key} from {source} to {target} success.\n"
    table = Table("Copied", (what, "From", "To"), [(one, source, target) for one in done])
    return Report(plain, {"copied": done}, (table,) if done else ())


def _copy(source: str, target: str, usernames: tuple[str, ...]) -> Exchange[Report]:
    """Some users, or all."""
    users: list[Members] = []
    if usernames:
        code = RequestCode.AUTH_GET_USER
        for username in usernames:
            users += need_found(
                source, username, (yield from found_at(source, code, username=username))
            )
    else:
        users = yield from found_at(source, RequestCode.AUTH_LIST_USER)
    codes = RequestCode.AUTH_GET_USER, RequestCode.AUTH_CREATE_USER, RequestCode.AUTH_UPDATE_USER
    return (yield from copied("user", source, target, users, "username", codes))


def copy_options() -> list[click.Option]:
    """``-f`` and ``-t``."""
    return [
        text_option("-f", "--fromBroker", "source", required=True, help="Broker to copy from."),
        text_option("-t", "--toBroker", "target", required=True, help="Broker to copy to."),
    ]


def _username(*, required: bool = True) -> click.Option:
    return text_option("-u", "--username", "username", required=required, help="User's name.")


def _password(*, required: bool = False) -> click.Option:
    return text_option("-p", "--password", "password", required=required, help="Its password.")


def _type() -> click.Option:
    return _one_of("-t", "--userType", "user_type", ("Super", "Normal"), "Super or Normal.")


def _status() -> click.Option:
    words = ("enable", "disable")
    return _one_of("-s", "--userStatus", "user_status", words, "enable or disable.")


def _one_of(
    flag: str, name: str, argument: str, words: tuple[str, ...], help: str  # noqa: A002
) -> click.Option:  # fmt: skip
    """One of these words; brokers take a typing error for the default, or for no change at all."""
    kind = click.Choice(words, case_sensitive=False)
    return click.Option([flag, name, argument], type=kind, metavar="WORD", help=help)


def _usernames() -> click.Option:
    return names_option("-u", "--usernames", "usernames", help="Users to copy (default all).")


def _filter() -> click.Option:
    return text_option("-f", "--filter", "wanted", help="Part of the name.")


SPECS = (
    CommandSpec(
        "createUser", "Make a user.",
        lambda: [*place_options(), _username(), _password(required=True), _type()],
        _changing("create user", RequestCode.AUTH_CREATE_USER),
    ),
    CommandSpec(
        "updateUser", "Change a user's password, type or status.",
        lambda: [*place_options(), _username(), _password(), _type(), _status()],
        _changing("update user", RequestCode.AUTH_UPDATE_USER),
    ),
    CommandSpec(
        "deleteUser", "Delete a user, with its policies.",
        lambda: [*place_options(), _username()],
        _changing("delete user", RequestCode.AUTH_DELETE_USER),
    ),
    CommandSpec(
        "getUser", "Show one user.",
        lambda: [*place_options(), _username(required=False)], _get,
    ),
    CommandSpec("listUser", "Show all users.", lambda: [*place_options(), _filter()], _list),
    CommandSpec(
        "copyUser", "Copy users from one broker to another.",
        lambda: [*copy_options(), _usernames()], _copy,
    ),
)  # fmt: skip
