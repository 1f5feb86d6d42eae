"""The command lines in what the doctor advises: whether they could be typed as they stand."""

from __future__ import annotations

import re
import shlex

import click

from rmqha.broker.admin.config_changes import LIVE
from rmqha.cli.mqadmin import main as mqadmin
from rmqha.doctor.diagnosis import Diagnosis
from rmqha.doctor.facts import Facts

LINE = re.compile(r"`(bin/mq[^`]*)`")
BARE = re.compile(r"mqadmin [a-z]+[A-Z]\w*")
"""A command that stands outside of such a line, so that nobody has filled it in."""


def lines_of(one: Diagnosis) -> list[list[str]]:
    """The words of each command line of a diagnosis."""
    return [shlex.split(line) for line in LINE.findall(one.found.next_step)]


def need_typed(one: Diagnosis, facts: Facts) -> None:
    """Fail where a line of a diagnosis is none: a flag is missing, or a running broker refuses it."""
    rest = LINE.sub("", one.found.next_step)
    assert "{" not in one.text(), one.text()
    assert BARE.search(rest) is None, one.text()
    assert "identity included" not in one.text(), one.text()
    for words in lines_of(one):
        if words[0] == "bin/mqadmin":
            parsed = parse(words)
            if words[1] == "updateBrokerConfig":
                _need_live(parsed, facts)


def parse(words: list[str]) -> dict[str, object]:
    """The options of a line of bin/mqadmin, as click reads them."""
    assert words[0] == "bin/mqadmin"
    command = mqadmin.commands[words[1]]
    try:
        found = command.make_context(words[1], list(words[2:])).params
    except click.UsageError as error:
        raise AssertionError(f"{shlex.join(words)}: {error.message}") from error
    if words[1] == "cleanBrokerMetadata":
        assert found["cluster_name"] or found["clean_living"], words
    return found


def _need_live(parsed: dict[str, object], facts: Facts) -> None:
    """A key that a broker of ours reads at its start only is not to be given to one that runs."""
    key, address = parsed["key"], str(parsed["broker_address"])
    broker = facts.broker(address)
    assert broker is not None, parsed
    assert key in LIVE or broker.is_java, f"{key} is read at the start of {address}"
