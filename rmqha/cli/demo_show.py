"""What the demo prints: headlines, who is what, and a failover's stages."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from rich.console import Console
from rich.table import Table

from rmqha.cli.demo_timeline import Stage

TOPIC = "DemoTopic"
PIPED_WIDTH = 160


def console_width(is_terminal: bool) -> int | None:
    """A terminal's own, which is None; a pipe has none, and a sentence in a file is one line."""
    return None if is_terminal else PIPED_WIDTH


console = Console(highlight=False, width=console_width(os.isatty(1)))


class ReplicaRow(NamedTuple):
    """A row of the state."""

    broker_id: int
    address: str
    is_master: bool
    in_sync: bool
    alive: bool


def step(text: str) -> None:
    """Print one headline."""
    console.print(f"\n[bold]{text}[/bold]")


def show_state(replicas: Iterable[ReplicaRow], epoch: int, members: list[int]) -> None:
    """Who is what, by the controllers' word."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_edge=False)
    for column in ("  broker", "address", "role", "in sync", "alive"):
        table.add_column(column)
    for row in replicas:
        role = "[green]master[/green]" if row.is_master else "slave"
        table.add_row(f"  {row.broker_id}", row.address, role, _mark(row.in_sync), _mark(row.alive))
    console.print(table)
    console.print(f"  master epoch {epoch}, SyncStateSet {members}")


def _mark(yes: bool) -> str:
    return "yes" if yes else "[red]no[/red]"


def show_timeline(stages: Iterable[Stage], victim: str) -> None:
    """The failover, stage by stage, in milliseconds after the kill."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_edge=False)
    table.add_column("  after", justify="right")
    table.add_column("who")
    table.add_column("what")
    table.add_row("  0 ms", victim, "is killed")
    for stage in stages:
        table.add_row(f"  {stage.after_ms:.0f} ms", stage.who, stage.what)
    console.print(table)
