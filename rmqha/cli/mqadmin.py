"""mqadmin's controller commands on real ports.

Exit codes: 0 done, 1 refused or not understood, 2 wrong usage, 3 nobody reached. The Java tool exits
with 0 whatever happens.
"""

from __future__ import annotations

import asyncio
import sys

import click
from rich.console import Console

from rmqha.admin.aio.client import AdminClient
from rmqha.admin.commands import ALL
from rmqha.admin.exchange import Unreachable
from rmqha.admin.render import Style, print_report
from rmqha.admin.spec import CommandSpec
from rmqha.base.errors import RmqhaError
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.settings import RemotingSettings
from rmqha.runtime.aio.clock import SystemClock
from rmqha.runtime.aio.net import TcpNetwork

EXIT_REFUSED = 1
EXIT_UNREACHABLE = 3
EXIT_INTERRUPTED = 130
# Wide enough that nothing folds when the output goes to a file.
FILE_COLUMNS = 200

_CONTEXT = {"help_option_names": ["-h", "--help"]}


def _console() -> Console:
    return Console(file=sys.stdout, width=None if sys.stdout.isatty() else FILE_COLUMNS)


def _report_failures(failures: list[RmqhaError]) -> int:
    """Write each failure to stderr; returns the exit code that the gravest deserves."""
    for failure in failures:
        click.echo(f"mqadmin: {failure}", err=True)
    if not failures:
        return 0
    refused = any(not isinstance(failure, Unreachable) for failure in failures)
    return EXIT_REFUSED if refused else EXIT_UNREACHABLE


async def _run(
    spec: CommandSpec, arguments: dict[str, object], style: Style, interval_s: int | None
) -> int:
    clock = SystemClock()
    remoting = RemotingClient(TcpNetwork(), clock, RemotingSettings())
    client, console = AdminClient(remoting), _console()
    try:
        while True:
            try:
                report = await client.run(spec.run(**arguments))
            except RmqhaError as error:
                status = _report_failures([error])
            else:
                print_report(report, style, console)
                status = _report_failures(list(report.failures))
            # A watch goes on through failovers: that is what it is for.
            if interval_s is None:
                return status
            await clock.sleep(interval_s * 1000)
    finally:
        await remoting.close()


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
        style = Style.JSON if as_json else Style.PLAIN if as_plain else Style.TABLES
        try:
            status = asyncio.run(_run(spec, arguments, style, interval_s))
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


main = click.Group(
    "mqadmin",
    commands=[_command(spec) for spec in ALL],
    help="Look after RocketMQ controllers, of rmqha or of Apache RocketMQ.",
    context_settings=_CONTEXT,
)

if __name__ == "__main__":
    main(prog_name="mqadmin")
