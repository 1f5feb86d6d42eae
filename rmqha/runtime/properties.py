"""Java's ``.properties`` text: read as ``java.util.Properties`` does, written so that it reads it."""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping

from rmqha.base.errors import ConfigInvalid

_ESCAPES = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
_WRITTEN = {"\\": "\\\\", **{char: f"\\{name}" for name, char in _ESCAPES.items()}}
# str.splitlines would also split at form feeds and at what Unicode calls line ends.
_LINE_END = re.compile(r"\r\n|\n|\r")
_UNICODE_ESCAPE = re.compile(r"[0-9A-Fa-f]{4}")

SHOWN_CHARACTERS_MAX = 80

CHANGE_BYTES_MAX = 64 * 1024
CHANGE_LINES_MAX = 1_000
"""Of one request that changes a configuration: all keys with long values are a tenth of that."""

SECRET_WORDS = (
    "password",
    "secret",
    "credential",
    "accesskey",
    "token",
    "exporterheader",
    "authenticationuser",
)
"""A key that holds one of these, in any case, has a value that is shown to nobody."""


def decode_properties(content: bytes) -> str:
    """The text of a properties file: UTF-8, with or without a byte order mark, or Latin-1.

    Java reads Latin-1 alone, in which any bytes are text, so no comment ends a start.
    """
    try:
        return content.removeprefix(codecs.BOM_UTF8).decode()
    except UnicodeDecodeError:
        return content.decode("latin-1")


def shown_properties(values: Mapping[str, str]) -> bytes:
    """What answers to "show your configuration": plain ``key=value`` lines, sorted, no secrets."""
    lines = []
    for key, value in sorted(values.items()):
        hidden = value and any(word in key.lower() for word in SECRET_WORDS)
        lines.append(f"{key}={'******' if hidden else value}\n")
    return "".join(lines).encode()


def too_large_change(body: bytes) -> str | None:
    """Why a request for other values is not even read; None where it may be."""
    if len(body) <= CHANGE_BYTES_MAX and body.count(b"\n") + body.count(b"\r") < CHANGE_LINES_MAX:
        return None
    return f"a change has {CHANGE_BYTES_MAX} bytes and {CHANGE_LINES_MAX} lines at most"


def parse_properties(text: str) -> dict[str, str]:
    """Read key and value of every line; a later line wins.

    Comments begin with ``#`` or ``!``; a backslash at a line's end joins the next one; key and
    value are parted by ``=``, ``:`` or blanks; ``\\uXXXX`` and the usual escapes are read.

    Raises:
        ConfigInvalid: a broken ``\\u`` escape.
    """
    found: dict[str, str] = {}
    for line in _logical_lines(text):
        key, value = _split(line)
        found[_unescape(key)] = _unescape(value)
    return found


def _logical_lines(text: str) -> list[str]:
    lines: list[str] = []
    # Joined once: a line of a million parts that grew with each of them took minutes.
    parts: list[str] = []
    rows = _LINE_END.split(text)
    if not rows[-1]:
        rows.pop()
    for raw in rows:
        line = raw.lstrip(" \t\f")
        if parts in ([], [""]):
            # Where backslashes alone came before, Java takes it for the first of its line, too.
            parts.clear()
            if not line or line[0] in "#!":
                continue
        joins = (len(line) - len(line.rstrip("\\"))) % 2 == 1
        parts.append(line[:-1] if joins else line)
        if not joins:
            lines.append("".join(parts))
            parts.clear()
    # After a backslash at the very end there is a key, although an empty one.
    if parts:
        lines.append("".join(parts))
    return lines


def _split(line: str) -> tuple[str, str]:
    position = 0
    while position < len(line) and line[position] not in "=: \t\f":
        position += 2 if line[position] == "\\" else 1
    key, rest = line[:position], line[position:].lstrip(" \t\f")
    if rest[:1] in ("=", ":"):
        rest = rest[1:].lstrip(" \t\f")
    return key, rest


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    out: list[str] = []
    position = 0
    while position < len(text):
        char = text[position]
        if char != "\\" or position + 1 == len(text):
            out.append(char)
            position += 1
            continue
        follower = text[position + 1]
        if follower == "u":
            digits = text[position + 2 : position + 6]
            if not _UNICODE_ESCAPE.fullmatch(digits):
                raise ConfigInvalid(f"broken escape \\u{shown(digits)} in {shown(text)!r}")
            out.append(chr(int(digits, 16)))
            position += 6
        else:
            out.append(_ESCAPES.get(follower, follower))
            position += 2
    # Escapes name UTF-16 units: pairs are one character, half a pair is none.
    return "".join(out).encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def shown(text: str) -> str:
    """A text out of a file for a line that people read: a file may be anything, and a terminal does
    what it is told."""
    cut = text if len(text) <= SHOWN_CHARACTERS_MAX else text[:SHOWN_CHARACTERS_MAX] + "..."
    return cut if cut.isprintable() else repr(cut)[1:-1]


def format_properties(values: Mapping[str, str]) -> str:
    """One ``key=value`` line each, sorted by key, escaped where Java's reader needs it."""
    lines = []
    for key in sorted(values):
        name = re.sub(r"[ =:#!]", r"\\\g<0>", _escape(key))
        value = _escape(values[key])
        if value.startswith(" "):
            value = "\\" + value
        lines.append(f"{name}={value}\n")
    return "".join(lines)


def edited(text: str, changed: Mapping[str, str]) -> str:
    """The text of a properties file with other values.

    A key that stands alone on its line is changed there, any other at the end: of several lines
    with one key the last counts.
    """
    left = dict(changed)
    # Java's readers part lines at these alone, and whoever has split anywhere else writes into a value.
    lines = re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+$", text)
    last: dict[str, int] = {}
    for at, line in enumerate(lines):
        if line.rstrip("\r\n").endswith("\\") or (
            at and lines[at - 1].rstrip("\r\n").endswith("\\")
        ):
            continue
        for key in _keys(line):
            last[key] = at
    for key, at in last.items():
        if key in left:
            lines[at] = format_properties({key: left.pop(key)})
    found = "".join(lines)
    if left and found and not found.endswith(("\r", "\n")):
        found += "\n"
    if left and found.rstrip("\r\n").endswith("\\"):
        found += "\n"  # a line that goes on would take the next one in
    found += format_properties(left)
    wrong = {key: value for key, value in changed.items() if _value(found, key) != value}
    return found + format_properties(wrong)


def _keys(line: str) -> list[str]:
    try:
        return list(parse_properties(line))
    except ConfigInvalid:
        return []


def _value(text: str, key: str) -> str | None:
    try:
        return parse_properties(text).get(key)
    except ConfigInvalid:
        return None


def _escape(text: str) -> str:
    return "".join(_WRITTEN.get(char) or _ascii(char) for char in text)


def _ascii(char: str) -> str:
    if " " <= char <= "~":
        return char
    units = char.encode("utf-16-be")
    return "".join(f"\\u{units[at : at + 2].hex()}" for at in range(0, len(units), 2))
