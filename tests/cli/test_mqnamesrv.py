"""The name server as a process: flags, boot lines, signals, exit codes; alone and with a controller."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqha.runtime.properties import format_properties, parse_properties
from rmqha.testing.real import wire
from rmqha.testing.real.processes import Child, allocate_ports, wait_until
from tests.cli.held import HELD_BYTES_MAX, closes_somebody
from tests.namesrv.node import broker_fields, registration_body, topic

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
BOOT_LINE = "The Name Server boot success. serializeType=JSON, address 127.0.0.1:{port}"
CONTROLLER_BOOT_LINE = "The ControllerManager boot success. serializeType=JSON"
CONFIG, STORE, PORT = 2, 3, 4
START_S = END_S = 20.0
BODY = registration_body([topic("A"), topic("B")])


class Server:
    """One name server process and its file."""

    def __init__(self, folder: Path, **properties: str) -> None:
        ports = allocate_ports()
        self.port, self.controller_port = ports[0], ports[1]
        self.address = f"127.0.0.1:{self.port}"
        self.folder = folder
        self.config = folder / "namesrv.conf"
        self.properties = {
            "listenPort": str(self.port), "bindAddress": "127.0.0.1",
            "kvConfigPath": str(folder / "kvConfig.json"), **properties,
        }  # fmt: skip
        self.child = Child("namesrv", self.command(), folder / "out.log")

    def command(self) -> list[str]:
        """The command line."""
        return [sys.executable, "-m", "rmqha.cli.mqnamesrv", "-c", str(self.config)]

    def start(self, line: str | None = None) -> None:
        """Write the file, start, and wait for the boot line."""
        self.config.write_text(format_properties(self.properties))
        self.child.start()
        self.child.wait_for_line(line or BOOT_LINE.format(port=self.port), START_S)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run it to its end."""
        self.config.write_text(format_properties(self.properties))
        return subprocess.run(
            [*self.command(), *arguments],
            capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip

    def ask(
        self, code: int, fields: dict[str, str] | None = None, body: bytes = b""
    ) -> wire.Answer:
        """One request on a connection of its own."""
        return wire.invoke(self.address, code, fields, body)

    def with_controller(self) -> None:
        """Have a controller in it."""
        self.properties |= {
            "enableControllerInNamesrv": "true",
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": f"n0-127.0.0.1:{self.controller_port}",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": str(self.folder / "controller"),
        }


@pytest.fixture
def server(tmp_path: Path) -> Iterator[Server]:
    """A name server, not started; killed at the end."""
    one = Server(tmp_path)
    yield one
    one.child.kill()


def test_boot_when_started_then_java_s_lines_and_json_log_lines(server: Server) -> None:
    """Scripts wait for the lines; log collectors drop what they cannot parse."""
    server.start()
    lines = server.child.output().splitlines()
    assert f"load config properties file OK, {server.config}" in lines
    assert BOOT_LINE.format(port=server.port) in lines
    logged = [json.loads(line) for line in lines if line.startswith("{")]
    assert ["name_server_started"] == [line["event"] for line in logged]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_end_when_told_to_then_0_and_everything_is_kept(
    server: Server, number: signal.Signals
) -> None:
    """A restart finds the KV configuration and what an operator changed."""
    server.start()
    put = {"namespace": "n", "key": "k", "value": "v"}
    assert 0 == server.ask(100, put).code
    assert 0 == server.ask(318, body=b"enableTopicList=false\n").code
    process = server.child._process
    assert process is not None
    process.send_signal(number)
    assert 0 == process.wait(END_S)
    server.properties = parse_properties(server.config.read_text())
    assert "false" == server.properties["enableTopicList"]
    server.child.kill()
    server.start()
    assert {"value": "v"} == server.ask(101, put).ext
    assert 1 == server.ask(224, {"cluster": "C"}).code


@pytest.mark.parametrize("kept_in", ["", "itself", "a link"])
def test_file_when_both_parts_are_told_of_changes_then_it_has_those_and_else_what_it_had(
    server: Server, kept_in: str
) -> None:
    """The controller wrote its own port over the name server's, and the process did not start again;
    or it wrote all values as it had read them, also those that a 318 had changed since."""
    server.with_controller()
    if kept_in:
        server.properties["configStorePath"] = str(server.config)
    if kept_in == "a link":
        target = server.config.with_name("elsewhere.conf")
        target.write_text("")
        server.config.symlink_to(target)
    # Else the controller keeps its own in the home folder.
    home = {"HOME": str(server.folder)}
    server.child = Child("namesrv", server.command(), server.folder / "out.log", home)
    said = dict(server.properties)
    changed = {"orderMessageEnable": "true", "enableTopicList": "false"}
    for at in range(2):
        server.properties = parse_properties(server.config.read_text()) if at else said
        server.start(CONTROLLER_BOOT_LINE)
        for key, value in changed.items():
            assert server.ask(318, body=f"{key}={value}\n".encode()).code == 0
        of_controller = {"scanInactiveMasterInterval": str(7000 + at)}
        body = format_properties(of_controller).encode()
        assert wire.invoke(f"127.0.0.1:{server.controller_port}", 1009, {}, body).code == 0
        server.child.kill()
        found = parse_properties(server.config.read_text())
        assert found == said | changed | (of_controller if kept_in else {})
    assert server.config.is_symlink() == (kept_in == "a link")


def test_script_when_run_with_p_then_every_item_is_printed(server: Server) -> None:
    """bin/mqnamesrv -p, with the keys of a controller if there is one."""
    server.with_controller()
    server.config.write_text(format_properties(server.properties))
    printed = subprocess.run(
        [ROOT / "bin" / "mqnamesrv", "-c", server.config, "-p", "-n", "ignored:9876"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert 0 == printed.returncode
    lines = printed.stdout.splitlines()
    assert {f"listenPort={server.port}", "controllerDLegerSelfId=n0"} <= set(lines)
    assert any(line.startswith("electMasterMaxRetryCount=") for line in lines)


def test_configuration_when_there_is_none_then_java_s_defaults(tmp_path: Path) -> None:
    """Java's name server needs no file."""
    printed = subprocess.run(
        [sys.executable, "-m", "rmqha.cli.mqnamesrv", "-p"],
        capture_output=True, text=True, timeout=60, check=False, env={"HOME": str(tmp_path)},
    )  # fmt: skip
    assert 0 == printed.returncode
    assert f"kvConfigPath={tmp_path}/namesrv/kvConfig.json" in printed.stdout.splitlines()
    assert "listenPort=9876" in printed.stdout.splitlines()


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"listenPort": "x"}, "listenPort=x is not a number"),
        ({"enableControllerInNamesrv": "true"}, "controllerDLegerGroup is missing"),
    ],
)
def test_configuration_when_it_cannot_be_used_then_2_and_why(
    server: Server, properties: dict[str, str], said: str
) -> None:
    """One line, no stack trace."""
    server.properties |= properties
    done = server.run()
    assert CONFIG == done.returncode
    assert f"mqnamesrv: {server.config}: {said}\n" == done.stderr


def test_configuration_when_the_file_is_missing_then_2(server: Server) -> None:
    """Java prints a stack trace and -1."""
    done = server.run("-c", str(server.folder / "none"))
    assert CONFIG == done.returncode
    assert "cannot read" in done.stderr


def test_unfinished_frames_when_more_than_may_be_held_then_a_connection_goes(
    tmp_path: Path,
) -> None:
    """``heldBytesMax`` reaches the port."""
    server = Server(tmp_path, heldBytesMax=str(HELD_BYTES_MAX))
    server.start()
    assert closes_somebody(server.port)
    assert server.child.terminate()


def test_kv_file_when_it_is_damaged_then_3_and_it_is_left_alone(server: Server) -> None:
    """Going on would overwrite it."""
    damaged = server.folder / "kvConfig.json"
    damaged.write_text("{broken")
    done = server.run()
    assert STORE == done.returncode
    assert f"mqnamesrv: {damaged}: not KV configuration" in done.stderr
    assert "Traceback" not in done.stderr
    assert "{broken" == damaged.read_text()


@pytest.mark.parametrize("whose", ["name server", "controller"])
def test_port_when_it_is_taken_then_4(server: Server, tmp_path: Path, whose: str) -> None:
    """Two name servers on one port, or two controllers: the second one ends at once."""
    server.with_controller()
    server.start(CONTROLLER_BOOT_LINE)
    other = Server(tmp_path / "other")
    other.folder.mkdir()
    other.controller_port = server.controller_port
    if whose == "name server":
        other.properties["listenPort"] = str(server.port)
    else:
        other.with_controller()
    done = other.run()
    taken, key = {
        "name server": (server.port, "listenPort"),
        "controller": (server.controller_port, "controllerDLegerPeers"),
    }[whose]
    assert PORT == done.returncode
    assert "mqnamesrv: cannot listen on " in done.stderr
    assert f":{taken} ({key}): " in done.stderr
    assert "Traceback" not in done.stderr


def test_controller_store_when_another_uses_it_then_3(server: Server, tmp_path: Path) -> None:
    """It would take a frame under way for a torn tail."""
    server.with_controller()
    server.start(CONTROLLER_BOOT_LINE)
    other = Server(tmp_path / "other")
    other.folder.mkdir()
    other.with_controller()
    other.properties["controllerStorePath"] = server.properties["controllerStorePath"]
    done = other.run()
    assert STORE == done.returncode
    assert "Traceback" not in done.stderr


def test_controller_when_it_is_inside_then_it_serves_on_its_own_port(server: Server) -> None:
    """And a slave is told the elected master before that one has registered as such."""
    server.with_controller()
    server.start(CONTROLLER_BOOT_LINE)
    controller = f"127.0.0.1:{server.controller_port}"

    def leads() -> bool:
        return wire.invoke(controller, 1005).ext.get("isLeader") == "true"

    wait_until(leads, START_S, "the controller to lead")
    names = {"clusterName": "C", "brokerName": "b"}
    brokers = [wire.Connection(controller) for _ in range(2)]
    for number, broker in enumerate(brokers, 1):
        address = f"10.0.0.{number}:10911"
        mine = {**names, "brokerId": number, "brokerAddress": address}
        applied = {**names, "appliedBrokerId": number, "registerCheckCode": f"{address};1"}
        wait_until(
            lambda c=broker, a=applied: c.invoke(1013, a).code == 0, START_S, "an id to be granted"
        )
        assert 0 == broker.invoke(1003, mine).code
        beat = {**names, "brokerId": number, "brokerAddr": address, "epoch": 0, "maxOffset": 0}
        broker.oneway(904, beat)
    elected = brokers[1].invoke(1002, {**names, "brokerId": 2})
    assert (0, "10.0.0.2:10911") == (elected.code, elected.ext.get("masterAddress"))
    with wire.Connection(server.address) as both:
        for number in (2, 1):
            fields = broker_fields(
                brokerAddr=f"10.0.0.{number}:10911", brokerId=number,
                haServerAddr=f"10.0.0.{number}:20912",
            )  # fmt: skip
            answer = both.invoke(103, fields, BODY)
    assert 0 == answer.code
    assert {"masterAddr": "10.0.0.2:10911", "haServerAddr": "10.0.0.2:20912"} == answer.ext
    for broker in brokers:
        broker.close()
    assert 3 == server.ask(1005).code
    assert server.child.terminate()


@pytest.mark.parametrize("embedded", [False, True], ids=["alone", "with a controller"])
def test_prometheus_when_asked_for_then_routes_and_requests_are_counted(
    server: Server, embedded: bool
) -> None:
    """One port for the process; with a controller inside it has the series of both."""
    metrics_port = allocate_ports()[0]
    server.properties |= {
        "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": str(metrics_port), "metricsLabel": "zone:z1,address:mine",
    }  # fmt: skip
    if embedded:
        server.with_controller()
    server.start(CONTROLLER_BOOT_LINE if embedded else None)
    samples: dict[str, dict[str, float]] = {}
    with wire.Connection(server.address) as connection:
        connection.ask(103, broker_fields(), BODY)
        connection.ask(100, {"namespace": "n", "key": "key", "value": "value"})
        with urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5) as page:
            text = page.read().decode()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            assert sample.labels["zone"] == "z1"
            is_own = sample.name.startswith(("namesrv_", "rmqha_tls"))
            assert not is_own or sample.labels["address"].endswith(
                f":{server.address.split(':')[1]}"
            )
            which = sample.labels.get("request_type") or sample.labels.get("broker_set") or ""
            samples.setdefault(sample.name, {})[which] = sample.value
    name = broker_fields()["brokerName"]
    assert samples["namesrv_broker_num"] == samples["namesrv_master_num"] == {name: 1}
    assert 0 <= samples["namesrv_broker_silence_seconds"][name] < 60
    assert samples["namesrv_topic_num"] == samples["namesrv_route_num"] == {"": 2}
    assert samples["namesrv_kv_config_bytes"][""] > len("keyvalue")
    assert samples["namesrv_connection_num"][""] >= 1
    assert samples["namesrv_request_total"] == {"REGISTER_BROKER": 1, "PUT_KV_CONFIG": 1}
    assert samples["namesrv_protocol_error_total"] == {"": 0}
    assert samples["rmqha_build_info"] == {"": 1}
    assert samples["process_open_fds"][""] >= 8
    assert 10 << 20 < samples["process_resident_memory_bytes"][""] < 1 << 30
    assert ("role" in samples) == embedded
    assert server.child.terminate()


def test_prometheus_when_its_port_is_taken_then_4(server: Server) -> None:
    """The port is named; nothing runs without what was asked for."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        server.properties |= {
            "metricsExporterType": "PROM", "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": str(taken.getsockname()[1]),
        }  # fmt: skip
        result = server.run()
    assert result.returncode == PORT
    assert server.properties["metricsPromExporterPort"] in result.stderr
