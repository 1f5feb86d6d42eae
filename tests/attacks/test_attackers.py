"""The attackers themselves: each hits what it aims at, and says so truly."""

from __future__ import annotations

import contextlib
import socket
import struct
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec
import pytest

from rmqha.testing.real import wire
from rmqha.testing.real.processes import allocate_ports
from tests.attacks.attacker import Crowd, Line, Run, Target, frame
from tests.attacks.catalog import ATTACKS

ROOT = Path(__file__).resolve().parents[2]
SHORT_S = 0.6


def aim(**changed: object) -> Target:
    """Everything at one port that nobody listens on."""
    nobody = ("127.0.0.1:9",)
    fields: dict[str, object] = {
        "controllers": nobody, "raft": nobody, "namesrv": nobody, "brokers": nobody, "ha": nobody,
        "http": nobody, "broker_name": "b", "cluster_name": "C", "group": "g",
        "master": nobody[0], "topic": "T", "own_topic": "O", "own_group": "G", **changed,
    }  # fmt: skip
    return Target(**fields)  # type: ignore[arg-type]  # they are its fields


@contextmanager
def listener(answer: bytes = b"", *, hangs_up: bool = False) -> Iterator[str]:
    """A port that takes everything and answers each piece, or ends every connection."""
    door = socket.create_server(("127.0.0.1", 0))

    def serve(one: socket.socket) -> None:
        with one, contextlib.suppress(ConnectionError):
            while not hangs_up and one.recv(1 << 20):
                if answer:
                    one.sendall(answer)

    def let_in() -> None:
        while True:
            try:
                one, _ = door.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(one,), daemon=True).start()

    threading.Thread(target=let_in, daemon=True).start()
    try:
        yield f"127.0.0.1:{door.getsockname()[1]}"
    finally:
        door.shutdown(socket.SHUT_RDWR)
        door.close()


@pytest.mark.slow
@pytest.mark.parametrize("name", ATTACKS)
def test_attack_when_somebody_listens_then_it_has_sent_and_ends_in_time(name: str) -> None:
    """Every one of them, from another address than the own."""
    with listener(wire.encode(16, {}, flag=1)) as address:
        at = (address,)
        target = aim(
            controllers=at, raft=at, namesrv=at, brokers=at, ha=at, http=at, master=address,
            source="127.0.0.66",
        )  # fmt: skip
        run = Run(target, SHORT_S, 100.0)
        ATTACKS[name].do(run)
    assert run.tally.sent > 0
    assert not run.goes_on


@pytest.mark.costly
def test_attack_when_nobody_listens_then_it_fails(tmp_path: Path) -> None:
    """A run in which an attacker sent nothing proves nothing: its process says so."""
    file = tmp_path / "target.json"
    file.write_bytes(msgspec.json.encode(aim()))
    command = [sys.executable, "-m", "tests.attacks", "routes", str(file), "0.3", "100"]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=30, check=False
    )
    assert done.returncode == 1
    assert '"sent":0' in done.stdout


def test_rate_is_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """What could not be sent in time is not made up for in a burst."""
    now = [100.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    monkeypatch.setattr("time.sleep", lambda seconds: now.__setitem__(0, now[0] + seconds))
    run = Run(aim(), 60.0, 10.0)
    shots = 0
    while run.pace():
        shots += 1
        if shots == 50:
            now[0] += 30.0
    assert 290 <= shots <= 320


def test_answers_are_counted_by_code_in_any_pieces() -> None:
    """And bytes that are no frame end nothing."""
    run = Run(aim(), 5.0, 0)
    line = Line(run, "127.0.0.1:9")
    said = wire.encode(16, {}, b"x" * 100, flag=1) + wire.encode(0, {"a": "b"}, flag=1)
    for at in range(len(said)):
        line._read(said[at : at + 1])
    assert run.tally.answers == {"16": 1, "0": 1}
    line._read(struct.pack(">II", 0xFFFFFFFF, 0))
    assert run.tally.answers == {"16": 1, "0": 1}


@pytest.mark.slow
def test_crowd_when_it_is_thrown_out_then_it_says_so() -> None:
    """Connections that were closed are counted, and opened again."""
    with listener(hangs_up=True) as address:
        run = Run(aim(ha=(address,)), SHORT_S, 200.0)
        with Crowd(run, (address,), 3) as crowd:
            while run.goes_on:
                crowd.fill()
                crowd.look(reads=True)
    assert run.tally.closed > 3


def test_line_when_it_is_closed_then_it_dials_again() -> None:
    """And every frame that left is counted, with its bytes."""
    with listener(hangs_up=True) as address:
        run = Run(aim(), 5.0, 0)
        one = frame(1005)
        for _ in range(200):
            run.shoot(address, one)
            if run.tally.closed > 2:
                break
            run.line(address).drain(0.5)
        run.close()
    assert run.tally.closed > 2
    assert run.tally.sent_bytes == run.tally.sent * len(one)


def test_port_of_nobody_is_refused() -> None:
    """A dial that is not let in is counted, and tried again only by and by."""
    port = allocate_ports()[0]
    run = Run(aim(), 5.0, 0)
    for _ in range(100):
        run.shoot(f"127.0.0.1:{port}", b"x")
    assert (run.tally.sent, run.tally.refused_dials) == (0, 1)
