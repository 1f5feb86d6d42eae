"""Runs a command line's exchange with scripted answers, without a socket."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click

from rmqha.admin.commands import ALL
from rmqha.admin.report import Report
from rmqha.admin.spec import Here
from rmqha.cli.mqadmin import main
from rmqha.client.exchange import Call, Exchange, ResultT, Unreachable
from rmqha.remoting.command import RemotingCommand

Answer = Callable[[Call], RemotingCommand]

_STYLES = ("as_json", "as_plain", "interval_s", "_unused")
_SPECS = {spec.name: spec for spec in ALL}
HERE = Here(1_795_277_765_000, 0x0123_4567_89AB_CDEF)


def drive(exchange: Exchange[ResultT], answer: Answer) -> tuple[ResultT, list[Call]]:
    """Run an exchange with scripted answers; returns its result and what it asked."""
    calls: list[Call] = []
    try:
        call = next(exchange)
        while True:
            calls.append(call)
            try:
                reply = answer(call)
            except Unreachable as error:
                call = exchange.throw(error)
            else:
                call = exchange.send(reply)
    except StopIteration as end:
        return end.value, calls


def start(line: list[str], here: Here = HERE) -> Exchange[Report]:
    """The exchange of a command line; raises click's errors for a wrong one."""
    command = main.commands[line[0]]
    context = command.make_context(line[0], list(line[1:]))
    arguments: dict[str, Any] = {
        name: value for name, value in context.params.items() if name not in _STYLES
    }
    spec = _SPECS[line[0]]
    return spec.run(**arguments, **({"here": here} if spec.needs_here else {}))


def by_code(table: dict[int, RemotingCommand | Answer | Exception]) -> Answer:
    """Answers by request code: a response, a function, or what is raised."""

    def answer(call: Call) -> RemotingCommand:
        found = table[call.command.code]
        if isinstance(found, Exception):
            raise found
        return found if isinstance(found, RemotingCommand) else found(call)

    return answer


def run(line: str | list[str], answer: Answer, here: Here = HERE) -> tuple[Report, list[Call]]:
    """Run a command line with scripted answers."""
    words = line.split() if isinstance(line, str) else line
    return drive(start(words, here), answer)


def usage_error(line: str) -> str:
    """The text of the usage error that a command line ends with before it asks anything."""
    try:
        next(start(line.split()))
    except click.UsageError as error:
        return error.format_message()
    raise AssertionError(f"{line} was taken")
