"""What a new user reads when something is wrong: one line that names what they wrote, an exit code
that is not 0, and no traceback; of every command, and wherever its output goes."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from rmqha.remoting.codes import response_name
from rmqha.runtime.properties import format_properties
from rmqha.testing.real.processes import Child, allocate_ports, wait_until

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
ANSWER_S = 60.0
FAILED, USAGE, UNREACHED, STORE, PORT = 1, 2, 3, 3, 4
INVALID_PARAMETER = 29
EVERYTHING = (sys.executable, "-c", "from rmqha.cli.scripts import everything; everything()")
SERVERS = {"controller": "mqcontroller", "namesrv": "mqnamesrv", "broker": "mqbroker"}
BOOT = "boot success"


def environment(**more: str) -> dict[str, str]:
    """Without what the machine says of RocketMQ."""
    kept = {
        k: v for k, v in os.environ.items() if not k.startswith(("RMQHA", "ROCKETMQ", "NAMESRV"))
    }
    return {**kept, "PYTHONPATH": str(ROOT), **more}


class Place:
    """A controller, a name server and a broker, each a process, with all of their ports open.

    Attributes:
        names: what the rows' braces stand for.
    """

    def __init__(self, folder: Path) -> None:
        ports, more = allocate_ports(), allocate_ports()
        # A broker has one port more, two below the one for clients.
        self._ports = {"controller": ports[0], "namesrv": ports[1], "broker": ports[5]}
        self._status = dict(zip(SERVERS, more[:3], strict=True))
        self._metrics = dict(zip(SERVERS, more[3:6], strict=True))
        others = allocate_ports()
        self.free = (others[5], others[6], more[6], more[7])
        self.folder = folder
        self.names = {
            **{kind: f"127.0.0.1:{port}" for kind, port in self._ports.items()},
            **{f"{kind}_port": str(port) for kind, port in self._ports.items()},
            **{f"{kind}_status": f"127.0.0.1:{port}" for kind, port in self._status.items()},
            **{f"{kind}_metrics": f"127.0.0.1:{port}" for kind, port in self._metrics.items()},
            **{f"{kind}_file": str(self.write(kind)) for kind in SERVERS},
            "nobody": f"127.0.0.1:{ports[9]}",
            "folder": str(folder),
            "file": str(self._file("plain", b"text")),
            "binary": str(self._file("binary", "port=1\n".encode("utf-16"))),
        }

    def _file(self, name: str, content: bytes) -> Path:
        path = self.folder / name
        path.write_bytes(content)
        return path

    def properties(self, kind: str) -> dict[str, object]:
        """A server's file."""
        own: dict[str, dict[str, object]] = {
            "controller": {
                "controllerDLegerGroup": "first",
                "controllerDLegerPeers": f"n0-127.0.0.1:{self._ports['controller']}",
                "controllerDLegerSelfId": "n0",
                "controllerStorePath": self.folder / "controller",
            },
            "namesrv": {
                "listenPort": self._ports["namesrv"],
                "kvConfigPath": self.folder / "kv.json",
            },
            "broker": {
                "brokerName": "broker-a", "brokerClusterName": "First", "brokerIP1": "127.0.0.1",
                "enableControllerMode": "true",
                "listenPort": self._ports["broker"],
                "controllerAddr": f"127.0.0.1:{self._ports['controller']}",
                "namesrvAddr": f"127.0.0.1:{self._ports['namesrv']}",
                "storePathRootDir": self.folder / "broker",
                "mappedFileSizeCommitLog": 1 << 20,
            },
        }  # fmt: skip
        return {
            **own[kind],
            "bindAddress": "127.0.0.1",
            "statusPagePort": self._status[kind],
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": self._metrics[kind],
        }

    def write(self, kind: str, name: str = "", **changes: object) -> Path:
        """A server's file, with some keys otherwise."""
        path = self.folder / f"{kind}{name}.conf"
        values = {key: str(value) for key, value in {**self.properties(kind), **changes}.items()}
        path.write_text(format_properties(values))
        return path

    def other(self, kind: str, **changes: object) -> Path:
        """The file of a second server of a kind, which disturbs the first only by ``changes``."""
        own, ha, status, metrics = self.free
        moved: dict[str, object] = {
            "controllerDLegerPeers": f"n0-127.0.0.1:{own}", "listenPort": own, "haListenPort": ha,
            "controllerStorePath": self.folder / "second", "kvConfigPath": self.folder / "2.json",
            "storePathRootDir": self.folder / "second", "statusPagePort": status,
            "metricsPromExporterPort": metrics,
        }  # fmt: skip
        own_keys = self.properties(kind).keys() | {"haListenPort"}
        moved = {key: value for key, value in moved.items() if key in own_keys}
        return self.write(kind, "-other", **{**moved, **changes})


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    """A cluster that is up, its broker a master."""
    made = Place(tmp_path_factory.mktemp("first-words"))
    children = [
        Child(
            kind,
            [sys.executable, "-m", f"rmqha.cli.{module}", "-c", made.names[f"{kind}_file"]],
            made.folder / f"{kind}.log",
            env=environment(),
        )
        for kind, module in SERVERS.items()
    ]
    try:
        for child in children:
            child.start()
        wait_until(
            lambda: "write_lease_held" in (made.folder / "broker.log").read_text(), 60, "a master"
        )
        yield made
    finally:
        for child in children:
            child.kill()


class Row(NamedTuple):
    """Something that a new user does.

    Attributes:
        name: what is wrong with it.
        command: the words behind ``rmqha``; braces name addresses and files of the place.
        code: the exit code.
        says: what the one line must have.
        env: variables of the environment.
    """

    name: str
    command: str
    code: int
    says: tuple[str, ...]
    env: tuple[tuple[str, str], ...] = ()


HTTP = "is an HTTP port, of a status page or of metrics"
ROWS = (
    Row("command-misspelt", "contoller", USAGE, ("'contoller'",)),
    Row("admin-command-misspelt", "mqadmin clusterLits", USAGE, ("'clusterLits'", "'clusterList'")),
    Row("no-name-server", "mqadmin clusterList", USAGE, ("-n", "NAMESRV_ADDR")),
    Row("address-without-port", "mqadmin clusterList -n foo", USAGE, ("-n", "'foo'", "host:port")),
    Row("port-no-number", "mqadmin clusterList -n foo:bar", USAGE, ("-n", "'foo:bar'")),
    Row("option-missing", "mqadmin topicRoute -n {namesrv}", USAGE, ("-t",)),
    Row("option-unknown", "mqadmin clusterList --colour", USAGE, ("--colour",)),
    Row("option-no-number", "mqadmin updateTopic -b {broker} -t T -r eight", USAGE, ("-r", "'eight'")),
    Row("two-styles", "mqadmin clusterList -n {namesrv} --json --plain", USAGE, ("--json", "--plain")),
    Row("tls-file-missing", "mqadmin --tlsConfig /no/such clusterList -n {namesrv}", USAGE,
        ("--tlsConfig", "/no/such")),
    Row("tools-file-missing", "mqadmin clusterList -n {namesrv}", USAGE,
        ("RMQHA_TOOLS_FILE=/no/such",), (("RMQHA_TOOLS_FILE", "/no/such"),)),
    Row("nobody-listens", "mqadmin clusterList -n {nobody}", UNREACHED, ("{nobody}", "Connect call failed")),
    Row("status-port-of-name-server", "mqadmin clusterList -n {namesrv_status}", UNREACHED,
        ("{namesrv_status}", HTTP)),
    Row("status-port-of-controller", "mqadmin getSyncStateSet -a {controller_status} -b broker-a",
        UNREACHED, ("{controller_status}", HTTP)),
    Row("metrics-port-of-broker", "mqadmin getBrokerConfig -b {broker_metrics}", UNREACHED,
        ("{broker_metrics}", HTTP)),
    Row("controller-as-name-server", "mqadmin clusterList -n {controller}", FAILED,
        ("perhaps {controller} is no name server",)),
    Row("broker-as-name-server", "mqadmin topicRoute -n {broker} -t T", FAILED,
        ("perhaps {broker} is no name server",)),
    Row("broker-as-controller", "mqadmin getSyncStateSet -a {broker} -b broker-a", FAILED,
        ("perhaps {broker} is no controller",)),
    Row("name-server-as-controller", "mqadmin getSyncStateSet -a {namesrv} -b broker-a", FAILED,
        ("perhaps {namesrv} is no controller",)),
    Row("name-server-as-all-controllers", "mqadmin getControllerConfig -a {namesrv}", FAILED,
        ("perhaps {namesrv} is no controller",)),
    Row("name-server-as-broker", "mqadmin getBrokerConfig -b {namesrv}", FAILED,
        ("perhaps {namesrv} is no broker",)),
    Row("controller-as-broker", "mqadmin updateTopic -b {controller} -t T", FAILED,
        ("perhaps {controller} is no broker",)),
    Row("election-of-no-broker", "mqadmin electMaster -a {controller} -c First -bn broker-a -b 99",
        FAILED, ("the set has no broker 99, it has 1",)),
    Row("set-unknown", "mqadmin getSyncStateSet -a {controller} -b nosuch", FAILED, ("nosuch",)),
    Row("cluster-unknown", "mqadmin updateTopic -n {namesrv} -c nosuch -t T", FAILED, ("nosuch",)),
    Row("topic-unknown", "mqadmin topicRoute -n {namesrv} -t nosuch", FAILED, ("nosuch",)),
    Row("group-unknown", "mqadmin consumerProgress -n {namesrv} -g nosuch", FAILED, ("nosuch",)),
    Row("converted-store-missing", "mqadmin convertStore --store /no/such", FAILED, ("/no/such",)),
    Row("count-of-none", "simulate 3 --count 0", USAGE, ("--count", "0")),
    Row("count-below-none", "simulate 3 --count -2", USAGE, ("--count", "-2")),
    Row("seed-no-number", "simulate three", USAGE, ("SEED", "'three'")),
    Row("seed-missing", "simulate", USAGE, ("SEED",)),
    Row("trace-missing", "replay /no/such", USAGE, ("/no/such",)),
    Row("kills-without-a-pause", "demo --every 0", USAGE, ("--every",)),
    Row("history-of-no-folder", "demo --once --history /no/such/file", USAGE, ("--history", "/no/such")),
    Row("cluster-of-no-replica", "up --replicas 0 --folder {folder}/up", USAGE, ("replicas",)),
    Row("doctor-of-nothing", "doctor check", USAGE, ("--controllers", "--store")),
    Row("doctor-of-no-file", "doctor show /no/such", USAGE, ("/no/such",)),
    Row("job-unknown", "pipeline nosuch", USAGE, ("'nosuch'",)),
    *(
        Row(f"{kind}-{name}", f"{kind} {words}", USAGE, says)
        for kind in SERVERS
        for name, words, says in (
            ("file-missing", "-c /no/such", ("/no/such: No such file",)),
            ("file-is-a-folder", "-c {folder}", ("{folder}: Is a directory",)),
            ("file-is-no-text", "-c {binary}", ("{binary}", "no properties file")),
            ("option-unknown", "-x", ("-x",)),
        )
    ),
    Row("controller-without-file", "controller", USAGE, ("-c", "controllerDLegerPeers")),
    Row("broker-without-file", "broker", USAGE, ("-c", "controllerAddr")),
    Row("controller-twice", "controller -c {controller_file}", STORE, ("{folder}/controller", "in use")),
    Row("name-server-twice", "namesrv -c {namesrv_file}", PORT, ("{namesrv}", "(listenPort)")),
    Row("broker-twice", "broker -c {broker_file}", STORE, ("{folder}/broker", "another process")),
)  # fmt: skip


def run(place: Place, row: Row) -> subprocess.CompletedProcess[str]:
    """Do it."""
    words = [word.format(**place.names) for word in row.command.split()]
    return subprocess.run(
        [*EVERYTHING, *words], capture_output=True, text=True, timeout=ANSWER_S, check=False,
        env=environment(**dict(row.env)), cwd=place.folder,
    )  # fmt: skip


def complaints(stderr: str) -> list[str]:
    """What a person is told: neither a server's log lines nor the usage above an error."""
    lines = [line for line in stderr.splitlines() if line and line[0] != "{"]
    return [line for line in lines if not line.startswith(("Usage:", "Try "))]


def test_rows_are_many_and_each_has_a_name_of_its_own() -> None:
    """A row that hides another is a row less."""
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names)) >= 50


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_mistake_when_made_then_one_line_names_it(place: Place, row: Row) -> None:
    """Whoever reads a traceback, or a 0, gives up or goes on with what is not there."""
    done = run(place, row)
    told = complaints(done.stderr)
    assert (done.returncode, len(told), BOOT in done.stdout) == (row.code, 1, False), done.stderr
    for wanted in row.says:
        assert wanted.format(**place.names) in told[0]


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize(
    ("key", "of"),
    [
        ("listenPort", "{}"), ("statusPagePort", "{}_status"),
        ("metricsPromExporterPort", "{}_metrics"),
    ],
)  # fmt: skip
def test_port_when_another_server_has_it_then_its_key_is_named(
    place: Place, kind: str, key: str, of: str
) -> None:
    """There are up to five ports a server, and each has a key of its own."""
    taken = place.names[of.format("namesrv")]
    if (kind, key) == ("controller", "listenPort"):
        key, value = "controllerDLegerPeers", f"n0-{taken}"
    else:
        value = taken.rpartition(":")[2]
    path = place.other(kind, **{key: value})
    done = run(place, Row("port-taken", f"{kind} -c {path}", PORT, ()))
    told = [line for line in complaints(done.stderr) if "cannot listen" in line]
    assert (done.returncode, len(told)) == (PORT, 1), done.stderr
    assert taken in told[0]
    assert f"({key}" in told[0]
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("key", ["statusPagePort", "listenPort"])
def test_port_when_it_is_none_then_the_line_is_as_in_the_file(
    place: Place, kind: str, key: str
) -> None:
    """The file, the key and the value."""
    if (kind, key) == ("controller", "listenPort"):
        key, value = "controllerDLegerPeers", "n0-127.0.0.1:98x"
    else:
        value = "98x"
    path = place.other(kind, **{key: value})
    done = run(place, Row("no-port", f"{kind} -c {path}", USAGE, ()))
    (told,) = complaints(done.stderr)
    assert done.returncode == USAGE
    assert f"{path}: " in told
    assert (key in told, value.rpartition("-")[2] in told) == (True, True)


@pytest.mark.parametrize(
    ("kind", "key"), [("controller", "controllerStorePath"), ("broker", "storePathRootDir")]
)
def test_store_when_a_file_lies_in_its_place_then_it_is_named(
    place: Place, kind: str, key: str
) -> None:
    """Nothing is written over."""
    path = place.other(kind, **{key: place.names["file"]})
    done = run(place, Row("store-is-a-file", f"{kind} -c {path}", STORE, ()))
    (told,) = complaints(done.stderr)
    assert (done.returncode, place.names["file"] in told) == (STORE, True), done.stderr
    assert Path(place.names["file"]).read_bytes() == b"text"


WRITERS = (
    "mqadmin clusterList -n {namesrv}", "mqadmin clusterList -n {namesrv} --json", "mqadmin --help",
    "mqadmin --version", "--help", "simulate 3", "doctor check -n {namesrv} --looks 1",
    "controller -c {controller_file} -p", "namesrv -c {namesrv_file} -p",
    "broker -c {broker_file} -p", "pipeline --help", "demo --once",
)  # fmt: skip


@pytest.mark.parametrize("is_closed", [False, True], ids=["full", "closed"])
@pytest.mark.parametrize("command", WRITERS)
def test_output_when_it_cannot_be_written_then_one_line_says_so(
    place: Place, command: str, is_closed: bool, tmp_path: Path
) -> None:
    """What was asked for is not there, so 0 would be a lie; and what was begun is cleaned up."""
    words = [word.format(**place.names) for word in command.split()]
    shell = ["sh", "-c", '"$@" ' + (">&-" if is_closed else ">/dev/full"), "sh"]
    done = subprocess.run(
        [*shell, *EVERYTHING, *words], stderr=subprocess.PIPE, text=True, timeout=ANSWER_S,
        check=False, env=environment(TMPDIR=str(tmp_path)), cwd=place.folder,
    )  # fmt: skip
    reason = "Bad file descriptor" if is_closed else "No space left on device"
    assert done.stderr == f"rmqha: cannot write to standard output: {reason}\n"
    assert done.returncode == FAILED
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith("rmqha-demo")] == []


def test_output_when_its_reader_has_seen_enough_then_nothing_is_said(place: Place) -> None:
    """``mqadmin ... | head -1`` is everyday."""
    reader, writer = os.pipe()
    os.close(reader)
    words = ["mqadmin", "clusterList", "-n", place.names["namesrv"]]
    with os.fdopen(writer, "w") as pipe:
        done = subprocess.run(
            [*EVERYTHING, *words], stdout=pipe, stderr=subprocess.PIPE, text=True,
            timeout=ANSWER_S, check=False, env=environment(),
        )  # fmt: skip
    assert (done.returncode, done.stderr) == (FAILED, "")


@pytest.mark.parametrize("kind", SERVERS)
@pytest.mark.parametrize("is_closed", [False, True], ids=["full", "closed"])
def test_server_when_its_output_cannot_be_written_then_it_serves_all_the_same(
    place: Place, kind: str, is_closed: bool
) -> None:
    """It has a line or two to say there, and a log for the rest."""
    path = place.other(kind)
    log = place.folder / f"{kind}-{is_closed}.log"
    shell = 'exec "$@" ' + (">&-" if is_closed else ">/dev/full")
    with log.open("w") as stderr:
        process = subprocess.Popen(
            ["sh", "-c", shell, "sh", *EVERYTHING, kind, "-c", str(path)], stderr=stderr,
            env=environment(),
        )  # fmt: skip
    try:
        wait_until(lambda: "status_page_started" in log.read_text(), 30, f"{kind} to be up")
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.wait()
    assert "Traceback" not in log.read_text()


@pytest.mark.parametrize("sign", ["each a process", "status page"])
def test_demo_when_interrupted_then_its_folder_is_gone(tmp_path: Path, sign: str) -> None:
    """Ctrl-C is the only way to end it, and each run would leave a gigabyte; also while it starts."""
    log = tmp_path / "out"
    folder = tmp_path / "tmp"
    folder.mkdir()
    with log.open("w") as out:
        process = subprocess.Popen(
            [*EVERYTHING, "demo"], stdout=out, stderr=out, env=environment(TMPDIR=str(folder)),
            start_new_session=True,
        )  # fmt: skip
    try:
        wait_until(lambda: sign in log.read_text(), 60, sign)
        assert list(folder.glob("rmqha-demo-*"))
        os.killpg(process.pid, signal.SIGINT)
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.wait()
    said = log.read_text()
    assert (list(folder.glob("rmqha-demo-*")), "Traceback" in said) == ([], False), said


def test_code_of_an_answer_when_it_has_a_name_then_it_is_not_told_twice() -> None:
    """CODE: 29 DESC ... (29) stood there."""
    assert response_name(INVALID_PARAMETER) == "INVALID_PARAMETER"
