"""The controller process: Java's flags and boot lines, our exit codes.

Exit codes: 0 ended in order, 1 failed while it ran, 2 bad flags or configuration, 3 the store
cannot be used, 4 the port cannot be used.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqha.base.errors import (
    ConfigInvalid,
)
from rmqha.cli import prometheus
from rmqha.cli.output import run_command, say
from rmqha.cli.process import (
    EXIT_FAILED,
    EXIT_PORT,
    Ending,
    Opening,
    configured,
    make_room,
    print_config,
    read_properties,
    set_umask,
    settle_memory,
    tell_open_doors,
)
from rmqha.cli.reload import Part, Reloader
from rmqha.cli.status_page import Page, nothing, start_status_page
from rmqha.cli.tls import DoorWatch, load_tls, rejected_collector, tls_collector
from rmqha.cli.version import version_option
from rmqha.controller.aio.service import ControllerService
from rmqha.controller.pods import named_by_pod
from rmqha.controller.settings import ALIASES, DEFAULTS, MUTABLE, ControllerConfig, load_config
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.disk import lock_directory
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.environment import not_from, overlaid, settings_of
from rmqha.runtime.logs import Logger, configure_logs
from rmqha.runtime.ports import Network
from rmqha.web import settings as status_page_settings

if TYPE_CHECKING:
    from rmqha.controller.aio.prometheus import Collector

BOOT_LINE = "The Controller Server boot success. serializeType=JSON"
IMPORTANT = (
    "controllerType", "controllerDLegerGroup", "controllerDLegerPeers", "controllerDLegerSelfId",
    "jRaftGroupId", "jRaftServerId", "jRaftInitConf", "jRaftControllerRPCAddr", "bindAddress",
    "listenPort", "controllerStorePath", "metricsExporterType",
)  # fmt: skip


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("mqcontroller")
@click.option("-c", "--configFile", "config_file", help="Java properties file of the controller.")
@click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print all config items.")
@click.option(
    "-m", "--printImportantConfig", "print_important", is_flag=True,
    help="Print the items that place a controller in its group, and those that can change.",
)  # fmt: skip
@click.option("-n", "--namesrvAddr", "namesrv", help="Accepted as in Java, without effect.")
def main(
    config_file: str | None, print_all: bool, print_important: bool, namesrv: str | None
) -> None:
    """Run one controller of a RocketMQ cluster (RIP-44)."""
    config = configured("mqcontroller", lambda: read_config(config_file))
    if print_all or print_important:
        print_config(config.values, lambda key: print_all or key in IMPORTANT or key in MUTABLE)
        return
    configure_logs(level=config.values["logLevel"], style=config.values["logStyle"])
    sys.exit(run(serve(config, config_file)))


def read_config(path: str | None) -> ControllerConfig:
    """Read the file given with ``-c``, and the environment, which counts more.

    Raises:
        ConfigInvalid: no file, an unreadable one, or one whose content cannot be used.
    """
    over = settings_of(os.environ, DEFAULTS)
    without_file = path is None and "controllerDLegerPeers" in over
    in_file = {} if without_file else read_properties(path, "controllerDLegerPeers")
    properties = named_by_pod(overlaid(in_file, over), os.environ)
    try:
        config = load_config(
            properties,
            home=os.environ.get("ROCKETMQ_HOME", ""),
            user_home=os.path.expanduser("~"),
            own_path=os.path.realpath(path) if path else "",
            outside=not_from(in_file, properties, over),
        )
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{path or 'environment'}: {error}") from error
    if path is not None:
        say(f"load config properties file OK, {path}")
    return config


async def serve(config: ControllerConfig, path: str | None = None) -> int:
    """Run until a signal or a failure; returns the exit code."""
    log = Logger(node=config.self_id, group=config.group)
    if config.unknown:
        log.log("warning", "config_keys_unknown", keys=list(config.unknown))
    ending, reloader = Ending(log), Reloader(path, log, ALIASES)
    set_umask(config.values)
    tls = load_tls("mqcontroller", config.values, log)
    tell_open_doors("controller", config.values, tls.settings, log)
    network = MACHINE.network(tls)
    service = ControllerService(
        config,
        clock=SystemClock(),
        rng=SystemRng(),
        disk=MACHINE.disk(),
        network=network,
        log=log,
        on_fatal=lambda _: ending.end(EXIT_FAILED),
        connections_max=make_room(log, config.integer("connectionsMax")),
    )
    tls.rejected = service.rejected
    own = f"{config.values['bindAddress']}:{config.this.port} (controllerDLegerPeers)"
    with Opening("mqcontroller", own) as opening:
        lock_directory(config.store_path)
        await service.start()
        opening.listening_on = prometheus.LISTENING_ON.format(**config.values)
        stop_metrics = await start_metrics(config, service, tls, log)
        opening.listening_on = status_page_settings.LISTENING_ON.format(**config.values)
        stop_page = await start_status_page(
            "controller",
            config.values,
            tls,
            lambda: controller_page(service, network, log),
            log,
            service.rejected,
            service.not_ready,
            service.election_history,
            told=lambda place: setattr(service.metadata, "status_page", place),
        )
    if opening.code is not None:
        if opening.code == EXIT_PORT:
            await service.close()
        return opening.code
    reloader.begin([Part(config.values, MUTABLE, service.configuration.change)])
    settle_memory()
    say(BOOT_LINE)
    log.log("info", "controller_started", address=config.this.address, store=config.store_path)
    watch = DoorWatch(tls, [service.rejected], log)
    code = await ending.wait()
    await watch.stop()
    await stop_page()
    await (service.stop() if code == 0 else service.close())
    await stop_metrics()
    log.log("info", "controller_stopped", code=code)
    return code


async def start_metrics(
    config: ControllerConfig, service: ControllerService, tls: Tls, log: Logger
) -> Callable[[], Awaitable[None]]:
    """Open the Prometheus port if the configuration asks for it.

    Raises:
        OSError: the port cannot be used.
    """
    if not prometheus.is_wanted(config.values, log):
        return nothing
    labels = controller_labels(config)
    collectors = [
        controller_collector(config, service),
        tls_collector(tls, labels),
        rejected_collector([(labels, service.rejected)]),
    ]
    return await prometheus.serve(config.values, collectors, service.rejected, service.not_ready)


def controller_labels(config: ControllerConfig) -> dict[str, str]:
    """Labels of a controller's series."""
    own = {"address": config.this.address, "group": config.group, "peer_id": config.self_id}
    return prometheus.labels_of(config.values) | own


def controller_collector(config: ControllerConfig, service: ControllerService) -> Collector:
    """The series of a controller."""
    from rmqha.controller.aio.prometheus import Collector

    def is_removed() -> bool:
        core = service.raft.core
        return core is not None and core.node.is_removed

    return Collector(
        service.metrics,
        controller_labels(config),
        prometheus.in_turns_of_loop(service.status),
        lambda: disk_usage(config.store_path),
        is_removed,
    )


def controller_page(service: ControllerService, network: Network, log: Logger) -> Page:
    """The status page of a controller."""
    from rmqha.controller.aio.status_page import ControllerPage

    return ControllerPage(service, clock=SystemClock(), network=network, log=log)


def disk_usage(directory: str) -> int:
    """Bytes of all files in a store directory."""
    total = 0
    for path in Path(directory).glob("*"):
        with contextlib.suppress(FileNotFoundError):  # compaction removes segments meanwhile
            total += path.stat().st_size
    return total


if __name__ == "__main__":
    run_command("mqcontroller", main)
