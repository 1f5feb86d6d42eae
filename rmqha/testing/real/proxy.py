"""The real proxy of RocketMQ 5 in cluster mode: gRPC in front of name servers and brokers of any kind."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

from rmqha.testing.real import maven
from rmqha.testing.real.java import SMALL_JVM, START_TIMEOUT_S, java_command
from rmqha.testing.real.processes import Child

MAIN = "org.apache.rocketmq.proxy.ProxyStartup"
FAST: Mapping[str, object] = {
    # Tests wait for messages that are not acknowledged: Java's least time is ten seconds.
    "minInvisibleTimeMillsForRecv": 1000,
    "grpcClientConsumerMinLongPollingTimeoutMillis": 1000,
    "topicRouteServiceCacheExpiredSeconds": 1,
    "topicRouteServiceCacheRefreshSeconds": 1,
    "metricsExporterType": "DISABLE",
}


class Proxy:
    """One process of Java's proxy, with files of its own.

    Args:
        home: the folder of its files.
        ports: two free ones, of gRPC and of remoting.
        name_servers: ``host:port;host:port``.
        cluster: the name of the brokers' cluster.
        version: of the release.

    Attributes:
        endpoints: what a gRPC client is configured with.
    """

    def __init__(
        self, home: Path, ports: range, name_servers: str, cluster: str,
        version: str = maven.DEFAULT_VERSION,
    ) -> None:  # fmt: skip
        self.port = ports[0]
        self.endpoints = f"127.0.0.1:{self.port}"
        home.mkdir(parents=True, exist_ok=True)
        config = home / "proxy.json"
        config.write_text(
            json.dumps(
                {
                    "proxyMode": "CLUSTER", "rocketMQClusterName": cluster,
                    "namesrvAddr": name_servers, "grpcServerPort": ports[0],
                    "remotingListenPort": ports[1], "localServeAddr": "127.0.0.1", **FAST,
                }
            )
        )  # fmt: skip
        options = ("-Xms64m", "-Xmx384m", *SMALL_JVM)
        command = java_command(version, home, MAIN, ["-pc", str(config)], options)
        command[command.index("-cp") + 1] = maven.classpath(version, "proxy")
        self.child = Child("proxy", command, home / "out.log")

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.child.start()
        self.child.wait_for_port(self.port, START_TIMEOUT_S)
