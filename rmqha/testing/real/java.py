"""Real RocketMQ processes: name server, broker in controller mode, DLedger and JRaft controllers.

Each class knows how to write its properties file and which line or port shows that it runs. JVMs
are kept small (serial collector, first-tier compiler, little heap), so that a whole cluster fits
on two cores; the benches ask for the full compiler where the JVM itself is measured.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from rmqha.testing.real import maven
from rmqha.testing.real.processes import Child

START_TIMEOUT_S = 60.0
BOOT_TIMEOUT_S = 90.0
CLUSTER_NAME = "DefaultCluster"
SMALL_JVM = ("-Xss512k", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
MIB = 1 << 20

_OPENED = ("java.base/java.nio", "java.base/sun.nio.ch", "java.base/jdk.internal.ref",
           "java.base/java.lang", "java.base/java.util")  # fmt: skip
_LOGBACK = """<configuration>
  <appender name="file" class="ch.qos.logback.core.FileAppender">
    <file>{file}</file>
    <encoder><pattern>%d{{HH:mm:ss.SSS}} %p %t - %m%n</pattern></encoder>
  </appender>
  <root level="{level}"><appender-ref ref="file"/></root>
</configuration>
"""


def write_properties(path: Path, properties: Mapping[str, object]) -> None:
    """Write a Java properties file; booleans in lower case."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lines = [f"{key}={_java_text(value)}\n" for key, value in properties.items()]
    path.write_text("".join(lines))


def java_command(
    version: str, home: Path, main: str, args: Sequence[str], options: Sequence[str]
) -> list[str]:
    """The command line of one RocketMQ main class with ``home`` as its home of every kind.

    Its temporary files are there as well, unless an option names another place: a broker that is
    killed leaves twelve megabytes of a library behind, and a proxy keys and certificates.
    ``RMQHA_INTEROP_JAVA_LOG`` sets the log level (default WARN) of ``<home>/java.log``.
    """
    home.mkdir(parents=True, exist_ok=True)
    logback = home / "logback.xml"
    level = os.environ.get("RMQHA_INTEROP_JAVA_LOG", "WARN")
    logback.write_text(_LOGBACK.format(file=home / "java.log", level=level))
    opened = [f"--add-opens={package}=ALL-UNNAMED" for package in _OPENED]
    return [
        maven.java(),
        f"-Djava.io.tmpdir={home}",
        *options,
        *opened,
        f"-Drocketmq.home.dir={home}",
        f"-Duser.home={home}",
        f"-Drmq.logback.configurationFile={logback}",
        f"-Dlogback.configurationFile={logback}",
        "-Dcom.rocketmq.remoting.client.closeSocketIfTimeout=true",
        "-cp",
        maven.classpath(version),
        main,
        *args,
    ]


class NameServer:
    """A real name server."""

    def __init__(
        self, home: Path, port: int, version: str = maven.DEFAULT_VERSION, jvm: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:  # fmt: skip
        self.address = f"{host}:{port}"
        self._port = port
        config = home / "namesrv.properties"
        write_properties(config, {"listenPort": port, "bindAddress": host})
        options = ("-Xms32m", "-Xmx128m", *SMALL_JVM, *jvm)
        main = "org.apache.rocketmq.namesrv.NamesrvStartup"
        command = java_command(version, home, main, ["-c", str(config)], options)
        self.child = Child("namesrv", command, home / "out.log")

    def start(self) -> None:
        """Start it; ``wait_ready`` returns when it serves."""
        self.child.start()

    def wait_ready(self) -> None:
        """Wait until it accepts connections."""
        self.child.wait_for_port(self._port, START_TIMEOUT_S)


class JavaBroker:
    """A real broker in controller mode; its controller id comes from the controllers.

    Attributes:
        number: 1, 2, ...: the order in the test, not the id that the controllers assigned.
        address: what it registers with controllers and name servers.
    """

    def __init__(
        self,
        home: Path,
        ports: range,
        number: int,
        name_server: str,
        controllers: str,
        *,
        broker_name: str = "broker-a",
        version: str = maven.DEFAULT_VERSION,
        settings: Mapping[str, object] | None = None,
        jvm: Sequence[str] = (),
        host: str = "127.0.0.1",
    ) -> None:
        # The fast port is two below the listen port, the HA port one above.
        self.port = ports[2]
        self.number = number
        self.version = version
        self.broker_name = broker_name
        self.address = f"{host}:{self.port}"
        self.home = home
        self.store = home / "store"
        properties: dict[str, object] = {
            "brokerClusterName": CLUSTER_NAME,
            "brokerName": broker_name,
            "brokerId": -1,
            "brokerRole": "SLAVE",
            "brokerIP1": host,
            "brokerIP2": host,
            "listenPort": self.port,
            "haListenPort": ports[3],
            "namesrvAddr": name_server,
            "enableControllerMode": True,
            "controllerAddr": controllers,
            "storePathRootDir": self.store,
            "storePathCommitLog": self.store / "commitlog",
            "storePathEpochFile": self.store / "epochFileCheckpoint",
            "storePathBrokerIdentity": self.store / "brokerIdentity",
            "flushDiskType": "ASYNC_FLUSH",
            "mappedFileSizeCommitLog": 16 * MIB,
            "mappedFileSizeConsumeQueue": 20 * 20000,
            "messageIndexEnable": False,
            "maxHashSlotNum": 1000,
            "maxIndexNum": 4000,
            "timerWheelEnable": False,
            "diskMaxUsedSpaceRatio": 95,
            "osPageCacheBusyTimeOutMills": 5000,
            "traceTopicEnable": False,
            "sendMessageThreadPoolNums": 4,
            "transientStorePoolEnable": False,
            # By default a broker that got no processor for 200 ms refuses what has waited so long.
            "waitTimeMillsInSendQueue": 5000,
            **(settings or {}),
        }
        config = home / "broker.properties"
        write_properties(config, properties)
        # Each thread that ever stores a message keeps 4 MiB: pops alone have sixty of them.
        options = ("-Xms64m", "-Xmx384m", "-XX:MaxDirectMemorySize=640m", *SMALL_JVM, *jvm)
        main = "org.apache.rocketmq.broker.BrokerStartup"
        command = java_command(version, home, main, ["-c", str(config)], options)
        self.child = Child(f"broker{number}", command, home / "out.log")

    def start(self) -> None:
        """Start it; it joins in the background."""
        self.child.start()

    def wait_ready(self) -> None:
        """Wait until the process says that it booted (joining may still go on)."""
        self.child.wait_for_line("boot success", BOOT_TIMEOUT_S)

    @property
    def controller_id(self) -> int | None:
        """The id it keeps in its identity file, None before it has one."""
        identity = self.store / "brokerIdentity"
        parts = identity.read_text().split("#") if identity.exists() else []
        # Java truncates the file before it writes: it may be caught empty.
        return int(parts[2]) if len(parts) > 2 and parts[2].isdigit() else None


def dledger_properties(index: int, ports: Sequence[int], store: Path) -> dict[str, object]:
    """The peer keys of one DLedger controller; rmqha reads the same ones."""
    peers = ";".join(f"n{i}-127.0.0.1:{port}" for i, port in enumerate(ports))
    return {
        "controllerDLegerGroup": "group1",
        "controllerDLegerPeers": peers,
        "controllerDLegerSelfId": f"n{index}",
        "controllerStorePath": store,
    }


def jraft_properties(
    index: int, ports: Sequence[int], raft_ports: Sequence[int], store: Path
) -> dict[str, object]:
    """The peer keys of one JRaft controller: raft and requests have a port each."""
    return {
        "controllerType": "jRaft",
        "jRaftServerId": f"127.0.0.1:{raft_ports[index]}",
        "jRaftInitConf": ",".join(f"127.0.0.1:{port}" for port in raft_ports),
        "jRaftControllerRPCAddr": ",".join(f"127.0.0.1:{port}" for port in ports),
        "controllerStorePath": store,
    }


def controller_command(
    home: Path, config: Path, options: Sequence[str], version: str = maven.DEFAULT_VERSION
) -> list[str]:
    """The command line of a stand-alone Java controller."""
    main = "org.apache.rocketmq.controller.ControllerStartup"
    return java_command(version, home, main, ["-c", str(config)], options)


def _java_text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
