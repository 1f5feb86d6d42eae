"""``bin/demo``: a cluster forms, its master is killed, and the failover is shown stage by stage.

Three controllers always; real Java brokers with a name server and a producer where Java and Maven
are found, scripted broker agents otherwise. Every process is a real one, and so is the kill -9.
"""

from __future__ import annotations

import shutil
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path
from types import FrameType

import click
from rich.console import Console
from rich.table import Table

from rmqha.cli.demo_cluster import AgentCluster, DemoCluster, JavaCluster, java_is_there
from rmqha.cli.demo_timeline import Timeline

WRITES_BACK_TIMEOUT_S = 60.0
console = Console(highlight=False)


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--once", is_flag=True, help="One round, then stop everything and exit 0.")
@click.option(
    "--brokers",
    type=click.Choice(["auto", "java", "agents"]),
    default="auto",
    show_default=True,
    help="Real Java brokers, scripted agents, or Java where it is found.",
)
@click.option("--keep", is_flag=True, help="Keep stores and logs.")
def main(once: bool, brokers: str, keep: bool) -> None:
    """Show a failover of a RocketMQ broker set under three rmqha controllers."""
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="rmqha-demo-"))
    failed = False
    try:
        with _make_cluster(folder, brokers) as cluster:
            play(cluster)
            if not once:
                stay(cluster)
    except KeyboardInterrupt:
        console.print("\nStopping.")
    except (AssertionError, RuntimeError) as error:
        failed = True
        console.print(f"[red]The demo failed:[/red] {error}", markup=True)
    finally:
        if keep or failed:
            console.print(f"Stores and logs: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    sys.exit(1 if failed else 0)


def _interrupt(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt


def _make_cluster(folder: Path, brokers: str) -> DemoCluster:
    if brokers == "agents":
        return AgentCluster(folder)
    reason = java_is_there(lambda text: console.print(f"[dim]{text}[/dim]"))
    if reason is None:
        return JavaCluster(folder)
    if brokers == "java":
        raise RuntimeError(reason)
    console.print(f"[yellow]{reason}: scripted broker agents stand in for Java brokers.[/yellow]")
    return AgentCluster(folder)


def play(cluster: DemoCluster) -> None:
    """Form the cluster, kill the master, show the failover, bring the old master back."""
    step("Three controllers start")
    started = time.monotonic()
    leader = cluster.start_controllers()
    console.print(
        f"  {cluster.controllers.address_list}; {leader} leads"
        f" {time.monotonic() - started:.2f} s after the first process was started"
    )
    step(f"A broker set of three {cluster.what} joins")
    cluster.start_brokers()
    show_state(cluster)
    cluster.start_writing()
    step("kill -9 of the master")
    timeline = Timeline(cluster)
    victim = cluster.kill_master()
    timeline.killed()
    timeline.follow(WRITES_BACK_TIMEOUT_S)
    show_timeline(timeline, victim)
    step("The old master returns, as a slave")
    cluster.revive()
    show_state(cluster)
    for line in cluster.verdict():
        console.print(f"  {line}")


def step(text: str) -> None:
    """A headline."""
    console.print(f"\n[bold]{text}[/bold]")


def show_state(cluster: DemoCluster) -> None:
    """Who is what, by the controllers' word."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_edge=False)
    for column in ("  broker", "address", "role", "in sync", "alive"):
        table.add_column(column)
    for row in cluster.replicas():
        role = "[green]master[/green]" if row.is_master else "slave"
        table.add_row(f"  {row.broker_id}", row.address, role, _mark(row.in_sync), _mark(row.alive))
    console.print(table)
    epoch, members = cluster.epoch_and_set()
    console.print(f"  master epoch {epoch}, SyncStateSet {members}")


def _mark(yes: bool) -> str:
    return "yes" if yes else "[red]no[/red]"


def show_timeline(timeline: Timeline, victim: str) -> None:
    """The failover, stage by stage, in milliseconds after the kill."""
    table = Table(box=None, pad_edge=False, padding=(0, 2), show_edge=False)
    table.add_column("  after", justify="right")
    table.add_column("who")
    table.add_column("what")
    table.add_row("  0 ms", victim, "is killed")
    for stage in timeline.stages:
        table.add_row(f"  {stage.after_ms:.0f} ms", stage.who, stage.what)
    console.print(table)


def stay(cluster: DemoCluster) -> None:
    """Keep the cluster up until Ctrl-C."""
    address = cluster.controllers.addresses[0]
    console.print(
        f"\nThe cluster stays up. Try:\n"
        f"  bin/mqadmin getSyncStateSet -a {address} -b {cluster.broker_name}\n"
        f"  bin/mqadmin electMaster -a {address} -c {cluster.cluster_name}"
        f" -bn {cluster.broker_name} -b 2\n"
        f"Ctrl-C ends it."
    )
    threading.Event().wait()


if __name__ == "__main__":
    main()
