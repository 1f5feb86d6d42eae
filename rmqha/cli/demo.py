"""``bin/demo``: a cluster forms, its master is killed, and the failover is shown stage by stage.

By default all of it is ours: controllers, name server, replicas, a producer and a consumer. With
``--brokers java`` the broker set and the name server are real Java ones under our controllers.
Every process is a real one, and so is the kill -9.
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

from rmqha.cli.demo_cluster import AgentCluster, DemoCluster, JavaCluster, java_is_there
from rmqha.cli.demo_python import PythonDemo
from rmqha.cli.demo_show import console, show_state, show_timeline, step
from rmqha.cli.demo_timeline import Timeline
from rmqha.cli.options import SecondsRange
from rmqha.cli.output import run_command
from rmqha.cli.version import version_option

WRITES_BACK_TIMEOUT_S = 60.0


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha-demo")
@click.option("--once", is_flag=True, help="One round, then stop everything and exit 0.")
@click.option(
    "--brokers",
    type=click.Choice(["python", "java", "agents", "auto"]),
    default="python",
    show_default=True,
    help="Ours; real Java ones; scripted agents; or Java where it is found, else agents.",
)
@click.option(
    "--every",
    "every_s",
    type=SecondsRange(min=1),
    default=20.0,
    show_default=True,
    help="Seconds between two kills (python brokers).",
)
@click.option("--keep", is_flag=True, help="Keep stores and logs.")
@click.option(
    "--history",
    type=click.Path(dir_okay=False, writable=True, path_type=Path),
    default=None,
    help="Write what producer and consumer do, for bin/pipeline history-check (python brokers).",
)
def main(once: bool, brokers: str, every_s: float, keep: bool, history: Path | None) -> None:
    """Show failovers of a RocketMQ broker set under three rmqha controllers."""
    if history is not None and brokers != "python":
        raise click.UsageError("--history needs --brokers python")
    if history is not None and not history.absolute().parent.is_dir():
        raise click.UsageError(f"--history: {history.parent} is no directory")
    signal.signal(signal.SIGTERM, _interrupt)
    folder = Path(tempfile.mkdtemp(prefix="rmqha-demo-"))
    failed = False
    try:
        if brokers == "python":
            failed = PythonDemo(folder, every_s, history).play(once=once) != 0
        else:
            play_beside_java(folder, brokers, once=once)
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


def play_beside_java(folder: Path, brokers: str, *, once: bool) -> None:
    """One failover of Java brokers or of agents; then the cluster stays, unless ``once``."""
    with _make_cluster(folder, brokers) as cluster:
        play(cluster)
        if not once:
            stay(cluster)


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
    show_state(cluster.replicas(), *cluster.epoch_and_set())
    cluster.start_writing()
    step("kill -9 of the master")
    timeline = Timeline(cluster)
    victim = cluster.kill_master()
    timeline.killed()
    timeline.follow(WRITES_BACK_TIMEOUT_S)
    show_timeline(timeline.stages, victim)
    step("The old master returns, as a slave")
    cluster.revive()
    show_state(cluster.replicas(), *cluster.epoch_and_set())
    for line in cluster.verdict():
        console.print(f"  {line}")


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
    run_command("rmqha-demo", main)
