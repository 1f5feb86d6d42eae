"""``rmqha up``: a whole cluster on this machine, whose messages are there the next time.

Three controllers, a name server and a broker set of three replicas, each a process that runs the
real program. Ports follow from the name server's, files lie in one folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import stat
import sys
import time
import webbrowser
from collections.abc import Sequence
from pathlib import Path

import click
import msgspec
from rich.console import Console

from rmqha.base.errors import ConfigInvalid, DiskFailed, StoreInUse
from rmqha.cli.output import complain, run_command
from rmqha.cli.process import EXIT_CONFIG, EXIT_FAILED, EXIT_PORT, EXIT_STORE
from rmqha.cli.up_plan import Shape, UpPlan, all_ports, decided, page_port, plan_of
from rmqha.cli.version import version_option
from rmqha.cli.whole_file import write_whole_file
from rmqha.runtime.aio.disk import lock_directory
from rmqha.runtime.aio.loop import run
from rmqha.testing.aio_cluster import AioCluster
from rmqha.testing.nodes import NodeFailed
from rmqha.testing.settings import refuse_misspelt
from rmqha.testing.sites import PlannedSite

REMEMBERED, REMEMBERED_MODE = "cluster.json", 0o600
LOOK_S = 0.5
BAD_KEY = "--set takes KEY=VALUE, not {!r}"
console = Console(highlight=False, soft_wrap=True)


def remembered_in(folder: Path) -> Shape | None:
    """What a folder says of its cluster; None when it holds none.

    Raises:
        ConfigInvalid: it says what nobody understands.
    """
    path = folder / REMEMBERED
    try:
        return msgspec.json.decode(path.read_bytes(), type=Shape)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigInvalid(f"{path}: {error}") from error


def taken(plan: UpPlan, host: str) -> str | None:
    """A port that cannot be had, whose it was to be, and why; None when all can."""
    for port, name in all_ports(plan).items():
        with socket.socket() as one:
            one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                one.bind((host, port))
            except OSError as error:
                return f"{host}:{port}, of {name}: {error.strerror}; --port moves all"
    return None


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("rmqha up")
@click.option(
    "--folder",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("rmqha-data"),
    show_default=True,
    help="Where everything is kept; another one is another cluster.",
)
@click.option("--port", type=int, help="Of the name server; others follow.  [default: 9876]")
@click.option("--host", help="Where to listen; everybody who reaches it may do everything.  "
              "[default: 127.0.0.1]")  # fmt: skip
@click.option("--controllers", type=int, help="How many.  [default: 3]")
@click.option("--replicas", type=int, help="Of the one broker set, broker-a.  [default: 3]")
@click.option(
    "--set",
    "sets",
    multiple=True,
    metavar="KEY=VALUE",
    help="A property of all brokers; the folder remembers it.",
)
@click.option("--open", "opens", is_flag=True, help="Open the status page in a browser.")
def main(
    folder: Path, port: int | None, host: str | None, controllers: int | None,
    replicas: int | None, sets: Sequence[str], opens: bool,
) -> None:  # fmt: skip
    """Run a cluster on this machine until Ctrl-C; the next time its messages are there."""
    asked = {"port": port, "host": host, "controllers": controllers, "replicas": replicas}
    given = {name: value for name, value in asked.items() if value is not None}
    try:
        remembered = remembered_in(folder)
        if remembered is not None:
            lock_directory(str(folder))
        settings = dict(_pair(one) for one in sets)
        refuse_misspelt("broker", settings)
        shape = decided(remembered, given, settings)
        plan = plan_of(folder.absolute(), shape)
        refused = taken(plan, shape.host)
        if refused is not None:
            complain("rmqha up", refused)
            sys.exit(EXIT_PORT)
        if remembered is None:
            lock_directory(str(folder))
        # A property that no broker takes shall not stand in the way of the next start.
        kept = {} if remembered is None else remembered.sets
        _remember(folder, msgspec.structs.replace(shape, sets=kept))
    except StoreInUse:
        complain("rmqha up", _running(folder))
        sys.exit(EXIT_STORE)
    except (ConfigInvalid, DiskFailed, ValueError, OSError) as error:
        complain("rmqha up", str(error))
        sys.exit(EXIT_CONFIG)
    sys.exit(run(_stay(plan, folder, shape, opens=opens)))


def _remember(folder: Path, shape: Shape) -> None:
    """Write what the next run needs, unless it stands there; raises OSError.

    No cut and no full disk leaves half a file, with which no run would begin. A property may be a
    secret, so the file is its owner's alone.
    """
    path, data = folder / REMEMBERED, msgspec.json.encode(shape)
    with contextlib.suppress(FileNotFoundError):
        if path.read_bytes() == data and stat.S_IMODE(path.stat().st_mode) == REMEMBERED_MODE:
            return
    write_whole_file(str(path), data)


def _remember_sets(folder: Path, shape: Shape) -> None:
    """The cluster is up with its properties; it stays so where they cannot be written."""
    try:
        _remember(folder, shape)
    except OSError as error:
        complain("rmqha up", f"{error}; the next start needs the same --set again")


def _running(folder: Path) -> str:
    """What to say of a cluster that runs already; one that begins may not be remembered yet."""
    shape = remembered_in(folder)
    at = "" if shape is None else f", its name server at {shape.host}:{shape.port}"
    return (
        f"the cluster of {folder} runs already{at}; another one needs another --folder and --port"
    )


def _pair(text: str) -> tuple[str, str]:
    key, equals, value = text.partition("=")
    if not key or not equals:
        raise ConfigInvalid(BAD_KEY.format(text))
    return key, value


async def _stay(plan: UpPlan, folder: Path, shape: Shape, *, opens: bool) -> int:
    """Start, tell where everything is, wait for Ctrl-C or SIGTERM, end in order; the exit code."""
    cluster, over = AioCluster(PlannedSite(plan)), asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, over.set)
    failed = False
    try:
        began = time.monotonic()
        starting = loop.create_task(cluster.start())
        ending = loop.create_task(over.wait())
        await asyncio.wait((starting, ending), return_when=asyncio.FIRST_COMPLETED)
        if starting.done():
            starting.result()
            _remember_sets(folder, shape)
            await _tell(cluster, plan, folder, time.monotonic() - began)
            if opens:
                webbrowser.open(_page(plan))
            failed = not await _watch(cluster, over)
        else:
            starting.cancel()
            with contextlib.suppress(asyncio.CancelledError, NodeFailed):
                await starting
        ending.cancel()
        console.print("\nStopping.")
    except (NodeFailed, AssertionError, OSError) as error:
        failed = True
        complain("rmqha up", f"{error}\nThe logs are {folder}/*/log.json")
    finally:
        await _end(cluster)
    return EXIT_FAILED if failed else 0


def _page(plan: UpPlan) -> str:
    first = plan.controllers[0]
    return f"http://{first.host}:{page_port(first)}/"


async def _tell(cluster: AioCluster, plan: UpPlan, folder: Path, took_s: float) -> None:
    master = await cluster.master()
    brokers = ", ".join(
        f"{one.address} (master)" if one is master else one.address
        for one in cluster.of_kind("broker")
    )
    for what, where in (
        ("name server", plan.name_servers[0].address),
        ("controllers", ";".join(one.address for one in plan.controllers)),
        ("brokers", brokers),
        ("status page", _page(plan)),
        ("files", str(folder)),
    ):
        console.print(f"  {what:<12} {where}")
    console.print(f"Ready after {took_s:.1f} s. Ctrl-C ends it; what was sent is kept.")


async def _watch(cluster: AioCluster, over: asyncio.Event) -> bool:
    """Wait for the end; whether all nodes were there all the time."""
    told: set[str] = set()
    while not over.is_set():
        for node in cluster.nodes.values():
            if node.failure and node.name not in told:
                told.add(node.name)
                console.print(f"[red]{node.name} {node.failure}[/red]; its log is {node.log}")
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await over.wait()
    return not told


async def _end(cluster: AioCluster) -> None:
    """Brokers first: what they tell their controllers last is kept."""
    for kind in ("broker", "controller", "namesrv"):
        nodes = cluster.of_kind(kind)
        await asyncio.gather(*(one.shut_down() for one in nodes), return_exceptions=True)
    await cluster.close()


if __name__ == "__main__":
    run_command("rmqha up", main)
