"""``bin/mqdoctor check``: what is wrong with a cluster, why, and the safe next step.

Exit codes: 0 nothing is wrong, 1 something is, 2 something that was named cannot be read, 130 ended by
Ctrl-C. Nodes that do not answer are something wrong, not something that cannot be read.
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import click

from rmqha.admin.spec import addresses_option
from rmqha.base.errors import ConfigInvalid, RmqhaError
from rmqha.broker.common.settings import DEFAULTS as BROKER_DEFAULTS
from rmqha.broker.common.settings import FAST_PORT_DISTANCE, load_config
from rmqha.cli.early import EXIT_INTERRUPTED
from rmqha.cli.mqadmin import client_tls, read_credentials
from rmqha.cli.mqbroker import local_address
from rmqha.cli.options import SecondsRange
from rmqha.cli.output import complain
from rmqha.cli.process import EXIT_CONFIG, EXIT_FAILED, read_properties
from rmqha.controller.settings import DEFAULTS as CONTROLLER_DEFAULTS
from rmqha.controller.settings import load_config as load_controller_config
from rmqha.doctor.aio.asking import Asker
from rmqha.doctor.aio.doors import Doors
from rmqha.doctor.aio.looking import StorePaths, Target, look
from rmqha.doctor.diagnosis import Diagnosis, Severity
from rmqha.doctor.examine import diagnose, is_wrong, lasting
from rmqha.doctor.facts import (
    BrokerFacts,
    ConfFacts,
    ControllerFacts,
    Facts,
    NameServerFacts,
    StoreFacts,
)
from rmqha.namesrv.settings import DEFAULTS as NAMESRV_DEFAULTS
from rmqha.remoting import fastjson
from rmqha.remoting.address import PORT_MAX, format_address, split_addresses
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger

LISTEN_PORT = 10911
STORE_PARTS = ("commitlog", "consumequeue", "checkpoint", "config", "brokerIdentity", "abort")
CONTROLLERS = frozenset({
    "controllerDLegerPeers", "controllerDLegerSelfId", "jRaftInitConf", "jRaftServerId",
})  # fmt: skip
NAME_SERVERS = NAMESRV_DEFAULTS.keys() - BROKER_DEFAULTS.keys() - CONTROLLER_DEFAULTS.keys()
BROKERS = frozenset({
    "brokerClusterName", "brokerName", "brokerRole", "controllerAddr", "enableControllerMode",
    "namesrvAddr", "storePathRootDir",
})  # fmt: skip
"""Keys by which a file is known as one of these servers; a file may serve several."""
_MS = 1_000


class Timing(NamedTuple):
    """How long an answer may take, how often to look, and how long to wait in between."""

    timeout_ms: int
    looks: int
    pause_ms: int


def check(
    broker_conf: str | None,
    controllers: tuple[str, ...] | None,
    name_servers: tuple[str, ...] | None,
    store: str | None,
    broker_name: str | None,
    timeout_s: float,
    looks: int,
    pause_s: float,
    log_files: int,
    as_json: bool,
    use_tls: bool,
    tls_config: str | None,
) -> None:
    """Say what is wrong with a cluster or a broker, why, and the safe next step."""
    if not (broker_conf or controllers or name_servers or store):
        raise click.UsageError("give --broker-conf, --controllers, --namesrv or --store")
    try:
        target = target_of(
            broker_conf, controllers, name_servers, store, broker_name or "", log_files
        )
        tls = client_tls(use_tls, tls_config)
        timing = Timing(round(timeout_s * _MS), looks, round(pause_s * _MS))
        facts, found = asyncio.run(_look_again(target, timing, tls))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
    except (RmqhaError, OSError) as error:
        complain("mqdoctor", error)
        sys.exit(EXIT_CONFIG)
    for one in found:
        click.echo(fastjson.dumps(one.members()).decode() if as_json else one.text())
    click.echo(summary(facts, found), err=as_json)
    sys.exit(EXIT_FAILED if is_wrong(found) else 0)


OPTIONS = [
    click.Option(
        ["--broker-conf", "-c"], type=click.Path(),
        help="A broker's properties file. Its store, ports, controllers and name servers are"
        " looked at, so run it where the broker runs.",
    ),
    addresses_option(
        "--controllers", "-a", "controllers", help="Controllers; the members they name are asked.",
    ),
    addresses_option("--namesrv", "-n", "name_servers", help="Name servers."),
    click.Option(["--store"], type=click.Path(), help="A broker's storePathRootDir."),
    click.Option(["--broker-name", "-b"], help="Look at this broker set alone."),
    click.Option(
        ["--timeout", "timeout_s"], type=SecondsRange(0.1, 60), default=3.0, show_default=True,
        help="Seconds for each answer.",
    ),
    click.Option(
        ["--looks"], type=click.IntRange(1, 100), default=2, show_default=True,
        help="What not every one of so many looks finds is left out.",
    ),
    click.Option(
        ["--pause", "pause_s"], type=SecondsRange(0, 600), default=1.0, show_default=True,
        help="Seconds between two looks.",
    ),
    click.Option(
        ["--log-files"], type=click.IntRange(min=0), default=2, show_default=True,
        help="How many of the newest commit-log files are read, and of consume queues no more than"
        " some units of each older file; 0 for all of both.",
    ),
    click.Option(["--json", "as_json"], is_flag=True, help="A JSON object a line."),
    click.Option(["--tls", "use_tls"], is_flag=True, envvar="RMQHA_TLS", help="Speak TLS."),
    click.Option(
        ["--tlsConfig", "tls_config"], envvar="RMQHA_TLS_CONFIG",
        help="Speak TLS as this tls.properties says.",
    ),
]  # fmt: skip


def target_of(
    broker_conf: str | None,
    controllers: tuple[str, ...] | None,
    name_servers: tuple[str, ...] | None,
    store: str | None,
    broker_name: str,
    log_files: int,
) -> Target:
    """What is to be looked at; broker.conf stands in for what was not given.

    Raises:
        ConfigInvalid: broker.conf cannot be read, or the store is no directory.
    """
    conf = None if broker_conf is None else read_conf(broker_conf)
    if conf is None:
        if store is not None:
            _need_store(Path(store))
        paths = None if store is None else _paths(Path(store), None, log_files)
        return Target(controllers or (), name_servers or (), broker_name, None, paths)
    root = Path(store or conf.text("storePathRootDir", os.path.expanduser("~/store")))
    if store is not None and not root.is_dir():
        raise ConfigInvalid(f"--store {store}: there is no such directory")
    return Target(
        controllers or (conf.controllers if conf.controller_mode else ()),
        name_servers or tuple(split_addresses(conf.text("namesrvAddr"))),
        broker_name or conf.text("brokerName"),
        conf,
        _paths(root, conf, log_files),
        _ports(conf),
        conf.text("bindAddress", "0.0.0.0"),
    )


def _need_store(path: Path) -> None:
    """Refuse a directory that is no store, of which nothing wrong could be said.

    Raises:
        ConfigInvalid: it is not there, or nothing of a store is in it.
    """
    if not path.is_dir():
        raise ConfigInvalid(f"--store {path}: there is no such directory")
    if not any((path / part).exists() for part in STORE_PARTS):
        raise ConfigInvalid(
            f"--store {path}: no broker's store, for it has none of {', '.join(STORE_PARTS)}"
            " (give its storePathRootDir)"
        )


def read_conf(path: str) -> ConfFacts:
    """A broker.conf, whether or not our broker would take it.

    Raises:
        ConfigInvalid: it cannot be read, is no properties file, or is another server's.
    """
    values = read_properties(path, "brokerName")
    _need_brokers(path, values)
    host_name, own = os.uname().nodename, local_address()
    values.setdefault("brokerName", host_name)
    refusal, unknown = "", tuple[str, ...]()
    try:
        unknown = load_config(
            values, host_name=host_name, local_address=own, user_home=os.path.expanduser("~")
        ).unknown
    except ConfigInvalid as error:
        refusal = str(error)
    host = values.get("brokerIP1", "").strip() or own
    address = format_address(host.strip("[]"), _port(values))
    return ConfFacts(path, values, refusal, address, unknown)


def _need_brokers(path: str, values: dict[str, str]) -> None:
    """Refuse the file of another server: as a broker's it would tell of a broker that is not there.

    Raises:
        ConfigInvalid: the file is a controller's or a name server's; with what to give instead.
    """
    if not BROKERS.isdisjoint(values):
        return
    if not CONTROLLERS.isdisjoint(values):
        try:
            loaded = load_controller_config(values, home="", user_home="")
            members = ";".join(one.address for one in loaded.peers)
        except ConfigInvalid:
            members = "HOST:PORT;..."
        raise ConfigInvalid(
            f"{path} is a controller's file, and --broker-conf takes a broker's: its group is looked"
            f" at with --controllers '{members}'"
        )
    if not NAME_SERVERS.isdisjoint(values):
        raise ConfigInvalid(
            f"{path} is a name server's file, and --broker-conf takes a broker's: it is looked at"
            f" with --namesrv HOST:{values.get('listenPort', NAMESRV_DEFAULTS['listenPort'])}"
        )


def _port(values: dict[str, str]) -> int:
    text = values.get("listenPort", "").strip()
    return int(text) if text.isdigit() else LISTEN_PORT


def _paths(root: Path, conf: ConfFacts | None, log_files: int) -> StorePaths:
    def place(key: str, default: str) -> Path:
        return Path((conf.text(key) if conf is not None else "") or root / default)

    return StorePaths(
        root,
        place("storePathCommitLog", "commitlog"),
        place("storePathEpochFile", "epochFileCheckpoint"),
        place("storePathBrokerIdentity", "brokerIdentity"),
        log_files,
    )


def _ports(conf: ConfFacts) -> tuple[tuple[str, int], ...]:
    listen, ha = _port(dict(conf.values)), conf.text("haListenPort", "0")
    ha_port = int(ha) if ha.isdigit() and int(ha) else listen + 1
    wanted = (
        ("listenPort", listen), ("listenPort - 2", listen - FAST_PORT_DISTANCE),
        ("haListenPort", ha_port),
    )  # fmt: skip
    return tuple((key, port) for key, port in wanted if 0 < port <= PORT_MAX)


def _checks_nobody() -> TcpNetwork:
    """Speaks TLS with whoever does, whatever this machine's own file of TLS settings says."""
    return TcpNetwork(Tls({"tls.enable": "true", "tls.config.file": ""}, Logger()))


async def _look_again(
    target: Target, timing: Timing, tls: Tls | None
) -> tuple[Facts, list[Diagnosis]]:
    """Look until nothing is wrong, or often enough."""
    clock, credentials = SystemClock(), read_credentials()
    settings = RemotingSettings(connect_timeout_ms=timing.timeout_ms)
    client = RemotingClient(
        TcpNetwork(tls), clock, settings, sign=None if credentials is None else credentials.sign
    )
    doors = Doors(
        speaks_tls=tls is not None, secure=_checks_nobody,
        plain=RemotingClient(TcpNetwork(None), clock, settings), timeout_ms=timing.timeout_ms,
    )  # fmt: skip
    asker, seen = Asker(client, clock, timing.timeout_ms, doors), []
    try:
        while True:
            facts = await look(asker, target)
            seen.append(diagnose(facts))
            found = lasting(seen)
            if len(seen) == timing.looks or not is_wrong(found):
                return facts, found
            await clock.sleep(timing.pause_ms)
    finally:
        await doors.close()
        await client.close()


def _silent(nodes: Sequence[ControllerFacts | NameServerFacts | BrokerFacts]) -> str:
    """How many of these answered, where that is not all of them."""
    answered = sum(one.silent is None for one in nodes)
    return "" if answered == len(nodes) else f" ({answered} answered)"


def _unread(store: StoreFacts) -> str:
    """How much of the commit log was read, where that is not all of it."""
    read, there = store.files_read, len(store.log_sizes)
    return "" if read == there else f" ({read} of the {there} files of its log were read)"


def summary(facts: Facts, found: list[Diagnosis]) -> str:
    """The last line: what was looked at, and how much is wrong."""
    parts = [
        f"{len(nodes)} {name}{_silent(nodes)}"
        for name, nodes in (
            ("controllers", facts.controllers), ("name servers", facts.name_servers),
            ("brokers", facts.brokers),
        )
        if nodes
    ]  # fmt: skip
    if facts.conf is not None:
        parts.append(facts.conf.path)
    if facts.store is not None:
        parts.append(f"store {facts.store.path}{_unread(facts.store)}")
    counts = ", ".join(
        f"{sum(one.severity is severity for one in found)} {severity.name.lower()}s"
        for severity in Severity
    )
    return f"looked at {', '.join(parts)}: {counts if found else 'nothing is wrong'}"
