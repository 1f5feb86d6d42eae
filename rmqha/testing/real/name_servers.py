"""Our name server as a child process, in the place of a Java one."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path

from rmqha.testing.real.java import START_TIMEOUT_S, write_properties
from rmqha.testing.real.processes import Child


class PythonNameServer:
    """``bin/mqnamesrv`` with the interface of ``java.NameServer``.

    Args:
        home: for its files and output.
        port: on loopback.
        settings: further properties.
    """

    def __init__(self, home: Path, port: int, settings: Mapping[str, object] | None = None) -> None:
        self.address = f"127.0.0.1:{port}"
        self.home = home
        self._port = port
        config = home / "namesrv.properties"
        properties: dict[str, object] = {
            "listenPort": port,
            "bindAddress": "127.0.0.1",
            "kvConfigPath": home / "kvConfig.json",
            **(settings or {}),
        }
        write_properties(config, properties)
        command = [sys.executable, "-m", "rmqha.cli.mqnamesrv", "-c", str(config)]
        self.child = Child("namesrv", command, home / "out.log")

    def start(self) -> None:
        """Start it; ``wait_ready`` returns when it serves."""
        self.child.start()

    def wait_ready(self) -> None:
        """Wait until it accepts connections."""
        self.child.wait_for_port(self._port, START_TIMEOUT_S)
