"""One scripted broker as a process: what the demo uses where there is no Java.

``python -m rmqha.cli.broker_agent --name broker-a --port 10911 --controllers HOST:PORT;...``
"""

from __future__ import annotations

import asyncio
import signal

import click

from rmqha.cli.output import run_command
from rmqha.remoting.address import split_addresses
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.disk import SystemDisk
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.logs import Logger, configure_logs
from rmqha.sim.broker_agent import BrokerAgent


@click.command()
@click.option("--cluster", default="DefaultCluster", show_default=True)
@click.option("--name", default="broker-a", show_default=True, help="The broker set.")
@click.option("--host", default="127.0.0.1", show_default=True)
@click.option("--port", required=True, type=int)
@click.option("--controllers", required=True, help="Addresses of all controllers, parted by ;")
@click.option("--store", required=True, help="Directory of the identity file.")
def main(cluster: str, name: str, host: str, port: int, controllers: str, store: str) -> None:
    """Register, heartbeat, follow elections; keep no messages."""
    configure_logs(style="json")
    run(_serve(cluster, name, host, port, tuple(split_addresses(controllers)), store))


async def _serve(
    cluster: str, name: str, host: str, port: int, controllers: tuple[str, ...], store: str
) -> None:
    log = Logger(broker=f"{host}:{port}")
    agent = BrokerAgent(
        cluster=cluster,
        name=name,
        host=host,
        port=port,
        controllers=controllers,
        store=store,
        clock=SystemClock(),
        rng=SystemRng(),
        disk=SystemDisk(),
        network=TcpNetwork(),
        log=log,
        on_role=lambda address, role, epoch: log.log(
            "info", "agent_role_changed", address=address, role=role, epoch=epoch
        ),
    )
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    await agent.start()
    print(f"agent {host}:{port} started", flush=True)
    await ended.wait()
    await agent.stop()


if __name__ == "__main__":
    run_command("broker-agent", main)
