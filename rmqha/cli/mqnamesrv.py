"""The name server process, alone or with a controller in it: Java's flags and boot lines.

Exit codes: 0 ended in order, 1 failed while it ran, 2 bad flags or configuration, 3 a file or the
controller's store cannot be used, 4 a port cannot be used.
"""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import click
from msgspec import Struct

from rmqha.base.errors import (
    ConfigInvalid,
)
from rmqha.cli import prometheus
from rmqha.cli.mqcontroller import controller_collector, controller_labels, controller_page
from rmqha.cli.output import run_command, say
from rmqha.cli.process import (
    EXIT_FAILED,
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
from rmqha.controller.settings import ALIASES, ControllerConfig
from rmqha.controller.settings import DEFAULTS as CONTROLLER_DEFAULTS
from rmqha.controller.settings import MUTABLE as CONTROLLER_MUTABLE
from rmqha.controller.settings import load_config as load_controller_config
from rmqha.namesrv.aio.service import NameServer
from rmqha.namesrv.settings import DEFAULTS as NAMESRV_DEFAULTS
from rmqha.namesrv.settings import MUTABLE, NamesrvConfig, load_config
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.disk import lock_directory
from rmqha.runtime.aio.loop import run
from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.environment import not_from, overlaid, settings_of
from rmqha.runtime.logs import Logger, configure_logs
from rmqha.web import settings as status_page_settings

if TYPE_CHECKING:
    from prometheus_client.registry import Collector as PrometheusCollector

BOOT_LINE = "The Name Server boot success. serializeType=JSON, address {host}:{port}"
CONTROLLER_BOOT_LINE = "The ControllerManager boot success. serializeType=JSON"


class Configs(Struct, frozen=True):
    """What one file configures.

    Attributes:
        controller: None unless ``enableControllerInNamesrv``.
        unknown: keys that neither part of the process has a use for.
    """

    namesrv: NamesrvConfig
    controller: ControllerConfig | None
    unknown: tuple[str, ...] = ()


@click.command(context_settings={"help_option_names": ["-h", "--help"]})
@version_option("mqnamesrv")
@click.option("-c", "--configFile", "config_file", help="Name server config properties file.")
@click.option("-p", "--printConfigItem", "print_all", is_flag=True, help="Print all config items.")
@click.option("-n", "--namesrvAddr", "namesrv", help="Accepted as in Java, without effect.")
def main(config_file: str | None, print_all: bool, namesrv: str | None) -> None:
    """Run one RocketMQ name server."""
    configs = configured("mqnamesrv", lambda: read_configs(config_file))
    if print_all:
        of_controller = configs.controller.values if configs.controller else {}
        print_config({**of_controller, **configs.namesrv.values}, lambda _: True)
        return
    configure_logs(
        level=configs.namesrv.values["logLevel"], style=configs.namesrv.values["logStyle"]
    )
    sys.exit(run(serve(configs, config_file)))


def read_configs(path: str | None) -> Configs:
    """Read the file given with ``-c``, and the environment; all else has Java's default.

    Raises:
        ConfigInvalid: an unreadable file, or one whose content cannot be used.
    """
    home, user_home = os.environ.get("ROCKETMQ_HOME", ""), os.path.expanduser("~")
    known = {**NAMESRV_DEFAULTS, **CONTROLLER_DEFAULTS}
    over = settings_of(os.environ, known)
    in_file = {} if path is None else read_properties(path, "")
    properties = named_by_pod(overlaid(in_file, over), os.environ)
    outside = not_from(in_file, properties, over)
    controller = None
    try:
        namesrv = load_config(
            properties,
            user_home=user_home,
            home=home,
            store_path="" if path is None else os.path.abspath(path),
            outside=outside,
        )
        if namesrv.boolean("enableControllerInNamesrv"):
            controller = load_controller_config(
                properties,
                home=home,
                user_home=user_home,
                own_path=os.path.realpath(path) if path else "",
                outside=outside,
            )
    except ConfigInvalid as error:
        raise ConfigInvalid(f"{path}: {error}" if path else str(error)) from error
    if path is not None:
        say(f"load config properties file OK, {path}")
    known = CONTROLLER_DEFAULTS if controller is not None else {}
    unknown = tuple(key for key in namesrv.unknown if key not in known)
    return Configs(namesrv, controller, unknown)


async def serve(configs: Configs, path: str | None = None) -> int:
    """Run until a signal or a failure; returns the exit code."""
    log = Logger(name_server=f"{os.uname().nodename}:{configs.namesrv.values['listenPort']}")
    if configs.unknown:
        log.log("warning", "config_keys_unknown", keys=list(configs.unknown))
    ending, reloader = Ending(log), Reloader(path, log, ALIASES)
    node = _Node(configs, log, lambda: ending.end(EXIT_FAILED))
    code = await node.start()
    if code is None:
        reloader.begin(node.parts())
        settle_memory()
        code = await ending.wait()
    await node.stop(in_order=code == 0)
    log.log("info", "name_server_stopped", code=code)
    return code


class _Node:
    """The name server, and the controller if there is one."""

    def __init__(self, configs: Configs, log: Logger, fail: Callable[[], None]) -> None:
        self._configs = configs
        self._log = log
        set_umask(configs.namesrv.values)
        self._tls = load_tls("mqnamesrv", configs.namesrv.values, log)
        tell_open_doors("name server", configs.namesrv.values, self._tls.settings, log)
        if configs.controller is not None:
            tell_open_doors("controller", configs.controller.values, self._tls.settings, log)
        self._network = MACHINE.network(self._tls)
        self._watch: DoorWatch | None = None
        self.controller: ControllerService | None = None
        wanted = configs.namesrv.integer("connectionsMax")
        # Both read the same key of the same file.
        connections_max = make_room(log, wanted, ports=1 if configs.controller is None else 2)
        if configs.controller is not None:
            self.controller = ControllerService(
                configs.controller,
                clock=SystemClock(),
                rng=SystemRng(),
                disk=MACHINE.disk(),
                network=self._network,
                log=Logger(node=configs.controller.self_id, group=configs.controller.group),
                on_fatal=lambda _: fail(),
                connections_max=connections_max,
            )
        self.name_server = NameServer(
            configs.namesrv,
            clock=SystemClock(),
            disk=MACHINE.disk(),
            network=self._network,
            log=log,
            masters=self.controller,
            connections_max=connections_max,
            config_file=self.controller.configuration.file if self.controller else None,
        )
        self._tls.rejected = self.name_server.rejected
        self._stop_metrics: Callable[[], Awaitable[None]] = nothing
        self._stop_page: Callable[[], Awaitable[None]] | None = None

    async def start(self) -> int | None:
        """Start both, the name server first, as Java does; an exit code when that fails."""
        values = self._configs.namesrv.values
        own = f"{values['bindAddress']}:{values['listenPort']} (listenPort)"
        with Opening("mqnamesrv", own) as opening:
            port = await self.name_server.start()
            say(BOOT_LINE.format(host=values["bindAddress"], port=port))
            config = self._configs.controller
            if config is not None and self.controller is not None:
                opening.listening_on = (
                    f"{config.values['bindAddress']}:{config.this.port} (controllerDLegerPeers)"
                )
                lock_directory(config.store_path)
                await self.controller.start()
                say(CONTROLLER_BOOT_LINE)
            opening.listening_on = prometheus.LISTENING_ON.format(**values)
            if prometheus.is_wanted(values, self._log):
                self._stop_metrics = await prometheus.serve(
                    values, self._collectors(), self.name_server.rejected, self._not_ready
                )
            opening.listening_on = status_page_settings.LISTENING_ON.format(**values)
            rejected = self.name_server.rejected
            self._stop_page = await start_status_page(
                "name server",
                values,
                self._tls,
                self._page,
                self._log,
                rejected,
                self._not_ready,
                told=self._page_is_at,
            )
            counts = [rejected] + ([] if self.controller is None else [self.controller.rejected])
            self._watch = DoorWatch(self._tls, counts, self._log)
        return opening.code

    def parts(self) -> list[Part]:
        """What a file that is read again may change."""
        found = [Part(self._configs.namesrv.values, MUTABLE, self.name_server.change_config)]
        config = self._configs.controller
        if config is not None and self.controller is not None:
            change = self.controller.configuration.change
            found.append(Part(config.values, CONTROLLER_MUTABLE, change))
        return found

    def _not_ready(self) -> str | None:
        """What the name server lacks, or else the controller."""
        missing = self.name_server.not_ready()
        if missing is None and self.controller is not None:
            missing = self.controller.not_ready()
        return missing

    def _collectors(self) -> list[PrometheusCollector]:
        """One port has the series of both."""
        from rmqha.namesrv.aio.prometheus import Collector

        server, values = self.name_server, self._configs.namesrv.values
        labels = prometheus.labels_of(values)
        labels["address"] = f"{values['bindAddress']}:{server.port}"
        found: list[PrometheusCollector] = [
            Collector(labels, prometheus.in_turns_of_loop(server.scrape)),
            tls_collector(self._tls, labels),
        ]
        rejected: list[tuple[dict[str, str], Counter[str]]] = [(labels, server.rejected)]
        config = self._configs.controller
        if config is not None and self.controller is not None:
            found.append(controller_collector(config, self.controller))
            rejected.append((controller_labels(config), self.controller.rejected))
        return [*found, rejected_collector(rejected)]

    def _page_is_at(self, place: str) -> None:
        """One page for both."""
        self.name_server.machine.status_page = place
        if self.controller is not None:
            self.controller.metadata.status_page = place

    def _page(self) -> Page:
        """The page of both: what the controller knows comes first."""
        from rmqha.namesrv.aio.status_page import NameServerPage

        controller = (
            None
            if self.controller is None
            else controller_page(self.controller, self._network, self._log)
        )
        return NameServerPage(
            self.name_server,
            clock=SystemClock(),
            network=self._network,
            log=self._log,
            embedded=controller,
        )

    async def stop(self, *, in_order: bool) -> None:
        """Stop both; in order, the controller hands its leadership over."""
        if self._watch is not None:
            await self._watch.stop()
        if self._stop_page is not None:
            await self._stop_page()
        if self.controller is not None:
            await (self.controller.stop() if in_order else self.controller.close())
        await self._stop_metrics()
        await self.name_server.stop()


if __name__ == "__main__":
    run_command("mqnamesrv", main)
