"""``--version``, the same on every command: whose it is, and which release."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import click

from rmqha import __version__

CommandT = TypeVar("CommandT", bound=Callable[..., object] | click.Command)


def version_line(name: str) -> str:
    """What ``NAME --version`` prints; Java's tools have the same names, so it says whose it is."""
    return f"{name} (rmqha) {__version__}"


def version_option(name: str) -> Callable[[CommandT], CommandT]:
    """The option ``--version``; goes on a function below ``@click.command``, or on a command."""
    return click.version_option(__version__, message=version_line(name))
