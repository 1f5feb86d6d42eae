"""A load generator that speaks remoting frames: C connections, some requests in flight on each.

Every request in flight is a ``Worker`` with a slot; the slot is the opaque of all its requests, so
a constant request is one immutable frame that is never built again. All answers that one read
brings are handled together and their followers leave in one write. Of the answers to workers that
do not read them only opaque and code are looked at; other headers are parsed by orjson.
"""

from __future__ import annotations

import asyncio
import struct
import time
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import orjson

OPAQUE_FIRST = 1_000_000_000
OPAQUE_DIGITS = 10
OFFSET_FIRST = 1_000_000_000_000
WORKERS_MAX = 10_000
_OPAQUE = b'"opaque":'
_GOOD = b'"code":0,'
_PREFIX = struct.Struct(">II")
WRITE_BUFFER_MAX = 1 << 24


class BenchFailed(Exception):
    """The system under test did something that makes the figures worthless."""


@dataclass(frozen=True, slots=True)
class Result:
    """What one measured interval showed; latencies in milliseconds.

    ``generator_cpu`` is the share of one core that the generator took: near 1.0 it was the limit.
    """

    requests: int
    errors: int
    seconds: float
    rate: float
    p50_ms: float
    p99_ms: float
    generator_cpu: float


class Worker(Protocol):
    """One request in flight, again and again.

    Attributes:
        reads_answers: what follows depends on the answer.
    """

    reads_answers: bool

    def first(self, opaque: int) -> bytes:
        """The first frame; ``opaque`` is the worker's for good."""
        ...

    def following(self, header: Mapping[str, Any], body: bytes) -> bytes:
        """The frame that follows an answer."""
        ...


def frame(
    code: int, ext: Mapping[str, object], opaque: int, *, flag: int = 0, body: bytes = b""
) -> bytes:
    """Build one frame as a 5.3.3 broker would."""
    header: dict[str, object] = {
        "code": code,
        "extFields": {key: str(value) for key, value in ext.items()},
        "flag": flag,
        "language": "JAVA",
        "opaque": opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": 479,
    }
    raw = orjson.dumps(header)
    return _PREFIX.pack(4 + len(raw) + len(body), len(raw)) + raw + body


class Constant:
    """The same request for ever."""

    reads_answers = False

    def __init__(self, code: int, ext: Mapping[str, object]) -> None:
        self._code = code
        self._ext = ext
        self._frame = b""

    def first(self, opaque: int) -> bytes:
        """Build the frame."""
        self._frame = frame(self._code, self._ext, opaque)
        return self._frame

    def following(self, header: Mapping[str, Any], body: bytes) -> bytes:
        """Return it again."""
        return self._frame


class Growing:
    """A request in which two numbers grow from one time to the next, as a busy broker's offsets do.

    Args:
        code, ext: the request; its fields ``maxOffset`` and ``confirmOffset`` grow.
    """

    reads_answers = False

    def __init__(self, code: int, ext: Mapping[str, object]) -> None:
        self._code = code
        self._ext = {**ext, "maxOffset": "@", "confirmOffset": "@"}
        self._offset = 0
        self._frame = b""

    def first(self, opaque: int) -> bytes:
        """Build all but the numbers, which keep their count of digits."""
        raw = frame(self._code, self._ext, opaque)[_PREFIX.size :].replace(b"%", b"%%")
        raw = raw.replace(b'"@"', b'"%d"')
        # No two requests of a run are the same, whoever sends them.
        self._offset = OFFSET_FIRST + opaque - OPAQUE_FIRST
        size = len(raw % (self._offset, self._offset))
        self._frame = _PREFIX.pack(4 + size, size).replace(b"%", b"%%") + raw
        return self.following({}, b"")

    def following(self, header: Mapping[str, Any], body: bytes) -> bytes:
        """The next beat: both offsets are farther on."""
        self._offset += WORKERS_MAX
        return self._frame % (self._offset, self._offset)


class Flip:
    """1001 for one broker set: its SyncStateSet goes from [1] to [1,2] and back.

    The epoch that the next request must carry comes from the last answer; after a refusal the set
    is read with 1004 first.
    """

    reads_answers = True

    def __init__(self, broker_name: str, *, master_epoch: int) -> None:
        self._name = broker_name
        self._master_epoch = master_epoch
        self._opaque = 0
        self._grown = False
        self._epoch = 0
        self._head = b""

    def first(self, opaque: int) -> bytes:
        """Ask where the set stands."""
        self._opaque = opaque
        return self._read()

    def following(self, header: Mapping[str, Any], body: bytes) -> bytes:
        """Take the new epoch, and flip."""
        if header["code"] != 0:
            return self._read()
        ext = header["extFields"]
        known = ext.get("newSyncStateSetEpoch")
        if known is None:
            state = orjson.loads(body)
            self._grown = len(state["syncStateSet"]) > 1
            self._epoch = state["syncStateSetEpoch"]
            self._master_epoch = int(ext["masterEpoch"])
            self._head = self._header()
        else:
            self._grown = not self._grown
            self._epoch = int(known)
        return self._flip()

    def _read(self) -> bytes:
        return frame(1004, {"brokerName": self._name}, self._opaque)

    def _header(self) -> bytes:
        ext = {
            "brokerName": self._name,
            "masterBrokerId": 1,
            "masterEpoch": self._master_epoch,
            "invokeTime": "0000000000000",
        }
        raw = frame(1001, ext, self._opaque)[_PREFIX.size :]
        return raw.replace(b"%", b"%%").replace(b"0000000000000", b"%013d")

    def _flip(self) -> bytes:
        members = b"1" if self._grown else b"1,2"
        body = b'{"syncStateSet":[%b],"syncStateSetEpoch":%d}' % (members, self._epoch)
        raw = self._head % int(time.time() * 1000)
        return _PREFIX.pack(4 + len(raw) + len(body), len(raw)) + raw + body


class Recorder:
    """Counts and latencies of the interval that is being measured."""

    def __init__(self) -> None:
        self.latencies_s = array("d")
        self.errors = 0
        self.codes: dict[int, int] = {}
        self.broken: BaseException | None = None

    def reset(self) -> None:
        """Start a new interval."""
        self.latencies_s = array("d")
        self.errors = 0
        self.codes = {}

    def refused(self, code: int) -> None:
        """Count an answer other than success."""
        self.errors += 1
        self.codes[code] = self.codes.get(code, 0) + 1


class LoadConnection(asyncio.Protocol):
    """One connection that keeps all of its workers in flight until told to drain."""

    def __init__(self, workers: Sequence[Worker], recorder: Recorder) -> None:
        self._workers = workers
        self._recorder = recorder
        self._started = [0.0] * len(workers)
        self._rest = b""
        self._transport: asyncio.Transport | None = None
        self._in_flight = len(workers)
        self.draining = False
        self.drained: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first request of every worker."""
        # uvloop's transport is one by behaviour, not by class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BUFFER_MAX)
        now = time.perf_counter()
        frames = []
        for slot, worker in enumerate(self._workers):
            self._started[slot] = now
            frames.append(worker.first(OPAQUE_FIRST + slot))
        self._transport.write(b"".join(frames))

    def data_received(self, data: bytes) -> None:
        """Handle every complete answer and send what follows each."""
        if self._rest:
            data = self._rest + data
        size = len(data)
        position = 0
        frames: list[bytes] = []
        now = time.perf_counter()
        while size - position >= 8:
            total, packed = _PREFIX.unpack_from(data, position)
            end = position + 4 + total
            if end > size:
                break
            body_start = position + 8 + (packed & 0xFFFFFF)
            following = self._answered(data, position + 8, body_start, end, now)
            if following is not None:
                frames.append(following)
            position = end
        self._rest = data[position:]
        if frames and self._transport is not None:
            self._transport.write(b"".join(frames))

    def connection_lost(self, exc: Exception | None) -> None:
        """Losing a connection under load makes the run worthless."""
        if not self.draining:
            self._recorder.broken = exc or ConnectionResetError("closed by the peer")
        if not self.drained.done():
            self.drained.set_result(None)

    def close(self) -> None:
        """Close the connection."""
        self.draining = True
        if self._transport is not None:
            self._transport.close()

    def _answered(
        self, data: bytes, start: int, body_start: int, end: int, now: float
    ) -> bytes | None:
        header: dict[str, Any] = {}
        at = data.find(_OPAQUE, start, body_start) + len(_OPAQUE)
        slot = int(data[at : at + OPAQUE_DIGITS]) - OPAQUE_FIRST
        worker = self._workers[slot]
        if worker.reads_answers or data.find(_GOOD, start, body_start) < 0:
            header = orjson.loads(data[start:body_start])
            if header["code"] != 0:
                self._recorder.refused(header["code"])
        self._recorder.latencies_s.append(now - self._started[slot])
        if self.draining:
            self._in_flight -= 1
            if self._in_flight == 0 and not self.drained.done():
                self.drained.set_result(None)
            return None
        self._started[slot] = now
        return worker.following(header, data[body_start:end])


async def measure(
    address: str,
    workers: Sequence[Worker],
    *,
    connections: int,
    warm_up_s: float,
    run_s: float,
) -> Result:
    """Run the workers, spread over the connections, and measure after the warm-up.

    Raises:
        BenchFailed: a connection broke, nothing was answered, or over 1 % were refused.
    """
    loop = asyncio.get_running_loop()
    host, _, port = address.rpartition(":")
    recorder = Recorder()
    shares = [list(workers[index::connections]) for index in range(connections)]
    peers: list[LoadConnection] = []
    for share in shares:
        _, peer = await loop.create_connection(
            lambda mine=share: LoadConnection(mine, recorder), host, int(port)
        )
        peers.append(peer)
    try:
        await asyncio.sleep(warm_up_s)
        recorder.reset()
        started, cpu = time.perf_counter(), time.process_time()
        await asyncio.sleep(run_s)
        elapsed_s = time.perf_counter() - started
        generator_cpu = (time.process_time() - cpu) / elapsed_s
        latencies_s, errors = recorder.latencies_s, recorder.errors
        if recorder.broken is not None:
            raise BenchFailed(f"{address}: {recorder.broken!r}")
        for peer in peers:
            peer.draining = True
        await asyncio.wait([peer.drained for peer in peers], timeout=10.0)
    finally:
        for peer in peers:
            peer.close()
    if not latencies_s or errors > len(latencies_s) * 0.01:
        raise BenchFailed(f"{address}: {errors} of {len(latencies_s)} refused: {recorder.codes}")
    return summarize(latencies_s, errors, elapsed_s, generator_cpu)


def summarize(
    latencies_s: Sequence[float], errors: int, seconds: float, generator_cpu: float
) -> Result:
    """Rate and percentiles of one interval."""
    ordered = sorted(latencies_s)
    count = len(ordered)
    good = count - errors
    return Result(
        requests=count,
        errors=errors,
        seconds=seconds,
        rate=good / seconds,
        p50_ms=ordered[count // 2] * 1000,
        p99_ms=ordered[min(count - 1, count * 99 // 100)] * 1000,
        generator_cpu=generator_cpu,
    )
