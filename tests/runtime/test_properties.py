"""Properties files are read as ``java.util.Properties`` reads them, and written so that it can."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.process import read_properties
from rmqha.runtime.properties import (
    CHANGE_BYTES_MAX,
    CHANGE_LINES_MAX,
    SECRET_WORDS,
    edited,
    format_properties,
    parse_properties,
    shown_properties,
    too_large_change,
)

# What java.util.Properties#load (JDK 17) makes of the text on the left.
CASES = {
    "": {},
    "a=1": {"a": "1"},
    "a:1": {"a": "1"},
    "a 1": {"a": "1"},
    "a\t=\t1": {"a": "1"},
    "a = = 1": {"a": "= 1"},
    "a==1": {"a": "=1"},
    "a   b=c": {"a": "b=c"},
    "  a=1  ": {"a": "1  "},
    "a": {"a": ""},
    "a=": {"a": ""},
    "=1": {"": "1"},
    "a=1\na=2": {"a": "2"},
    "a=1\r\nb=2\rc=3\n": {"a": "1", "b": "2", "c": "3"},
    "# no\n! no\n  # no\na=#1!": {"a": "#1!"},
    "#comment goes on?\\\na=1": {"a": "1"},
    "\n \t\f\na=1": {"a": "1"},
    "a=1,\\\n   2": {"a": "1,2"},
    "a=1,\\\r\n   2": {"a": "1,2"},
    "a=1\\\n#2": {"a": "1#2"},
    "a=1\\\n\nb=2": {"a": "1", "b": "2"},
    "\\\n# no=key": {},
    "\\\n\nb=2": {"b": "2"},
    "\\\n \\\nb=2": {"b": "2"},
    "\\": {"": ""},
    "\\\n": {"": ""},
    "a=1\n\\\n": {"a": "1", "": ""},
    "a=1\n\\\n\n": {"a": "1"},
    "a=1\\\\\nb=2": {"a": "1\\", "b": "2"},
    "a=1\\": {"a": "1"},
    "a\\ b=1": {"a b": "1"},
    "a\\=b\\:c=1": {"a=b:c": "1"},
    "a=\\t\\n\\r\\f\\q\\\\": {"a": "\t\n\r\fq\\"},
    "path=C:\\\\store": {"path": "C:\\store"},
    "a=\\u0041\\u00e9\\u4E2D": {"a": "Aé中"},
    "a=\\ud83d\\ude00": {"a": "😀"},
    "a=1\x0b2\x1c3\x852\u20284": {"a": "1\x0b2\x1c3\x852\u20284"},
    "a=1\fb": {"a": "1\fb"},
}


@pytest.mark.parametrize(("text", "expected"), CASES.items(), ids=map(repr, CASES))
def test_a_file_is_read_when_written_for_java_then_as_java_reads_it(
    text: str, expected: dict[str, str]
) -> None:
    """A controller would start with other values than the Java one with the same file."""
    assert expected == parse_properties(text)


@pytest.mark.parametrize("text", ["a=\\u12", "a=\\u12G4", "a=\\u+123", "a=\\u1_23", "\\u=1"])
def test_a_file_is_refused_when_an_escape_is_broken(text: str) -> None:
    """Java refuses the whole file; half of a value must not be taken for the value."""
    with pytest.raises(ConfigInvalid, match="broken escape"):
        parse_properties(text)


def test_a_lone_surrogate_is_replaced_when_read() -> None:
    """A string that cannot be encoded would break 1010 and the stored file later."""
    assert {"a": "\ufffd"} == parse_properties("a=\\ud83d")


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_values_come_back_when_written_and_read(values: dict[str, str]) -> None:
    """updateControllerConfig would store a file that starts with other values."""
    text = format_properties(values)
    assert values == parse_properties(text)


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_the_file_is_ascii_when_written(values: dict[str, str]) -> None:
    """Java reads properties files as ISO-8859-1: anything else would come back garbled."""
    assert format_properties(values).isascii()


def test_ordinary_values_stay_readable_when_written() -> None:
    """Peers, addresses and lists are for people too; they need no backslash."""
    values = {"controllerDLegerPeers": "n0-127.0.0.1:9878;n1-h:1", "metricsLabel": "a:b,c:d"}
    expected = "controllerDLegerPeers=n0-127.0.0.1:9878;n1-h:1\nmetricsLabel=a:b,c:d\n"
    assert expected == format_properties(values)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        ("# 生产环境\nbrokerName=a\n".encode("gbk"), "a"),
        ("# générale\nbrokerName=a\n".encode("latin-1"), "a"),
        (b"\xef\xbb\xbfbrokerName=a\n", "a"),
        ("brokerName=größe\n".encode(), "größe"),
        ("brokerName=größe\n".encode("latin-1"), "größe"),
    ],
)
def test_a_file_of_any_editor_is_read(tmp_path: Path, content: bytes, name: str) -> None:
    """A remark in another encoding ended the start; a byte order mark hid the first key."""
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    assert read_properties(str(path), "brokerName") == {"brokerName": name}


@given(
    st.dictionaries(st.text(min_size=1, max_size=5), st.text(max_size=5)),
    st.sampled_from(SECRET_WORDS),
)
def test_no_secret_is_shown(values: dict[str, str], word: str) -> None:
    """Anybody may ask a broker, a controller or a name server for its configuration."""
    secret = "0penSesame"
    for key in (word, word.upper(), f"my{word.title()}Of"):
        shown = shown_properties({**values, key: secret, f"{key}Unset": ""}).decode()
        assert secret not in shown
        assert f"{key}=******\n" in shown
        assert f"{key}Unset=\n" in shown


@pytest.mark.parametrize("content", [b"\x80\x81=1\n", b"\x1b[31mred=1\n", b"\x7fELF=1\n"])
def test_a_file_that_is_no_text_is_refused_by_its_name(tmp_path: Path, content: bytes) -> None:
    """A key of control bytes is another file's content; and none of it goes to the terminal."""
    path = tmp_path / "broker.conf"
    path.write_bytes(content)
    with pytest.raises(ConfigInvalid, match="is no properties file") as caught:
        read_properties(str(path), "brokerName")
    assert str(path) in str(caught.value)
    assert str(caught.value).isprintable()


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (b"a" * CHANGE_BYTES_MAX, True),
        (b"a" * (CHANGE_BYTES_MAX + 1), False),
        (b"\n" * (CHANGE_LINES_MAX - 1), True),
        (b"\n" * CHANGE_LINES_MAX, False),
        (b"\r" * CHANGE_LINES_MAX, False),
        (b"\n\r" * (CHANGE_LINES_MAX // 2), False),
    ],
)
def test_change_when_it_is_larger_than_any_then_why_it_is_not_read(
    body: bytes, *, fits: bool
) -> None:
    """Whoever may change a key may not keep a server busy."""
    refusal = too_large_change(body)
    assert refusal == (None if fits else "a change has 65536 bytes and 1000 lines at most")


@pytest.mark.costly
def test_line_when_it_has_very_many_parts_then_it_is_joined_once() -> None:
    """Copied anew with each part, half a MB takes many seconds."""
    count, begun = 100_000, time.process_time()
    found = parse_properties("a=" + "bcdef\\\n" * count + "g")
    assert found == {"a": "bcdef" * count + "g"}
    assert time.process_time() - begun < 2


@pytest.mark.parametrize(
    "text",
    ["x=1\u2028a=5\n", "x=1\x85a=5\n", "x=1\x0ba=5", "x=1\x0ca=5\na=3\n", "a=1\\", "x=1\r\na=3\r\ny=2\r\n",
     "x=1\ra=3\ry=2", "a=1\\\n", ""],
)  # fmt: skip
def test_text_when_edited_then_all_other_keys_have_the_values_of_before(text: str) -> None:
    """Lines end where Java's readers end them, and a last line that goes on takes nothing in."""
    before = parse_properties(text)
    for key in ("a", "b"):
        assert parse_properties(edited(text, {key: "7"})) == before | {key: "7"}
