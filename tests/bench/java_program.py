"""Small Java programs of our own, compiled against a real release."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from rmqha.testing.real import maven
from rmqha.testing.real.java import java_command

SOURCES = Path(__file__).parent / "java"
COMPILE_TIMEOUT_S = 120


def compiled(name: str, version: str, home: Path) -> str:
    """Compile ``java/<name>.java``; returns the class path to run it with.

    Raises:
        JavaUnavailable: there is no Java, no release, or the compiler refuses.
    """
    jars = maven.classpath(version)
    classes = home / f"classes-{version}"
    classes.mkdir(parents=True, exist_ok=True)
    javac = Path(maven.java()).with_name("javac")
    done = subprocess.run(
        [str(javac), "-cp", jars, "-d", str(classes), str(SOURCES / f"{name}.java")],
        capture_output=True, text=True, timeout=COMPILE_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode:
        raise maven.JavaUnavailable(f"javac: {done.stdout}{done.stderr}")
    return f"{classes}{os.pathsep}{jars}"


def command(
    name: str, version: str, home: Path, classpath: str, args: Sequence[str],
    options: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """The command line that runs a compiled program."""
    line = java_command(version, home, name, args, options)
    line[line.index("-cp") + 1] = classpath
    return line
