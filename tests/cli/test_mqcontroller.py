"""The controller as a process: flags, boot lines, signals, exit codes, restarts, broken stores."""

from __future__ import annotations

import contextlib
import resource
import shutil
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from urllib.request import urlopen

import msgpack
import pytest
from prometheus_client.parser import text_string_to_metric_families

from rmqha.controller.raft import wal_layout
from rmqha.runtime.properties import parse_properties
from rmqha.testing.real import wire
from rmqha.testing.real.processes import wait_until
from tests.cli.held import HELD_BYTES_MAX, closes_somebody
from tests.cli.nodes import (
    BOOT_LINE,
    CLUSTER,
    ROOT,
    Group,
    Node,
    broker_address,
    group,
    join,
    now_s,
    replica_info,
    run,
)

pytestmark = pytest.mark.slow

FAILED, CONFIG, STORE, PORT = 1, 2, 3, 4
AT_ONCE_S = 1.0


@pytest.fixture
def trio(tmp_path: Path) -> Iterator[Group]:
    """Three running nodes."""
    with group(tmp_path) as one:
        yield one


@pytest.fixture
def single(tmp_path: Path) -> Iterator[Node]:
    """A group of one, not started; killed at the end."""
    one = Group(tmp_path, 1)
    yield one.nodes[0]
    one.kill()


def ended_with(node: Node) -> int:
    """The exit code of a node that must end by itself, without a stack trace."""
    code = node.wait_end()
    assert "Traceback" not in node.stderr
    assert BOOT_LINE not in node.stdout
    return code


def files_of(store: Path) -> dict[str, bytes]:
    """A store's content, but for the lock that each start takes."""
    return {path.name: path.read_bytes() for path in store.iterdir() if path.name != "LOCK"}


# -- booting ---------------------------------------------------------------------------------


def test_stdout_has_javas_boot_lines_and_nothing_else(single: Node) -> None:
    """Scripts and charts wait for these lines."""
    single.start().wait_boot()
    assert f"load config properties file OK, {single.config}\n{BOOT_LINE}\n" == single.stdout


def test_the_script_starts_the_same_process(single: Node) -> None:
    """bin/mqcontroller must take the flags and give the exit code of what it starts."""
    single.start()
    printed = subprocess.run(
        [ROOT / "bin" / "mqcontroller", "-c", single.config, "-m"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert 0 == printed.returncode
    assert f"listenPort={single.port}\n" in printed.stdout
    refused = subprocess.run(
        [ROOT / "bin" / "mqcontroller", "--nonsense"],
        capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip
    assert CONFIG == refused.returncode


def test_three_nodes_elect_a_leader_within_a_second_of_the_last_boot_line(tmp_path: Path) -> None:
    """Brokers that start with the controllers would wait longer than they must."""
    with group(tmp_path) as one:
        booted = now_s()
        one.wait_leader()
        assert now_s() - booted < AT_ONCE_S


def test_every_log_line_is_json_when_stderr_is_no_terminal(trio: Group) -> None:
    """Log collectors drop what they cannot parse."""
    trio.wait_leader()
    for node in trio.nodes:
        node.wait_logged("controller_started")
        for line in node.events():
            assert {"event", "level", "timestamp", "node", "group"} <= line.keys(), line


# -- ending ----------------------------------------------------------------------------------


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_leader_that_is_told_to_end_hands_over_and_loses_nothing(
    trio: Group, number: signal.Signals
) -> None:
    """A rolling restart must not cost an election timeout, nor a registration."""
    leader = trio.wait_leader()
    broker = join(leader, "broker-a", 1)
    before = replica_info(leader, "broker-a")
    leader.signal(number)
    told = now_s()
    others = trio.others(leader)

    def next_leader() -> Node | None:
        """Ask the others only: the old one may be gone or not."""
        for node in others:
            if node.ask(1004, {"brokerName": "broker-a"}).code == 0:
                return node
        return None

    new = wait_until(next_leader, AT_ONCE_S, "another leader", 0.005)
    assert now_s() - told < AT_ONCE_S
    assert isinstance(new, Node)
    assert before == replica_info(new, "broker-a")
    assert broker_address(1) == before["masterAddress"]
    broker.close()
    assert 0 == leader.wait_end()
    assert leader.has_logged("controller_stopping", handed_over=True)
    assert leader.has_logged("controller_stopped", code=0)
    assert leader.start().wait_boot()
    trio.wait_leader()


def test_a_single_node_ends_in_order_when_told_to(single: Node) -> None:
    """There is nobody to hand over to; that must not cost the transfer's timeout."""
    single.start().wait_boot()
    told = now_s()
    single.signal(signal.SIGTERM)
    assert 0 == single.wait_end()
    assert now_s() - told < AT_ONCE_S
    assert single.start().wait_boot()


def test_state_is_kept_when_all_nodes_are_killed_and_restarted(trio: Group) -> None:
    """An acknowledged registration is on disk, not in three memories."""
    leader = trio.wait_leader()
    with join(leader, "broker-a", 1), join(leader, "broker-a", 2), join(leader, "broker-b", 1):
        before = {name: replica_info(leader, name) for name in ("broker-a", "broker-b")}
        trio.kill()
    trio.start()
    leader = trio.wait_leader()
    assert before == {name: replica_info(leader, name) for name in before}
    next_id = leader.ask(1012, {"clusterName": "TestCluster", "brokerName": "broker-a"}).ext
    assert "3" == next_id["nextBrokerId"]


# -- flags and configuration -----------------------------------------------------------------


def test_help_names_every_flag(tmp_path: Path) -> None:
    """-h as in Java, and -m which only the name server has there."""
    code, out, _ = run(tmp_path, "-h")
    assert 0 == code
    for flag in ("-c", "-p", "-m", "-n", "-h"):
        assert f"  {flag}, --" in out


@pytest.mark.parametrize("flag", ["-p", "--printConfigItem", "-m", "--printImportantConfig"])
def test_a_print_flag_prints_and_does_not_start(single: Node, flag: str) -> None:
    """Operators check a file with it before they restart a node."""
    single.start(flag)
    assert 0 == single.wait_end()
    first, *lines = single.stdout.splitlines()
    assert f"load config properties file OK, {single.config}" == first
    assert sorted(lines) == lines
    assert f"listenPort={single.port}" in lines
    assert "notifyBrokerRoleChanged=true" in lines
    assert ("serverWorkerThreads=8" in lines) is (flag in ("-p", "--printConfigItem"))
    assert not single.store.exists()


def test_the_name_server_flag_is_taken_and_ignored(single: Node) -> None:
    """Java takes -n; scripts pass it."""
    single.start("-n", "127.0.0.1:9876").wait_boot()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "give a properties file with -c"),
        (("--nonsense",), "No such option"),
        (("-c",), "requires an argument"),
        (("-c", "none.conf"), "cannot read none.conf"),
        (("-c", "."), "cannot read ."),
    ],
)
def test_bad_usage_ends_with_2_and_a_reason(
    tmp_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    """Whoever starts it must see at once what is wrong, and no stack trace."""
    code, out, err = run(tmp_path, *arguments)
    assert (CONFIG, "") == (code, out)
    assert message in err
    assert "Traceback" not in err


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "controllerDLegerGroup is missing"),
        (b"\xff\xfe\x00", "is no properties file"),
        (b"controllerDLegerGroup=\\u12", "broken escape"),
        (b"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0\ncontrollerDLegerSelfId=n0",
         "'n0' is not id-host:port"),
        (b"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-h:1\ncontrollerDLegerSelfId=n1",
         "this node is 'n1', which is not among n0"),
        (b"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-h:1\ncontrollerDLegerSelfId=n0\n"
         b"raftHeartbeatMs=5000", "raftHeartbeatMs=5000 must be below raftLeaseMs=90"),
        (b"controllerDLegerGroup=g\ncontrollerDLegerPeers=n0-h:1\ncontrollerDLegerSelfId=n0\n"
         b"metricsPromExporterPort=70000", "metricsPromExporterPort=70000 must be at most 65535"),
    ],
)  # fmt: skip
def test_a_bad_file_ends_with_2_and_names_file_and_key(
    tmp_path: Path, content: bytes, message: str
) -> None:
    """Java prints a stack trace of its DLedger library instead."""
    file = tmp_path / "bad.conf"
    file.write_bytes(content)
    code, out, err = run(tmp_path, "-c", str(file))
    assert (CONFIG, "") == (code, out)
    assert err.startswith("mqcontroller: ")
    assert str(file) in err
    assert message in err
    assert "Traceback" not in err


# -- ports -----------------------------------------------------------------------------------


def test_a_port_in_use_ends_with_4_and_names_it(single: Node) -> None:
    """No stack trace, and the store is left for the process that may use it."""
    with socket.create_server(("127.0.0.1", single.port)):
        single.start()
        assert PORT == ended_with(single)
    assert f"cannot listen on 127.0.0.1:{single.port} (controllerDLegerPeers): " in single.stderr
    single.start().wait_boot()


def test_a_metrics_port_in_use_ends_with_4_and_names_that_port(single: Node) -> None:
    """The message must not blame the controller's own port."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        single.properties |= {
            "metricsExporterType": "PROM",
            "metricsPromExporterHost": "127.0.0.1",
            "metricsPromExporterPort": str(port),
        }
        single.start()
        assert PORT == ended_with(single)
    where = f"127.0.0.1:{port} (metricsPromExporterPort)"
    assert f"mqcontroller: cannot listen on {where}: " in single.stderr


def test_a_taken_status_port_is_named_with_its_key(single: Node) -> None:
    """Whoever reads it looks for the line of the file to change."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        single.properties |= {"statusPagePort": str(port)}
        single.start()
        assert PORT == ended_with(single)
    assert f"cannot listen on 127.0.0.1:{port} (statusPagePort): " in single.stderr


def test_an_address_of_another_machine_ends_with_4(single: Node) -> None:
    """bindAddress with a typo."""
    single.properties["bindAddress"] = "192.0.2.1"
    single.start()
    assert PORT == ended_with(single)
    assert f"cannot listen on 192.0.2.1:{single.port}" in single.stderr


@pytest.mark.parametrize(
    ("first", "name"),
    [(b"GET / HTTP/1.1\r\n\r\n", "HTTP"), (b"\x16\x03\x01\x02\x00\x01\x00\x01", "TLS")],
)
def test_another_protocol_is_named_in_the_log_and_its_connection_closed(
    single: Node, first: bytes, name: str
) -> None:
    """A probe or a client with TLS on must not look like a network failure."""
    single.start().wait_boot()
    with socket.create_connection(("127.0.0.1", single.port), timeout=5) as peer:
        peer.sendall(first)
        try:
            assert b"" == peer.recv(100)
        except ConnectionResetError:
            pass
    wait_until(lambda: single.has_logged("frame_refused"), 5, "the refusal", 0.02)
    (line,) = [one for one in single.events() if one["event"] == "frame_refused"]
    assert f"the peer speaks {name}" in str(line["reason"])
    assert 0 == single.ask(1005).code


# -- the store -------------------------------------------------------------------------------


def used_store(node: Node) -> dict[str, bytes]:
    """Run a node once; returns its store's files."""
    node.start().wait_boot()
    wait_until(lambda: node.ask(1004, {"brokerName": "?"}).code != 2007, 5, "leadership")
    with join(node, "broker-a", 1):
        node.kill()
    return files_of(node.store)


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("controllerDLegerGroup", "other", "the store belongs to node n0 of group test"),
        ("controllerDLegerSelfId", "n9", "the store belongs to node n0 of group test"),
    ],
)
def test_the_store_of_another_group_or_node_ends_with_3_and_is_left_alone(
    single: Node, key: str, value: str, message: str
) -> None:
    """Two nodes with one identity could vote twice."""
    before = used_store(single)
    single.properties[key] = value
    if key == "controllerDLegerSelfId":
        single.properties["controllerDLegerPeers"] = f"n9-127.0.0.1:{single.port}"
    single.start()
    assert STORE == ended_with(single)
    assert message in single.stderr
    assert before == files_of(single.store)


def test_a_store_of_a_newer_format_ends_with_3_and_is_left_alone(single: Node) -> None:
    """After a downgrade: reading what it does not know, it would forget votes."""
    single.store.mkdir(parents=True)
    record = (wal_layout.OPEN, wal_layout.FORMAT + 1, "test", "n0", 1, None, "what is this")
    segment = wal_layout.encode_frame(wal_layout.WAL_MAGIC, 1, wal_layout.encode_records([record]))
    (single.store / f"{1:020d}.wal").write_bytes(segment)
    before = files_of(single.store)
    single.start()
    assert STORE == ended_with(single)
    assert f"has format {wal_layout.FORMAT + 1}" in single.stderr
    assert before == files_of(single.store)


def test_damage_in_the_middle_ends_with_3_and_is_left_alone(single: Node) -> None:
    """Cutting it off would forget what was acknowledged; whoever mends it needs all of it."""
    used_store(single)
    (segment,) = single.store.glob("*.wal")
    content = bytearray(segment.read_bytes())
    # Behind the last frame there are zeros, written ahead.
    content[len(content.rstrip(b"\0")) // 2] ^= 0x40
    segment.write_bytes(content)
    before = files_of(single.store)
    single.start()
    assert STORE == ended_with(single)
    assert "damaged frame in the middle of the log" in single.stderr
    assert before == files_of(single.store)


def test_a_torn_tail_is_cut_and_the_node_starts(single: Node) -> None:
    """Power went while a frame was written: nothing of it was acknowledged."""
    before = used_store(single)
    (segment,) = single.store.glob("*.wal")
    frames = before[segment.name].rstrip(b"\0")
    frames += bytes(-len(frames) % wal_layout.ALIGNMENT)
    torn = bytearray(wal_layout.encode_frame(wal_layout.WAL_MAGIC, 10**6, bytes([0x61]) * 3000))
    lost = -len(frames) % wal_layout.SECTOR + wal_layout.SECTOR
    torn[lost : lost + wal_layout.SECTOR] = bytes(wal_layout.SECTOR)
    segment.write_bytes(frames + torn + bytes(4096))
    single.start().wait_boot()
    assert single.has_logged("raft_store_opened", torn_tail_cut=True)
    wait_until(lambda: single.ask(1004, {"brokerName": "broker-a"}).code == 0, 5, "the state")


def test_a_store_that_another_process_uses_ends_with_3_and_is_left_alone(single: Node) -> None:
    """A second process would take a frame that is being written for a torn tail, and cut it."""
    single.start().wait_boot()
    second = Node(single.folder, "second", single.port, single.properties)
    try:
        second.start()
        assert STORE == ended_with(second)
    finally:
        second.kill()
    assert f"mqcontroller: {single.store} is in use by another process" in second.stderr
    assert 0 == single.ask(1005).code


def test_a_store_that_cannot_be_made_ends_with_3(single: Node, tmp_path: Path) -> None:
    """A file where the directory should be."""
    (tmp_path / "file").write_text("")
    single.properties["controllerStorePath"] = str(tmp_path / "file")
    single.start()
    assert STORE == ended_with(single)
    assert str(tmp_path / "file") in single.stderr


def limit_file_size() -> None:
    """Let writes beyond 16 KiB fail with EFBIG, as a full disk fails with ENOSPC."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (16384, 16384))


def limit_nothing_yet() -> None:
    """A node whose limit comes later writes no byte code either (``nodes.spawn``)."""


def applied_ids(one: Group, name: str) -> int:
    """Ask the leader for an id until somebody says yes; returns the leader's count of ids."""

    def applied() -> bool:
        leader = one.leader()
        try:
            return leader is not None and apply_id(leader, name)
        except OSError:
            return False

    wait_until(applied, 10, f"an id in {name}", 0.01)
    fields = {"clusterName": CLUSTER, "brokerName": name}
    return int(one.wait_leader().ask(1012, fields).ext["nextBrokerId"])


def apply_id(node: Node, name: str) -> bool:
    """Apply for id 1 of a set; whether it was acknowledged."""
    check = "127.0.0.1:1;" + "x" * 200
    fields = {"clusterName": CLUSTER, "brokerName": name, "appliedBrokerId": 1}
    return node.ask(1013, {**fields, "registerCheckCode": check}).code == 0


def test_a_node_whose_disk_fails_ends_with_1_and_the_group_goes_on(tmp_path: Path) -> None:
    """What it cannot write it must not acknowledge, nor block the group by staying on."""
    one = Group(tmp_path)
    broken = one.nodes[0]
    broken.properties["logLevel"] = "error"  # its log is a file, too, and must not fill up first
    try:
        for node in one.nodes:
            node.start(preexec=limit_file_size if node is broken else None)
        for node in one.nodes:
            node.wait_boot()
        acknowledged = []
        while broken.code is None and len(acknowledged) < 200:
            acknowledged.append(f"set-{len(acknowledged):04d}")
            assert 2 == applied_ids(one, acknowledged[-1])
        assert FAILED == broken.wait_end()
        assert broken.has_logged("controller_failed")
        assert "File too large" in broken.stderr
        leader = one.wait_leader()
        assert leader is not broken
        for name in acknowledged:
            fields = {"clusterName": CLUSTER, "brokerName": name}
            assert "2" == leader.ask(1012, fields).ext["nextBrokerId"]
        # A new disk: it gets everything from the others.
        shutil.rmtree(broken.store.parent)
        broken.start().wait_boot()
        one.wait_leader()
    finally:
        one.kill()


def test_a_leader_whose_disk_fails_hands_the_group_to_another(tmp_path: Path) -> None:
    """A leader that cannot write must not keep the others from electing."""
    one = Group(tmp_path)
    try:
        for node in one.nodes:
            node.properties["logLevel"] = "error"
            node.start(preexec=limit_nothing_yet)
        for node in one.nodes:
            node.wait_boot()
        leader = one.wait_leader()
        resource.prlimit(leader.pid, resource.RLIMIT_FSIZE, (64, 64))
        with contextlib.suppress(OSError):
            # Its end closes the connection before an answer, or it says that it leads no more; or
            # the two others had the entry on their disks first, and then it is acknowledged.
            apply_id(leader, "set-0")
        assert FAILED == leader.wait_end()
        told = now_s()
        assert 2 == applied_ids(one, "set-0")
        assert now_s() - told < 2
    finally:
        one.kill()


def test_a_log_that_cannot_be_written_stops_nothing(single: Node) -> None:
    """The volume of the logs is full: a Note that fails must not take the effects behind it."""
    single.log_to = Path("/dev/full")
    single.start()
    wait_until(lambda: BOOT_LINE in single.stdout, 30, "the boot line", 0.01)
    wait_until(lambda: single.ask(1004, {"brokerName": "?"}).code != 2007, 5, "leadership")
    with join(single, "broker-a", 1):
        assert "1" == replica_info(single, "broker-a")["masterBrokerId"]
    single.signal(signal.SIGTERM)
    assert 0 == single.wait_end()


# -- the group -------------------------------------------------------------------------------


def test_a_peer_of_another_group_is_refused_and_both_say_so(tmp_path: Path) -> None:
    """A copied file with a wrong group must not vote here."""
    one = Group(tmp_path, 2)
    one.nodes[1].properties["controllerDLegerGroup"] = "other"
    try:
        one.start()
        reason = "group 'other' knocked at group 'test'"
        one.nodes[0].wait_logged("raft_peer_refused", reason=reason)
        one.nodes[1].wait_logged("raft_peer_refused_us", reason=reason, peer="n0")
        assert one.leader() is None
    finally:
        one.kill()


def test_hostile_hellos_are_refused_and_the_node_goes_on(single: Node) -> None:
    """The port is open to all; no body may raise in the handler."""
    single.start().wait_boot()
    bodies = [b"", b"\xc1", msgpack.packb(1), msgpack.packb([1, "test"]),
              msgpack.packb([1, "test", ["n0"]]), msgpack.packb([1, "test", {}]),
              msgpack.packb([1, "test", "n0"]), msgpack.packb([99, "test", "n0"])]  # fmt: skip
    for body in bodies:
        answer = single.ask(60002, body=body)
        assert 16 == answer.code, (body, answer)
    assert not single.has_logged("callback_failed")
    assert 0 == single.ask(1005).code


# -- bounds ----------------------------------------------------------------------------------


def is_closed_by_peer(connection: socket.socket) -> bool:
    """Whether the other side closed it (waits for at most 5 s)."""
    try:
        return connection.recv(1) == b""
    except ConnectionResetError:
        return True


def test_connections_beyond_the_maximum_are_closed_and_others_go_on(single: Node) -> None:
    """A client that leaks connections must not take the node's memory or descriptors."""
    single.properties["connectionsMax"] = "3"
    single.start().wait_boot()
    held = [wire.Connection(single.address) for _ in range(3)]
    assert [0, 0, 0] == [one.invoke(1005).code for one in held]
    for _ in range(20):
        with socket.create_connection(("127.0.0.1", single.port), timeout=5) as one_more:
            assert is_closed_by_peer(one_more)
    assert [0, 0, 0] == [one.invoke(1005).code for one in held]
    held.pop().close()

    def accepted() -> bool:
        try:
            return single.ask(1005).code == 0
        except OSError:
            return False

    wait_until(accepted, 5, "room for another connection", 0.02)
    for one in held:
        one.close()


def test_unfinished_frames_beyond_what_may_be_held_cost_a_connection(single: Node) -> None:
    """``heldBytesMax`` reaches the port."""
    single.properties["heldBytesMax"] = str(HELD_BYTES_MAX)
    single.start().wait_boot()
    assert closes_somebody(single.port)
    assert single.ask(1005).code == 0


def few_descriptors() -> None:
    """Room for the store and a dozen connections."""
    resource.setrlimit(resource.RLIMIT_NOFILE, (32, 32))


def test_a_node_survives_when_descriptors_run_out(single: Node) -> None:
    """accept() fails then; the log must stay readable and the node must come back."""
    single.start(preexec=few_descriptors).wait_boot()
    address = ("127.0.0.1", single.port)
    held = [socket.create_connection(address, timeout=5) for _ in range(40)]
    for one in held:
        one.close()

    def answers() -> bool:
        try:
            return single.ask(1004, {"brokerName": "?"}).code != 2007
        except OSError:
            return False

    wait_until(answers, 15, "answers again", 0.05)
    assert single.code is None
    assert len(single.events()) < 100


def test_a_signal_while_it_starts_ends_it_in_order(single: Node) -> None:
    """A rollout that is cancelled; an exit code other than 0 would raise an alarm."""
    for number in (signal.SIGTERM, signal.SIGINT):
        single.start()
        loaded = "load config properties file OK"
        wait_until(lambda: single.has_logged("raft_store_opened"), 30, loaded, 0.001)
        single.signal(number)
        assert 0 == single.wait_end()
        assert "Traceback" not in single.stderr


# -- metrics ---------------------------------------------------------------------------------


def test_prometheus_gets_javas_metric_names_when_asked_for(tmp_path: Path) -> None:
    """Dashboards for the Java controller must work on."""
    one = Group(tmp_path, 1)
    (node,) = one.nodes
    metrics_port = one.spare_ports[0]
    node.properties |= {
        "metricsExporterType": "PROM",
        "metricsPromExporterHost": "127.0.0.1",
        "metricsPromExporterPort": str(metrics_port),
        # Labels of the server's own names are not replaced: alerts are by group and address.
        "metricsLabel": "zone:z1,rack:r7,address:mine,group:ours,peer_id:me",
    }
    try:
        one.start()
        one.wait_leader()
        with (
            join(node, "broker-a", 1),
            urlopen(f"http://127.0.0.1:{metrics_port}/metrics", timeout=5) as page,
        ):
            text = page.read().decode()
        told = now_s()
        node.signal(signal.SIGTERM)
        assert 0 == node.wait_end()
        assert now_s() - told < 2
    finally:
        one.kill()
    samples = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            samples[sample.name, frozenset(sample.labels.items())] = sample.value
    common = {"address": node.address, "group": "test", "peer_id": "n0", "zone": "z1", "rack": "r7"}
    broker_set = {"cluster": "TestCluster", "broker_set": "broker-a"}

    def value(name: str, **labels: str) -> float | None:
        return samples.get((name, frozenset({**common, **labels}.items())))

    assert 3 == value("role")
    assert 0 < (value("dledger_disk_usage_bytes") or 0)
    assert 1 == value("active_broker_num", **broker_set)
    asked = {"request_type": "CONTROLLER_REGISTER_BROKER"}
    assert 1 == value("request_total", **asked, request_handle_status="success")
    assert 1 == value("election_total", **broker_set, election_result="new_master_elected")
    append = {"dledger_operation": "append"}
    assert 2 <= (value("dledger_op_total", **append, dLedger_operation_status="success") or 0)
    assert 0 == value("dledger_op_total", **append, dLedger_operation_status="failed")
    assert 2 <= (value("dledger_op_latency_us_bucket", **append, le="+Inf") or 0)
    applied = {"request_type": "CONTROLLER_APPLY_BROKER_ID"}
    assert 1 == value("request_latency_us_bucket", **applied, le="+Inf")


def test_an_exporter_we_do_not_have_is_reported(single: Node) -> None:
    """Silence would look like metrics that never arrive."""
    single.properties["metricsExporterType"] = "OTLP_GRPC"
    single.start().wait_boot()
    single.wait_logged("metrics_exporter_unsupported", kind="OTLP_GRPC")


# -- configuration at run time ---------------------------------------------------------------


def test_an_update_is_stored_and_starts_the_node_again(single: Node) -> None:
    """The stored file is what an operator passes with -c at the next start."""
    single.start().wait_boot()
    assert 0 == single.ask(1009, body=b"notifyBrokerRoleChanged=false\nprocessReadEvent=true").code
    stored = Path(single.properties["configStorePath"])
    assert "false" == parse_properties(stored.read_text())["notifyBrokerRoleChanged"]
    text = single.ask(1010).body.decode()
    assert "notifyBrokerRoleChanged=false\n" in text
    single.kill()
    single.properties = parse_properties(stored.read_text())
    single.start().wait_boot()
    assert text == single.ask(1010).body.decode()


def test_updates_that_come_together_are_all_answered_and_the_last_is_stored(single: Node) -> None:
    """They write one temporary file; interleaved they would lose it under each other."""
    single.start().wait_boot()
    sockets = []
    for number in range(1, 21):
        connection = socket.create_connection(("127.0.0.1", single.port), timeout=5)
        sockets.append(connection)
        body = f"slaveNotifyDelayMs={number}".encode()
        connection.sendall(wire.encode(1009, {}, body, number))
    for connection in sockets:
        assert b'"code":0' in connection.recv(4096)
        connection.close()
    stored = parse_properties(Path(single.properties["configStorePath"]).read_text())
    shown = parse_properties(single.ask(1010).body.decode())
    assert shown["slaveNotifyDelayMs"] == stored["slaveNotifyDelayMs"]


def test_an_update_is_answered_with_the_reason_when_it_cannot_be_stored(
    single: Node, tmp_path: Path
) -> None:
    """It is in force and will be forgotten: the operator must know."""
    (tmp_path / "file").write_text("")
    single.properties["configStorePath"] = str(tmp_path / "file" / "controller.properties")
    single.start().wait_boot()
    answer = single.ask(1009, body=b"notifyBrokerRoleChanged=false")
    assert 1 == answer.code
    assert answer.remark.startswith("changed, but not stored: ")


def test_a_config_path_without_a_folder_is_below_the_working_directory(single: Node) -> None:
    """As Java's File does; the update must be answered."""
    single.properties["configStorePath"] = "stored.properties"
    single.start().wait_boot()
    assert 0 == single.ask(1009, body=b"notifyBrokerRoleChanged=false").code
    assert (single.folder / "stored.properties").exists()
