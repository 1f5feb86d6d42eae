"""The real mqadmin as a child process."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rmqha.testing.real import java, maven

TIMEOUT_S = 60.0
_MAIN = "org.apache.rocketmq.tools.command.MQAdminStartup"


def mqadmin(
    *args: str,
    version: str = maven.DEFAULT_VERSION,
    jvm: Sequence[str] = (),
    signed_by: tuple[str, str] | None = None,
) -> str:
    """Run one mqadmin command and return what it printed, standard error included.

    Args:
        jvm: more options of its JVM.
        signed_by: accessKey and secretKey of its ``conf/tools.yml``.

    The exit status says nothing: mqadmin ends with 0 also after a refused request.
    """
    with tempfile.TemporaryDirectory(prefix="rmqha-mqadmin-") as home:
        if signed_by is not None:
            tools = Path(home) / "conf" / "tools.yml"
            tools.parent.mkdir()
            tools.write_text("accessKey: {}\nsecretKey: {}\n".format(*signed_by))
        options = ("-Xms32m", "-Xmx128m", *java.SMALL_JVM, *jvm)
        command = java.java_command(version, Path(home), _MAIN, args, options)
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=TIMEOUT_S,
            check=False,
        )
    return done.stdout.decode(errors="replace")


def fields(output: str) -> dict[str, list[str]]:
    """The ``#Name<tab>value`` lines of an output, by name, in order."""
    found: dict[str, list[str]] = {}
    for line in output.splitlines():
        name, tab, value = line.strip().partition("\t")
        if tab:
            found.setdefault(name.lstrip("#").rstrip(":"), []).append(value.strip())
    return found
