"""No bytes from outside end a process: every decoder gives a value or raises its documented error.

Two ways to make inputs: coverage-guided by atheris where that is installed (``guided.py``), and by
plain mutations of the corpus everywhere. Both follow a seed.
"""

from __future__ import annotations

import importlib.util
import os
import random
import subprocess
import sys
import time
import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.fuzz.mutations import inflated, mutated
from tests.fuzz.planted import decode as planted_decode
from tests.fuzz.target import CORPUS, INPUT_BYTES_MAX, Target
from tests.fuzz.targets import TARGETS, by_name

ROOT = Path(__file__).resolve().parent.parent.parent
INPUTS = 100_000
GUIDED_INPUTS = 50_000
GUIDED_S_MAX = 380
"""Ten times what it takes on a machine that does nothing else."""
CORPUS_BYTES_MAX = 512 << 10
IDS = [one.name for one in TARGETS]
BIG = 64 << 10
NOTICED_S = 0.1
"""What takes less is not compared."""
AGAIN = 2
MEMORY_MIN = 2 << 20
FACTOR = 120
"""Bytes of memory for a byte of input: an item of a list that says the least takes so much."""


def test_corpus_when_decoded_then_values_or_documented_errors() -> None:
    """What was found once stays found; seeds are read, so that their mutations come far."""
    size = 0
    for target in TARGETS:
        assert any(target.run(seed) for seed in target.seeds), target.name
        for data in target.corpus():
            target.run(data)
            assert len(data) <= INPUT_BYTES_MAX, target.name
    for path in CORPUS.glob("*.txt"):
        assert path.stem in IDS, path
        size += path.stat().st_size
    assert size <= CORPUS_BYTES_MAX


@pytest.mark.slow
@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_decoder_when_inputs_are_mutated_then_values_or_documented_errors(target: Target) -> None:
    """The same inputs in every run."""
    rng = random.Random(f"{target.name} 1")
    corpus = target.corpus()
    for _ in range(INPUTS // len(TARGETS) + 1):
        run(target, mutated(rng, corpus))


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("target", TARGETS, ids=IDS)
def test_decoder_when_an_input_is_large_then_time_and_memory_are_bounded(target: Target) -> None:
    """A part of an input again and again: what nests, what is counted twice, what is searched anew."""
    corpus = target.corpus()
    inputs = (inflated(random.Random(f"{target.name} 2"), corpus, size) for size in (BIG // 8, BIG))
    for number, (small, large) in enumerate(zip(*inputs, strict=True)):
        took_s = seconds(target, large)
        if took_s > NOTICED_S:
            # Eight times as much would take 64 times as long by the square. What took its time for
            # another reason (a collection of all that the tests before left) does so once.
            took_s = min(took_s, *(seconds(target, large) for _ in range(AGAIN)))
            assert took_s < 24 * seconds(target, small) + NOTICED_S, (
                f"{took_s:.1f} s: {large[:200]!r}"
            )
        if number % 6 == 0:
            peak = peak_bytes(target, large)
            assert peak < FACTOR * len(large) + MEMORY_MIN, f"{peak} bytes: {large[:200]!r}"


def seconds(target: Target, data: bytes) -> float:
    """Processor time of a decoder."""
    began_s = time.process_time()
    run(target, data)
    return time.process_time() - began_s


def peak_bytes(target: Target, data: bytes) -> int:
    """Memory that a decoder has at once; looking makes it ten times as slow."""
    tracemalloc.start()
    try:
        run(target, data)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def run(target: Target, data: bytes) -> None:
    """Decode; what must not be raised says for which bytes it was."""
    try:
        target.run(data)
    except Exception as error:
        error.add_note(f"{target.name}: {data[:400].hex()}, {len(data)} bytes")
        raise


def guided(name: str, runs: int) -> subprocess.CompletedProcess[str]:
    """Run atheris in a process of its own, which libFuzzer ends; alike in every run of one commit."""
    if importlib.util.find_spec("atheris") is None:
        pytest.skip("atheris is not installed")
    command = [sys.executable, "-m", "tests.fuzz.guided", name, "--runs", str(runs)]
    return subprocess.run(
        command, capture_output=True, text=True, cwd=ROOT, timeout=GUIDED_S_MAX, check=False,
        env={**os.environ, "PYTHONHASHSEED": "0"},
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(GUIDED_S_MAX + 20)
def test_decoders_when_fuzzed_by_coverage_then_values_or_documented_errors() -> None:
    """All decoders in one process: the first byte of an input says whose it is."""
    done = guided("all", GUIDED_INPUTS)
    assert done.returncode == 0, done.stderr[-4000:]
    assert f"number_of_executed_units: {GUIDED_INPUTS}" in done.stderr


@pytest.mark.slow
@pytest.mark.timeout(GUIDED_S_MAX + 20)
def test_fuzzer_when_a_mistake_is_planted_then_found_by_coverage() -> None:
    """Five conditions, one behind the other, that chance alone does not fulfil."""
    done = guided("planted", 500_000)
    assert done.returncode != 0
    assert "IndexError" in done.stdout + done.stderr
    assert "found in planted: 524d5107" in done.stderr


def test_mutations_when_a_mistake_is_planted_then_found_with_a_seed_beside_it() -> None:
    """Without coverage a seed has to stand near; the documented error is no find."""
    rng, found = random.Random(1), 0
    for _ in range(2_000):
        data = mutated(rng, [b"RMQ\x07\x02abcd"])
        try:
            by_name("planted").run(data)
        except IndexError:
            found += 1
    assert found > 20
    with pytest.raises(IndexError):
        planted_decode(b"RMQ\x07\xff")


def test_inputs_when_made_again_then_the_same() -> None:
    """A failure is found again by the same run."""

    def some() -> Iterator[bytes]:
        rng, corpus = random.Random(5), TARGETS[0].corpus()
        yield from (mutated(rng, corpus) for _ in range(50))
        yield from inflated(rng, corpus[:3], 1000)

    first = list(some())
    assert first == list(some())
    assert len(set(first)) > 40
