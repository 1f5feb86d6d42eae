"""The broker process: Java's flags and boot line, our exit codes.

Exit codes: 0 ended in order, 1 failed while it ran, 2 bad flags or configuration, 3 the store
cannot be used, 4 a port cannot be used.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import click
from msgspec.structs import replace

from rmqha.base.errors import (
    ConfigInvalid,
    DiskFailed,
    StoreInUse,
)
from rmqha.broker.admin.config_changes import LIVE
from rmqha.broker.aio.replica import BrokerReplica
from rmqha.broker.common.settings import IMPORTANT, SETTINGS, BrokerConfig, load_config
from rmqha.cli import prometheus
from rmqha.cli.output import complain, run_command, say
from rmqha.cli.process import (
    EXIT_STORE,
    Ending,
    Opening,
    collections_held,
    configured,
    exit_code,
    make_room,
    print_config,
    read_settings,
    set_umask,
    settle_memory,
    tell_open_doors,
)
from rmqha.cli.reload import Part, Reloader
from rmqha.cli.stall_watch import WatchProcess
from rmqha.cli.status_page import Page, nothing, start_status_page
from rmqha.cli.tls import DoorWatch, load_tls, rejected_collector, tls_collector, tls_values
from rmqha.cli.version import version_option
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.disk import SystemDiskUse, lock_first_byte
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.aio.processor import SystemProcessor
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger, configure_logs
from rmqha.runtime.ports import Network
from rmqha.web import settings as status_page_settings

BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
BROKER_PORTS = 2
PROBE_ADDRESS = ("192.0.2.1", 9)
"""Of a network kept for documents: connecting a datagram socket to it sends nothing."""


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("mqbroker")
@click.option("-c", "--configFile", "config_file", help="Java properties file of the broker.")
@click.option("-n", "--namesrvAddr", "namesrv", help="Name servers, ';' between them.")
@click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print all config items.")
@click.option(
    "-m", "--printImportantConfig", "print_important", is_flag=True,
    help="Print the items that place a broker in its set.",
)  # fmt: skip
def main(
    config_file: str | None, namesrv: str | None, print_all: bool, print_important: bool
) -> None:
    """Run one replica of a RocketMQ broker set in controller mode."""
    config = configured("mqbroker", lambda: read_config(config_file, namesrv))
    if print_all or print_important:
        print_config(config.values, lambda key: print_all or key in IMPORTANT)
        return
    configure_logs(level=config.values["logLevel"], style=config.values["logStyle"])
    sys.exit(run(serve(config, config_file)))


def read_config(path: str | None, namesrv: str | None) -> BrokerConfig:
    """Read the file given with ``-c``, and the environment; ``-n`` replaces the namesrvAddr.

    Raises:
        ConfigInvalid: no file, an unreadable one, or one whose content cannot be used.
    """
    properties = read_settings(path, "controllerAddr", SETTINGS)
    servers = namesrv or os.environ.get("NAMESRV_ADDR", "")
    if namesrv is not None or (servers and not properties.get("namesrvAddr")):
        properties["namesrvAddr"] = servers
    try:
        return load_config(
            properties,
            host_name=socket.gethostname(),
            local_address=local_address(),
            user_home=os.path.expanduser("~"),
        )
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{path or 'environment'}: {error}") from error


def local_address() -> str:
    """The address of this machine that packets to elsewhere leave from; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(PROBE_ADDRESS)
        except OSError:
            return "127.0.0.1"
        return str(probe.getsockname()[0])


def boot_line(config: BrokerConfig) -> str:
    """What Java's launcher prints."""
    line = f"The broker[{config.broker_name}, {config.address}] boot success. serializeType=JSON"
    servers = ";".join(config.name_servers)
    return f"{line} and name server is {servers}" if servers else line


def read_boot_id() -> str:
    """What changes when this machine starts anew; empty where the system does not tell."""
    with contextlib.suppress(OSError):
        return BOOT_ID.read_text(encoding="ascii").strip()
    return ""


def memory_size() -> int:
    """Bytes of this machine's memory; 8 GiB where the system does not tell."""
    try:
        size = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        size = 0
    return size if size > 0 else 1 << 33


def disk_use(config: BrokerConfig) -> SystemDiskUse:
    """Of the disks that the store fills: storePathCommitLog may be on one of its own."""
    store = config.store
    return SystemDiskUse(store.store_path_commit_log, store.store_path_root_dir)


async def serve(config: BrokerConfig, path: str | None = None) -> int:
    """Run until a signal or a failure; returns the exit code."""
    log = Logger(broker=config.broker_name, address=config.address)
    if config.unknown:
        log.log("warning", "config_keys_unknown", keys=list(config.unknown))
    ending, reloader = Ending(log), Reloader(path, log)
    set_umask(config.values)
    tls = load_tls("mqbroker", config.values, log)
    tell_open_doors("broker", config.values, tls.settings, log)

    def fatal(error: BaseException) -> None:
        complain("mqbroker", error)
        ending.end(exit_code(error))

    fitting = make_room(log, config.connections_max, ports=BROKER_PORTS, of_store=True)
    config = replace(config, connections_max=fitting)
    try:
        lock_first_byte(config.store.path("lock"))
        replica = BrokerReplica(
            config,
            clock=SystemClock(),
            rng=SystemRng(),
            disk=MACHINE.disk(),
            network=MACHINE.network(tls),
            names=MACHINE.names(),
            ha_network=MACHINE.network(tls if config.boolean("haTlsEnable") else None),
            log=log,
            boot_id=read_boot_id(),
            process_id=os.getpid(),
            on_fatal=fatal,
            used_ratio=disk_use(config),
            config_path=os.path.abspath(path) if path else "",
            memory_bytes=memory_size(),
            watch=_watch(config, log),
            processor=SystemProcessor(),
        )
    except (StoreInUse, DiskFailed) as error:
        complain("mqbroker", error)
        return EXIT_STORE
    tls.rejected = replica.rejected
    with (
        Opening("mqbroker", f"{config.address} (listenPort, haListenPort)") as start,
        collections_held(),
    ):
        await replica.start()
    code = start.code
    if code is None:
        where = prometheus.LISTENING_ON.format(**config.values)
        with Opening("mqbroker", where) as ports:
            stop_metrics = await start_metrics(config, replica, tls, log)
            ports.listening_on = status_page_settings.LISTENING_ON.format(**config.values)
            stop_page = await start_status_page(
                "broker",
                config.values,
                tls,
                lambda: broker_page(replica, MACHINE.network(tls), log),
                log,
                replica.rejected,
                replica.not_ready,
                told=lambda place: setattr(replica.admin, "status_page", place),
            )
        if ports.code is not None:
            await replica.stop()
            return ports.code
        reloader.begin([Part(config.values, LIVE, replica.admin.change_config)])
        settle_memory()
        say(boot_line(config))
        doors = DoorWatch(tls, [replica.rejected], log)
        code = await ending.wait()
        await doors.stop()
        await stop_page()
        await stop_metrics()
    await (replica.stop() if code == 0 else replica.close())
    log.log("info", "broker_stopped", code=code)
    return code


def _watch(config: BrokerConfig, log: Logger) -> WatchProcess | None:
    """Who acts for a broker that stands still; None where nobody is to, or can."""
    if not config.stall_ms:
        return None
    try:
        return WatchProcess(tls_values(config.values))
    except (AttributeError, OSError) as error:
        log.log("warning", "stall_watcher_not_started", reason=str(error))
        return None


async def start_metrics(
    config: BrokerConfig, replica: BrokerReplica, tls: Tls, log: Logger
) -> Callable[[], Awaitable[None]]:
    """Open the Prometheus port if the configuration asks for it; returns what ends it.

    Raises:
        OSError: the port cannot be used.
    """
    if not prometheus.is_wanted(config.values, log):
        return nothing
    from rmqha.broker.admin.aio.prometheus import Collector

    labels = broker_labels(config)
    collectors = [
        Collector(labels, prometheus.in_turns_of_loop(replica.admin.scrape)),
        tls_collector(tls, labels),
        rejected_collector([(labels, replica.rejected)]),
    ]
    return await prometheus.serve(config.values, collectors, replica.rejected, replica.not_ready)


def broker_labels(config: BrokerConfig) -> dict[str, str]:
    """Labels of a broker's series; its own are Java's."""
    own = {
        "cluster": config.cluster_name, "node_type": "broker", "node_id": config.broker_name,
        "address": config.address,
    }  # fmt: skip
    return prometheus.labels_of(config.values) | own


def broker_page(replica: BrokerReplica, network: Network, log: Logger) -> Page:
    """The status page of a broker."""
    from rmqha.broker.admin.aio.status_page import BrokerPage

    return BrokerPage(replica, clock=SystemClock(), network=network, log=log)


if __name__ == "__main__":
    run_command("mqbroker", main)
