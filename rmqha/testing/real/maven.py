"""Class paths of real Apache RocketMQ releases, resolved once by Maven and kept outside the tree.

``classpath("5.3.3")`` generates a pom with the five artifacts that hold every main class used here,
lets Maven resolve them, and stores the result in ``~/.cache/rmqha/java/<version>/classpath.txt``
(``RMQHA_JAVA_CACHE`` names another folder). A file lock keeps parallel test workers from racing.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

ARTIFACTS = ("broker", "namesrv", "controller", "tools", "client")
# Of 4.x only clients are of interest: they knew no controllers yet.
CLIENT_ARTIFACTS = ("client", "acl")
# 5.1.x releases have the DLedger controller only; JRaft came with 5.2.0.
VERSIONS = ("5.1.4", "5.3.3", "5.5.0")
DEFAULT_VERSION = "5.3.3"
ADDRESS_VERSIONS = ("5.0.0", "5.1.0")
"""Their brokers have no ids, and their controllers are no peers of those of today."""
GRPC_CLIENT_VERSION = "5.0.7"
"""Of ``rocketmq-client-java``, whose numbers are its own."""
RESOLVE_TIMEOUT_S = 600

_DEPENDENCY = """    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>
    </dependency>
"""
_POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>rmqha.interop</groupId>
  <artifactId>{name}</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>
{dependencies}  </dependencies>
</project>
"""


class JavaUnavailable(Exception):
    """Java, Maven or the artifacts cannot be had on this machine."""


def cache_root() -> Path:
    """Return the folder that keeps resolved class paths across runs."""
    named = os.environ.get("RMQHA_JAVA_CACHE")
    return Path(named) if named else Path.home() / ".cache" / "rmqha" / "java"


def java() -> str:
    """Return the path of the ``java`` launcher.

    Raises:
        JavaUnavailable: neither JAVA_HOME nor PATH has one.
    """
    home = os.environ.get("JAVA_HOME")
    if home and (Path(home) / "bin" / "java").exists():
        return str(Path(home) / "bin" / "java")
    found = shutil.which("java")
    if found is None:
        raise JavaUnavailable("no java on the PATH")
    return found


def classpath(version: str = DEFAULT_VERSION, *artifacts: str) -> str:
    """Return the class path of one RocketMQ release, resolving it at first use.

    Args:
        version: of the release.
        artifacts: names without ``rocketmq-``, such as ``proxy``; by default those that hold the
            servers, the tools and the client.

    Raises:
        JavaUnavailable: java or mvn is missing, or Maven could not resolve the artifacts.
    """
    named = [
        ("org.apache.rocketmq", f"rocketmq-{one}", version)
        for one in artifacts or _artifacts(version)
    ]
    return classpath_of("-".join((version, *artifacts)), *named)


def classpath_of(name: str, *wanted_artifacts: tuple[str, str, str]) -> str:
    """Return the class path of artifacts (group, name and version), as ``classpath`` does.

    Args:
        name: of the folder that it is kept in.
    """
    java()
    folder = cache_root() / name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        target = folder / "classpath.txt"
        known = target.read_text() if target.exists() else ""
        wanted = (f"{artifact}-{version}.jar" for _, artifact, version in wanted_artifacts)
        if all(jar in known for jar in wanted) and all(
            Path(jar).exists() for jar in known.split(os.pathsep)
        ):
            return known
        resolved = _resolve(name, folder, wanted_artifacts)
        _write_atomically(target, resolved)
        return resolved


def _artifacts(version: str) -> tuple[str, ...]:
    return CLIENT_ARTIFACTS if version.startswith("4.") else ARTIFACTS


def _resolve(name: str, folder: Path, artifacts: Sequence[tuple[str, str, str]]) -> str:
    maven = shutil.which("mvn")
    if maven is None:
        raise JavaUnavailable("no mvn on the PATH")
    pom = folder / "pom.xml"
    dependencies = "".join(
        _DEPENDENCY.format(group=group, artifact=artifact, version=version)
        for group, artifact, version in artifacts
    )
    pom.write_text(_POM.format(name=name, dependencies=dependencies))
    fresh = folder / "classpath.resolving"
    command = [maven, "-q", "-B", "-f", str(pom), "dependency:build-classpath"]
    command.append(f"-Dmdep.outputFile={fresh}")
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=RESOLVE_TIMEOUT_S, check=False
        )
    except subprocess.TimeoutExpired as error:
        raise JavaUnavailable(f"mvn took more than {RESOLVE_TIMEOUT_S} s") from error
    if done.returncode != 0 or not fresh.exists():
        raise JavaUnavailable(
            f"mvn could not resolve {name}: {(done.stdout + done.stderr)[-2000:]}"
        )
    resolved = fresh.read_text().strip()
    fresh.unlink()
    return resolved


def _write_atomically(target: Path, text: str) -> None:
    with tempfile.NamedTemporaryFile("w", dir=target.parent, delete=False) as temporary:
        temporary.write(text)
    Path(temporary.name).replace(target)


if __name__ == "__main__":
    releases: list[tuple[str, ...]] = [(one,) for one in (*VERSIONS, *ADDRESS_VERSIONS)]
    for release in (*releases, (DEFAULT_VERSION, "proxy"), (GRPC_CLIENT_VERSION, "client-java")):
        name = " ".join(release)
        try:
            jars = len(classpath(*release).split(os.pathsep))
            print(f"Apache RocketMQ {name}: {jars} jars at hand", flush=True)
        except JavaUnavailable as error:
            print(f"Apache RocketMQ {name} cannot be had: {error}", flush=True)
