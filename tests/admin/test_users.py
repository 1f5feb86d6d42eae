"""The commands of users and acls: requests as the Java tool sends them, and its text."""

from __future__ import annotations

import json
from pathlib import Path

import click
import pytest

from rmqha.auth.signature import Credentials
from rmqha.cli import mqadmin
from rmqha.client.exchange import Call, NotFound
from rmqha.remoting.command import RemotingCommand
from tests.admin.driving import by_code, run, usage_error
from tests.admin.test_cluster_commands import SERVERS, cluster, reply

USER = {"username": "ann", "password": "p", "userType": "Normal", "userStatus": "enable"}
ACL = {
    "subject": "User:ann",
    "policies": [{"policyType": "Custom", "entries": [
        {"resource": "Topic:a", "actions": ["Pub", "Sub"], "decision": "Allow"},
        {"resource": "Group:b*", "actions": ["All"], "decision": "Deny", "sourceIps": ["10.0.0.1"]},
    ]}],
}  # fmt: skip
AT = "-b b:1"


def asked(call: Call) -> tuple[int, dict[str, str], object]:
    """Code, fields and body of a request."""
    command = call.command
    return command.code, command.ext_fields or {}, json.loads(command.body or b"null")


@pytest.mark.parametrize(
    ("line", "code", "fields", "body"),
    [
        (f"createUser {AT} -u ann -p p -t Super", 3001, {"username": "ann"},
         {"username": "ann", "password": "p", "userType": "Super"}),
        (f"updateUser {AT} -u ann -s disable", 3002, {"username": "ann"},
         {"username": "ann", "userStatus": "disable"}),
        (f"deleteUser {AT} -u ann", 3003, {"username": "ann"}, None),
        (f"createAcl {AT} -s User:ann -r Topic:a,*  -a Pub,Sub -d Allow -i 10.0.0.1",
         3006, {"subject": "User:ann"},
         {"subject": "User:ann", "policies": [{"entries": [
             {"resource": one, "actions": ["Pub", "Sub"], "decision": "Allow",
              "sourceIps": ["10.0.0.1"]} for one in ("Topic:a", "*")]}]}),
        (f"updateAcl {AT} -s User:ann -r Topic:a -a All -d Deny", 3007, {"subject": "User:ann"},
         {"subject": "User:ann", "policies": [{"entries": [
             {"resource": "Topic:a", "actions": ["All"], "decision": "Deny"}]}]}),
        (f"deleteAcl {AT} -s User:ann", 3008, {"subject": "User:ann"}, None),
        (f"deleteAcl {AT} -s User:ann -r Topic:a", 3008,
         {"subject": "User:ann", "resource": "Topic:a"}, None),
    ],
)  # fmt: skip
def test_change_when_one_broker_is_named_then_it_is_asked_as_java_does(
    line: str, code: int, fields: dict[str, str], body: object
) -> None:
    """Members that were not given are left out."""
    report, calls = run(line, by_code({code: reply()}))
    assert [asked(call) for call in calls] == [(code, fields, body)]
    name = line.split()[0]
    words = f"{name[:6]} {name[6:].lower()}"
    assert report.plain == f"{words} to b:1 success.\n"


def test_change_when_a_cluster_is_named_then_all_its_brokers_are_asked() -> None:
    """Slaves, too: a slave of ours hands it to its master."""
    line = f"createUser {SERVERS} -c C -u ann -p p"
    report, calls = run(line, by_code({106: cluster("a", "b"), 3001: reply()}))
    assert [call.address for call in calls] == ["ns:1", "a:1", "b:1"]
    assert report.plain == "create user to a:1 success.\ncreate user to b:1 success.\n"
    refused = by_code({106: cluster("a"), 3001: reply(16, b"", "The user is existed")})
    report, _ = run(line, refused)
    assert report.plain == ""
    assert "CODE: 16  DESC: The user is existed" in str(report.failures[0])


def test_users_when_shown_then_in_java_s_columns() -> None:
    """Tables for people show no password."""
    head = f"{'#UserName':<16}  {'#Password':<22}  {'#UserType':<22}  {'#UserStatus':<22}\n"
    row = f"{'ann':<16}  {'p':<22}  {'Normal':<22}  {'enable':<22}\n"
    report, calls = run(f"getUser {AT} -u ann", by_code({3004: reply(0, USER)}))
    assert report.plain == head + row
    assert asked(calls[0])[1] == {"username": "ann"}
    assert "'p'" not in str(report.tables)
    with pytest.raises(NotFound, match="no user ann"):
        run(f"getUser {AT} -u ann", by_code({3004: reply()}))
    line = f"listUser {SERVERS} -c C -f an"
    report, calls = run(line, by_code({106: cluster("a", "b"), 3005: reply(0, [USER, USER])}))
    assert report.plain == head + row * 2 + "get user from a:1 success.\n"
    assert asked(calls[1])[1] == {"filter": "an"}
    report, _ = run(f"listUser {AT}", by_code({3005: reply()}))
    assert (report.plain, report.data) == ("", [])


def test_acls_when_shown_then_in_java_s_columns() -> None:
    """Lists as Java prints them, and null for addresses that were not given."""
    widths = 16, 10, 22, 20, 24, 10
    rows = [
        ("#Subject", "#PolicyType", "#Resource", "#Actions", "#SourceIp", "#Decision"),
        ("User:ann", "Custom", "Topic:a", "[Pub, Sub]", "null", "Allow"),
        ("User:ann", "Custom", "Group:b*", "[All]", "[10.0.0.1]", "Deny"),
    ]
    text = "".join(
        "  ".join(one.ljust(width) for one, width in zip(row, widths, strict=True)) + "\n"
        for row in rows
    )
    report, calls = run(f"getAcl {AT} -s User:ann", by_code({3009: reply(0, ACL)}))
    assert report.plain == text
    assert asked(calls[0])[1] == {"subject": "User:ann"}
    report, calls = run(f"listAcl {AT} -s ann -r Topic", by_code({3010: reply(0, [ACL])}))
    assert report.plain == text
    assert asked(calls[0])[1] == {"subjectFilter": "ann", "resourceFilter": "Topic"}


@pytest.mark.parametrize(
    ("line", "item", "codes"),
    [
        ("copyUser -f a:1 -t b:1", USER, (3005, 3004, 3001, 3002)),
        ("copyAcl -f a:1 -t b:1", ACL, (3010, 3009, 3006, 3007)),
    ],
)
def test_copy_when_the_target_has_it_then_it_is_changed_else_made(
    line: str, item: dict[str, object], codes: tuple[int, int, int, int]
) -> None:
    """Whole, the password included."""
    many, one, create, update = codes
    for there, code in ((b"", create), (item, update)):
        answers = by_code({many: reply(0, [item]), one: reply(0, there), code: reply()})
        report, calls = run(line, answers)
        assert [(call.address, call.command.code) for call in calls] == [
            ("a:1", many), ("b:1", one), ("b:1", code),
        ]  # fmt: skip
        assert asked(calls[2])[2] == item
        assert report.plain.startswith("copy ")
        assert report.plain.endswith(" from a:1 to b:1 success.\n")


def test_line_when_something_is_missing_then_its_usage_says_so() -> None:
    """Before anybody is asked."""
    for line in (
        "createUser -u a -p p", f"createUser {AT} -u a", f"updateUser {AT} -u a",
        f"updateUser {AT} -u a -p x -s enable", f"createAcl {AT} -s User:a -a Pub -d Allow",
        f"getUser {AT} -c C -u a",
    ):  # fmt: skip
        assert usage_error(line)


@pytest.mark.parametrize(
    "line",
    [
        f"createUser {AT} -u ann -p p -t Boss", f"updateUser {AT} -u ann -t Boss",
        f"updateUser {AT} -u ann -s perhaps",
    ],
)  # fmt: skip
def test_line_when_a_word_is_none_of_those_known_then_nobody_is_asked(line: str) -> None:
    """A broker makes a normal user of a Boss, and of status perhaps nothing: both with success."""
    assert f"{line.split()[-1]!r} is not one of" in usage_error(line)


def test_line_when_a_word_is_written_otherwise_then_it_is_sent_as_java_has_it() -> None:
    _, calls = run(f"createUser {AT} -u ann -p p -t SUPER", by_code({3001: reply()}))
    assert asked(calls[0])[2]["userType"] == "Super"
    _, calls = run(f"updateUser {AT} -u ann -s Disable", by_code({3002: reply()}))
    assert asked(calls[0])[2]["userStatus"] == "disable"


@pytest.mark.parametrize(
    ("line", "code"), [("copyUser -f a:1 -t b:1 -u ann,bob", 3004),
                       ("copyAcl -f a:1 -t b:1 -s User:ann,User:bob", 3009)],
)  # fmt: skip
def test_copy_when_one_that_was_named_is_not_there_then_none_is_copied(
    line: str, code: int
) -> None:
    """It said nothing and ended with 0."""

    def one(call: Call) -> RemotingCommand:
        is_ann = "ann" in str(call.command.ext_fields)
        return call.command.reply(0, body=json.dumps(USER).encode() if is_ann else b"")

    with pytest.raises(NotFound, match=r"there is nothing of .*bob to copy"):
        run(line, by_code({code: one}))


def test_credentials_when_there_is_a_tools_file_then_requests_are_signed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``$ROCKETMQ_HOME/conf/tools.yml`` as in Java, or another file that is named."""
    monkeypatch.delenv("ROCKETMQ_HOME", raising=False)
    monkeypatch.delenv(mqadmin.TOOLS_FILE, raising=False)
    assert mqadmin.read_credentials() is None
    monkeypatch.setenv("ROCKETMQ_HOME", str(tmp_path))
    assert mqadmin.read_credentials() is None
    (tmp_path / "conf").mkdir()
    tools = tmp_path / "conf" / "tools.yml"
    tools.write_text("accessKey: root\nsecretKey: 12345678\n")
    assert mqadmin.read_credentials() == Credentials("root", "12345678")
    other = tmp_path / "other.yml"
    monkeypatch.setenv(mqadmin.TOOLS_FILE, str(other))
    with pytest.raises(click.UsageError, match="no such file"):
        mqadmin.read_credentials()
    for text in ("accessKey: root\n", "[", "7"):
        other.write_text(text)
        with pytest.raises(click.UsageError, match=r"other\.yml"):
            mqadmin.read_credentials()


@pytest.mark.costly
@pytest.mark.parametrize(
    "content", [b"accessKey: 2001-99-99\n", b"[" * 5000, b"\xff\xfe", b"a: !!timestamp x"]
)
def test_tools_file_when_yaml_cannot_take_it_then_the_usage_names_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, content: bytes
) -> None:
    """What looks like a day and is none is an error of another kind, and was a traceback."""
    path = tmp_path / "tools.yml"
    path.write_bytes(content)
    monkeypatch.setenv(mqadmin.TOOLS_FILE, str(path))
    with pytest.raises(click.UsageError, match=r"tools\.yml cannot be read: \w+( in line \d+)?$"):
        mqadmin.read_credentials()


def test_tools_file_when_yaml_finds_a_mistake_then_its_line_is_told_and_not_its_text(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """The text is a secret; "ParserError" alone sends people through the whole file."""
    path = tmp_path / "tools.yml"
    path.write_text("accessKey: root\nsecretKey: [verysecret\n")
    monkeypatch.setenv(mqadmin.TOOLS_FILE, str(path))
    with pytest.raises(click.UsageError, match=r"ParserError in line 3$") as caught:
        mqadmin.read_credentials()
    assert "verysecret" not in str(caught.value)


def test_tls_file_when_it_is_a_directory_then_that_is_said(tmp_path: Path) -> None:
    """It is there, so that there is no such file sends people to look for it."""
    with pytest.raises(click.UsageError, match="is a directory"):
        mqadmin.client_tls(False, str(tmp_path))
    with pytest.raises(click.UsageError, match="there is no such file"):
        mqadmin.client_tls(False, str(tmp_path / "none"))


@pytest.mark.parametrize("use_tls", [True, False])
def test_tls_file_when_it_says_that_nothing_is_encrypted_then_nothing_is_sent(
    tmp_path: Path, use_tls: bool
) -> None:
    """A server's file, given by mistake: passwords went out in plain text, and nobody was told."""
    path = tmp_path / "tls.properties"
    path.write_text("tls.enable=false\n")
    with pytest.raises(click.UsageError, match=r"tls\.enable=false, and nothing") as refused:
        mqadmin.client_tls(use_tls, str(path))
    assert refused.value.exit_code == 2
    path.write_text("tls.client.authServer=false\n")
    assert (found := mqadmin.client_tls(use_tls, str(path))) is not None
    assert found.client is not None
