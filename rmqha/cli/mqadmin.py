"""mqadmin on real ports.

Exit codes: 0 done, 1 refused or not understood, 2 wrong usage, 3 nobody reached. The Java tool exits
with 0 whatever happens.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click

from rmqha.admin.commands import ALL
from rmqha.admin.java_commands import NOT_HERE
from rmqha.admin.render import Style, print_report
from rmqha.admin.report import Report
from rmqha.admin.spec import CommandSpec, Here
from rmqha.auth.signature import Credentials
from rmqha.base.errors import ConfigInvalid, DiskFailed, RmqhaError
from rmqha.cli.convert_store import convert_store
from rmqha.cli.early import EXIT_INTERRUPTED
from rmqha.cli.output import run_command
from rmqha.cli.version import version_option
from rmqha.cli.whole_file import write_whole_file
from rmqha.client.aio.exchanges import ExchangeClient
from rmqha.client.exchange import Exchange, Unreachable
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock, SystemRng
from rmqha.runtime.aio.disk import lock_directory
from rmqha.runtime.aio.net import TcpNetwork
from rmqha.runtime.aio.tls import Tls
from rmqha.runtime.logs import Logger
from rmqha.runtime.tls_settings import TLS_DEFAULTS

if TYPE_CHECKING:
    from rich.console import Console

EXIT_REFUSED = 1
EXIT_UNREACHABLE = 3
# Wide enough that nothing folds when the output goes to a file.
FILE_COLUMNS = 200
TOOLS_FILE = "RMQHA_TOOLS_FILE"
_NUMBER_MAX = (1 << 64) - 1
_SURROGATE = re.compile("[\ud800-\udfff]")
"""What Python makes of a byte that is none of UTF-8."""
_UNREADABLE = ValueError, LookupError, AttributeError, RecursionError
"""What YAML's reader lets through of its own: for a day that is none, a tag that does not fit its text,
brackets within brackets."""

_ANY_BYTES = frozenset({"body", "output", "stores"})
"""Arguments that may be other bytes than UTF-8: a message, and names of files."""

_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _console() -> Console:
    from rich.console import Console

    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else FILE_COLUMNS)


def _report_failures(failures: list[RmqhaError]) -> int:
    """Write each failure to stderr; returns the exit code that the gravest deserves."""
    for failure in failures:
        click.echo(f"mqadmin: {failure}", err=True)
    if not failures:
        return 0
    refused = any(not isinstance(failure, Unreachable) for failure in failures)
    return EXIT_REFUSED if refused else EXIT_UNREACHABLE


def _write_files(files: Mapping[str, bytes], *, makes_folders: bool) -> list[RmqhaError]:
    """Write the files that a report names; returns what went wrong.

    The folder may be /tmp, where others may lay a link: none is followed.

    Args:
        makes_folders: folders that are not there are made; else a path that was mistyped is told.
    """
    failures: list[RmqhaError] = []
    for path, content in files.items():
        try:
            if makes_folders:
                Path(path).parent.mkdir(parents=True, exist_ok=True)
            write_whole_file(path, content)
        except OSError as error:
            failures.append(DiskFailed(f"cannot write {path}: {error.strerror}"))
    return failures


async def _carry_out(
    client: ExchangeClient, exchange: Exchange[Report], style: Style, console: Console
) -> int:
    """Run an exchange, and what its report leaves to do; returns the exit code.

    Raises:
        RmqhaError: as the exchange does.
    """
    while True:
        report = await client.run(exchange)
        # One line of JSON: that of the last report, which has what stood in those before.
        if style is not Style.JSON or report.then is None:
            print_report(report, style, console)
        wanted = style is not Style.JSON or report.then is not None
        unwritten = _write_files(report.files, makes_folders=report.makes_folders) if wanted else []
        for warning in report.warnings:
            click.echo(f"mqadmin: warning: {warning}", err=True)
        status = _report_failures([*report.failures, *unwritten])
        if status or report.then is None:
            return status
        exchange = report.then


async def _run(
    spec: CommandSpec,
    arguments: dict[str, object],
    style: Style,
    interval_s: int | None,
    tls: Tls | None,
) -> int:
    clock, rng = SystemClock(), SystemRng()
    credentials = read_credentials()
    remoting = RemotingClient(
        TcpNetwork(tls), clock, RemotingSettings(),
        sign=None if credentials is None else credentials.sign,
    )  # fmt: skip
    client, console = ExchangeClient(remoting), _console()
    try:
        while True:
            try:
                number = rng.randint(0, _NUMBER_MAX)
                folder = tempfile.gettempdir()
                here = {"here": Here(clock.wall_ms(), number, folder, read_store_folder)}
                exchange = spec.run(**arguments, **(here if spec.needs_here else {}))
                status = await _carry_out(client, exchange, style, console)
            except RmqhaError as error:
                status = _report_failures([error])
            # A watch goes on through failovers: that is what it is for.
            if interval_s is None:
                return status
            await clock.sleep(interval_s * 1000)
    finally:
        await remoting.close()


def read_store_folder(path: str) -> dict[str, bytes]:
    """The files of a store; nobody runs on it while they are read.

    Raises:
        ConfigInvalid: there is no such folder.
        StoreInUse: a node runs on it.
        DiskFailed: it cannot be read, or locked.
    """
    folder = Path(path)
    if not folder.is_dir():
        raise ConfigInvalid(f"{path}: there is no such folder")
    lock = lock_directory(path)
    try:
        return {one.name: one.read_bytes() for one in sorted(folder.iterdir()) if one.is_file()}
    except OSError as error:
        raise DiskFailed(f"{path}: {error}") from error
    finally:
        os.close(lock)


def read_credentials() -> Credentials | None:
    """Who asks: accessKey and secretKey of ``$ROCKETMQ_HOME/conf/tools.yml``, as in Java.

    ``$RMQHA_TOOLS_FILE`` names another file.

    Returns:
        None without such a file.

    Raises:
        click.UsageError: there is one, and it names nobody.
    """
    named, home = os.environ.get(TOOLS_FILE), os.environ.get("ROCKETMQ_HOME")
    if not named and not home:
        return None
    import yaml

    path = Path(named) if named else Path(home or "") / "conf" / "tools.yml"
    try:
        found = yaml.safe_load(path.read_text())
    except FileNotFoundError:
        if named:
            raise click.UsageError(f"{TOOLS_FILE}={path}: there is no such file") from None
        return None
    except (OSError, *_UNREADABLE, yaml.YAMLError) as error:
        # Its own words would show what stands there, which is a secret.
        mark = getattr(error, "problem_mark", None)
        where = "" if mark is None else f" in line {mark.line + 1}"
        raise click.UsageError(f"{path} cannot be read: {type(error).__name__}{where}") from error
    members = found if isinstance(found, dict) else {}
    # YAML reads a key of digits as a number.
    key, secret = (members.get(name) for name in ("accessKey", "secretKey"))
    if key is None or secret is None:
        raise click.UsageError(f"{path} has no accessKey and secretKey")
    return Credentials(str(key), str(secret), str(members.get("securityToken") or ""))


def _need_utf8(arguments: Mapping[str, object]) -> None:
    """Refuse texts that no server could be told.

    Raises:
        click.UsageError: it names the option.
    """
    for parameter in click.get_current_context().command.params:
        value = arguments.get(parameter.name or "")
        texts = value if isinstance(value, tuple) else (value,)
        strange = any(isinstance(text, str) and _SURROGATE.search(text) for text in texts)
        if strange and parameter.name not in _ANY_BYTES:
            raise click.UsageError(f"{parameter.opts[0]} is not UTF-8")


def _command(spec: CommandSpec) -> click.Command:
    options = [
        *spec.options(),
        click.Option(["--json", "as_json"], is_flag=True, help="One line of JSON."),
        click.Option(["--plain", "as_plain"], is_flag=True, help="The Java tool's exact text."),
    ]
    if spec.repeats:
        options.append(
            click.Option(
                ["-i", "--interval", "interval_s"],
                type=click.IntRange(min=1),
                help="Repeat every so many seconds.",
            )
        )
    known = {option.name for option in options}
    if "name_servers" not in known:
        # The Java tool takes -n everywhere; scripts pass it along.
        options.append(click.Option(["-n", "--namesrvAddr", "_unused"], hidden=True))

    def callback(
        as_json: bool,
        as_plain: bool,
        interval_s: int | None = None,
        _unused: str | None = None,
        **arguments: object,
    ) -> None:
        if as_json and as_plain:
            raise click.UsageError("--json and --plain exclude each other")
        _need_utf8(arguments)
        style = Style.JSON if as_json else Style.PLAIN if as_plain else Style.TABLES
        tls: Tls | None = click.get_current_context().find_object(Tls)
        try:
            status = asyncio.run(_run(spec, arguments, style, interval_s, tls))
        except KeyboardInterrupt:
            status = EXIT_INTERRUPTED
        sys.exit(status)

    return click.Command(
        spec.name,
        params=list(options),
        callback=callback,
        help=spec.summary,
        context_settings=_CONTEXT,
    )


def client_tls(use_tls: bool, tls_config: str | None) -> Tls | None:
    """How a tool speaks: as ``--tls`` and ``--tlsConfig`` say; None for plain text.

    Raises:
        click.UsageError: the file is not there, cannot be used, or says that nothing is encrypted.
    """
    if not use_tls and tls_config is None:
        return None
    if tls_config is not None and not Path(tls_config).is_file():
        what = "is a directory" if Path(tls_config).is_dir() else "there is no such file"
        raise click.UsageError(f"--tlsConfig {tls_config}: {what}")
    values = {"tls.enable": "true"}
    if tls_config is not None:
        values["tls.config.file"] = tls_config
    try:
        tls = Tls(values, Logger())
    except ConfigInvalid as error:
        raise click.UsageError(str(error)) from error
    if tls.client is None:
        # Who asked for TLS must not send a signature or a password in plain text.
        path = tls_config or TLS_DEFAULTS["tls.config.file"]
        raise click.UsageError(f"{path} says tls.enable=false, and nothing would be encrypted")
    return tls


class _Commands(click.Group):
    """The commands; those of the Java tool that are not here are told from typing errors."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command that is named.

        Raises:
            click.UsageError: there is none.
        """
        if args and args[0] in NOT_HERE:
            raise click.UsageError(f"{args[0]} is not in this tool; the Java tool's mqadmin has it")
        return super().resolve_command(ctx, args)


@click.pass_context
def _prepare(
    context: click.Context, use_tls: bool, tls_config: str | None, as_json: bool, as_plain: bool
) -> None:
    """What all commands have in common."""
    if as_json or as_plain:
        flag = "--json" if as_json else "--plain"
        raise click.UsageError(
            f"{flag} stands behind the command: {context.invoked_subcommand} {flag}"
        )
    context.obj = client_tls(use_tls, tls_config)


main = version_option("mqadmin")(
    _Commands(
        "mqadmin",
        callback=_prepare,
        params=[
            click.Option(
                ["--tls", "use_tls"],
                is_flag=True,
                envvar="RMQHA_TLS",
                help="Speak TLS; nobody's certificate is checked.",
            ),
            click.Option(
                ["--tlsConfig", "tls_config"],
                envvar="RMQHA_TLS_CONFIG",
                help="Speak TLS as this tls.properties says (its tls.client keys).",
            ),
            click.Option(["--json", "as_json"], is_flag=True, hidden=True),
            click.Option(["--plain", "as_plain"], is_flag=True, hidden=True),
        ],
        commands=[*(_command(spec) for spec in ALL), convert_store],
        help="Look after RocketMQ clusters, of rmqha or of Apache RocketMQ.",
        context_settings=_CONTEXT,
    )
)

if __name__ == "__main__":
    run_command("mqadmin", main)
