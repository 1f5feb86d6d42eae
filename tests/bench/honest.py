"""Honest clients beside an attack: what they were told is safe, and how long each call took.

As a process: ``python -m tests.bench.honest TARGET_FILE OUT_FILE SECONDS [CALL_S]``. A producer sends one
message after another, a consumer reads behind it, and askers want to know the master (1004), the
group (1005) and a route (105). Moments are ``time.monotonic``, which all processes of a machine
share.
"""

from __future__ import annotations

import contextlib
import itertools
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec
from msgspec import Struct, field

from rmqha.testing.real import wire
from tests.attacks.attacker import Target

QUEUES = 4
CALL_S = 10.0
"""A call that takes longer has failed; it counts with this time."""
SENDS_PER_S, READS_PER_S, ASKS_PER_S = 50.0, 10.0, 10.0
PAYLOAD = b"h" * 200
KINDS = ("send", "pull", "1004", "1005", "105")


class Samples(Struct):
    """Calls of one kind: when each began, and what it took; a failed one has a minus."""

    begun: list[float] = field(default_factory=list)
    took_ms: list[float] = field(default_factory=list)

    def between(self, begin: float, end: float) -> list[float]:
        """What calls took that began in an interval."""
        pairs = zip(self.begun, self.took_ms, strict=False)
        return [abs(took) for begun, took in pairs if begin <= begun < end]

    def longest_silence_s(self, begin: float, end: float) -> float:
        """The longest time of an interval without a call that succeeded, from end to end of each."""
        pairs = zip(self.begun, self.took_ms, strict=False)
        ends = [begun + took / 1000 for begun, took in pairs if took >= 0]
        inside = [begin, *(moment for moment in ends if begin < moment < end), end]
        return max(later - earlier for earlier, later in itertools.pairwise(inside))

    def failures(self, begin: float, end: float) -> int:
        """Calls that began in an interval and failed."""
        pairs = zip(self.begun, self.took_ms, strict=False)
        return sum(begin <= begun < end and took < 0 for begun, took in pairs)


class Account(Struct):
    """What honest clients can say at the end.

    Attributes:
        acked: queue, offset and number of each acknowledged message.
        read: messages that the consumer got.
        reasons: why calls failed, and how often.
    """

    samples: dict[str, Samples] = field(default_factory=dict)
    acked: list[tuple[int, int, int]] = field(default_factory=list)
    read: int = 0
    reasons: dict[str, int] = field(default_factory=dict)


def body_of(number: int) -> bytes:
    """The body of an honest message."""
    return b"honest-%09d-" % number + PAYLOAD


def lost(acked: Iterable[tuple[int, int, int]], found: dict[tuple[int, int], bytes]) -> list[int]:
    """Numbers of acknowledged messages that are not where they were said to be."""
    return [
        number for queue, offset, number in acked if found.get((queue, offset)) != body_of(number)
    ]


class Honest:
    """The clients, each a thread.

    Args:
        target: whom they ask; its user is theirs.
        call_s: when a call has failed.
    """

    def __init__(self, target: Target, call_s: float = CALL_S) -> None:
        self._target = target
        self._call_s = call_s
        self.account = Account(samples={kind: Samples() for kind in KINDS})
        self._stopping = threading.Event()
        self._guard = threading.Lock()
        self._connections: dict[tuple[str, str], wire.Connection] = {}
        self._master = target.master
        self._leader = target.controllers[0]
        loops = (
            ("send", SENDS_PER_S, self._sender()), ("pull", READS_PER_S, self._reader()),
            ("1004", ASKS_PER_S, self._asker(1004)), ("1005", ASKS_PER_S, self._asker(1005)),
            ("105", ASKS_PER_S, self._router()),
        )  # fmt: skip
        self._threads = [
            threading.Thread(target=self._repeat, args=one, daemon=True) for one in loops
        ]

    def start(self) -> None:
        """Begin."""
        for one in self._threads:
            one.start()

    def stop(self) -> Account:
        """End, when the calls that are under way have."""
        self._stopping.set()
        for one in self._threads:
            one.join(self._call_s + 1)
        for connection in self._connections.values():
            connection.close()
        return self.account

    def _repeat(self, kind: str, per_s: float, call: Callable[[], None]) -> None:
        samples, due = self.account.samples[kind], time.monotonic()
        while not self._stopping.wait(max(0.0, due - time.monotonic())):
            begun = time.monotonic()
            try:
                call()
                sign = 1
            except (OSError, ValueError, KeyError, wire.Refused) as error:
                sign = -1
                with self._guard:
                    reason = f"{kind}: {type(error).__name__} {error}"[:120]
                    self.account.reasons[reason] = self.account.reasons.get(reason, 0) + 1
            took_ms = (time.monotonic() - begun) * 1000
            samples.begun.append(begun)
            samples.took_ms.append(sign * took_ms)
            due = max(due + 1 / per_s, time.monotonic() - 1.0)
            if sign < 0:
                # Who is refused asks again, but not as fast as he can.
                due = max(due, time.monotonic() + 0.05)

    def _sender(self) -> Callable[[], None]:
        number = 0

        def send() -> None:
            nonlocal number
            number += 1
            address = self._master
            one = self._to("send", address)
            try:
                answer = wire.send_message(
                    one, self._target.topic, number % QUEUES, body_of(number), keys=str(number),
                    default_queues=QUEUES,
                )  # fmt: skip
                if answer.code != wire.SUCCESS:
                    raise wire.Refused(address, wire.SEND_MESSAGE, answer)
            except (OSError, wire.Refused):
                self._find_master()
                raise
            place = (int(answer.ext["queueId"]), int(answer.ext["queueOffset"]), number)
            self.account.acked.append(place)

        return send

    def _find_master(self) -> None:
        """By the name server, as clients do."""
        name = self._target.broker_name
        server = self._to("route", self._target.namesrv[0])
        with contextlib.suppress(OSError, ValueError):
            found = wire.broker_addresses(server, self._target.topic, name).get(0)
            self._master = found or self._target.master

    def _to(self, kind: str, address: str) -> wire.Connection:
        """Each kind of call has its own connection to an address, for each has a thread."""
        one = self._connections.get((kind, address))
        if one is None:
            one = self._connections[kind, address] = wire.Connection(address, self._call_s)
        return one

    def _reader(self) -> Callable[[], None]:
        offsets = [0] * QUEUES
        turn = 0

        def pull() -> None:
            nonlocal turn
            turn = (turn + 1) % QUEUES
            fields = {
                "consumerGroup": "rmqha_interop_reader", "topic": self._target.topic,
                "queueId": turn, "queueOffset": offsets[turn], "maxMsgNums": 32, "sysFlag": 4,
                "commitOffset": 0, "suspendTimeoutMillis": 1000, "subscription": "*",
                "subVersion": 0, "expressionType": "TAG",
            }  # fmt: skip
            address = self._master
            answer = self._to("pull", address).invoke(wire.PULL_MESSAGE, fields)
            if answer.code == wire.SUCCESS:
                self.account.read += len(wire.parse_messages(answer.body))
            elif answer.code not in (wire.PULL_NOT_FOUND, wire.PULL_RETRY_IMMEDIATELY,
                                     wire.PULL_OFFSET_MOVED):  # fmt: skip
                raise wire.Refused(address, wire.PULL_MESSAGE, answer)
            offsets[turn] = int(answer.ext["nextBeginOffset"])

        return pull

    def _asker(self, code: int) -> Callable[[], None]:
        fields = {"brokerName": self._target.broker_name} if code == 1004 else {}

        def ask() -> None:
            address = self._leader
            try:
                self._to(str(code), address).ask(code, fields)
            except (OSError, wire.Refused):
                known = self._target.controllers
                self._leader = known[(known.index(address) + 1) % len(known)]
                raise

        return ask

    def _router(self) -> Callable[[], None]:
        server = self._to("105", self._target.namesrv[0])

        def ask() -> None:
            answer = server.ask(wire.GET_ROUTE, {"topic": self._target.topic})
            routed = {one["brokerName"]: one["brokerAddrs"] for one in answer.json()["brokerDatas"]}
            if "0" not in routed[self._target.broker_name]:
                raise ValueError("the route names no master")

        return ask


def main(target_file: str, out_file: str, seconds: float, call_s: float = CALL_S) -> None:
    """Call for a while, and write down how it went."""
    target = msgspec.json.decode(Path(target_file).read_bytes(), type=Target)
    signing = (
        wire.signing(target.access_key, target.secret_key)
        if target.access_key
        else contextlib.nullcontext()
    )
    with signing:
        honest = Honest(target, call_s)
        honest.start()
        time.sleep(seconds)
        account = honest.stop()
    Path(out_file).write_bytes(msgspec.json.encode(account))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], *map(float, sys.argv[3:]))
