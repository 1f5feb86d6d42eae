"""A replica of ours as a process, in the place of a real Java broker."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import Any, Self

from rmqha.testing.real.cluster import FAST_BROKER, Cluster
from rmqha.testing.real.java import JavaBroker
from rmqha.testing.real.processes import Child, allocate_ports


class PythonBroker(JavaBroker):
    """``bin/mqbroker`` with the very properties file that a Java broker gets; made as that is."""

    def __init__(self, *args: Any, **named: Any) -> None:
        super().__init__(*args, **named)
        config = self.home / "broker.properties"
        command = [sys.executable, "-m", "rmqha.cli.mqbroker", "-c", str(config)]
        self.child = Child(self.home.name, command, self.home / "out.log")

    @classmethod
    def of(
        cls,
        cluster: Cluster,
        number: int,
        base: Mapping[str, object] = FAST_BROKER,
        **settings: object,
    ) -> Self:
        """One that is to join a cluster's set; the caller adds it to ``cluster.brokers``.

        Args:
            cluster: whose set.
            number: which of the set's brokers it is, from 1.
            base: properties below ``settings``.
            settings: properties of this broker.
        """
        return cls(
            cluster.folder / f"python{number}",
            allocate_ports(),
            number,
            cluster.name_server.address,
            cluster.controllers.address_list,
            broker_name=cluster.broker_name,
            settings={**base, **settings},
        )
