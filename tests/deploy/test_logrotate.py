"""The rule for logs that go to files.

Checked: its braces, its words, and that a log is cut in place, since servers keep theirs open. Not
checked: logrotate's own reading.
"""

from __future__ import annotations

import re
from pathlib import Path

FILE = Path(__file__).resolve().parents[2] / "docs" / "deploy" / "logrotate" / "rmqha"
WORDS = {
    "daily", "maxsize", "rotate", "missingok", "notifempty", "copytruncate", "compress",
    "delaycompress", "dateext", "dateformat",
}  # fmt: skip


def _rule() -> tuple[str, dict[str, str]]:
    lines = [one.strip() for one in FILE.read_text().splitlines()]
    text = "\n".join(one for one in lines if one and not one.startswith("#"))
    found = re.fullmatch(r"(\S+) \{\n(.*)\n\}", text, re.DOTALL)
    assert found is not None
    words = [line.partition(" ") for line in found[2].splitlines()]
    return found[1], {word: rest for word, _, rest in words}


def test_rule_when_read_then_it_is_one_block_of_known_words() -> None:
    """A misspelt word ends the rotation of all logs of a machine."""
    pattern, words = _rule()
    assert pattern == "/var/log/rmqha/*.log"
    assert set(words) == WORDS


def test_rule_when_a_log_grows_then_it_is_cut_in_place_and_names_do_not_meet() -> None:
    """A server writes on into a file that was moved; two rotations of a day need two names."""
    _, words = _rule()
    assert words["copytruncate"] == ""
    assert "create" not in words
    assert "%s" in words["dateformat"], "maxsize rotates more than once a day"
