"""The words for what an attack has done: each harm is named, and nothing else is."""

from __future__ import annotations

import pytest

from tests.attacks.catalog import ATTACKS
from tests.bench.attack_outcome import Outcome, silences, words
from tests.bench.bench_attacks import LEAVES_SOMETHING, RESTARTS
from tests.bench.honest import Account, Samples

BEFORE = "leader n0, master 1 in epoch 1"


def tally(**changed: object) -> dict[str, object]:
    return {"sent": 5, "read_bytes": 0, "answers": {"16": 5}, **changed}


def outcome(**changed: object) -> Outcome:
    fields: dict[str, object] = {
        "tally": tally(), "routes": (100, 0), "silence_s": {"send": 0.2, "105": 0.1, "1004": 0.1},
        "added_mib": {"broker1": 3.0}, "lost": (0, 400), "http_s": 0.1, "restarts": True, **changed,
    }  # fmt: skip
    return Outcome(**fields)  # type: ignore[arg-type]  # they are its fields


def test_attack_that_nobody_notices_did_nothing() -> None:
    """Whatever the attack."""
    assert {words(name, outcome()) for name in ATTACKS} == {"nothing"}


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"tally": None}, "**the attacker failed**"),
        ({"ended": ("namesrv",)}, "**ended: namesrv**"),
        ({"lost": (3, 400)}, "**3 of 400 acknowledged lost**"),
        ({"lost": (400, 400)}, "**nothing that was acknowledged can be read**"),
        ({"changes": [f"{BEFORE} -> leader n2, master 1 in epoch 1"]}, "**leader fell**"),
        ({"changes": [f"{BEFORE} -> leader n0, master 2 in epoch 2"]},
         "**master 1 in epoch 1 -> master 2 in epoch 2**"),
        ({"routes": (100, 25)}, "**route without its master in 25 % of looks**"),
        ({"restarts": False}, "**a replica that was restarted did not come back**"),
        ({"is_well": False}, "**not in sync again within 30 s**"),
        ({"silence_s": {"send": 4.0}}, "no sends for 4.00 s"),
        ({"silence_s": {"105": 2.0}}, "no routes for 2.00 s"),
        ({"added_mib": {"namesrv": 120.0}}, "namesrv +120 MiB"),
    ],
)  # fmt: skip
def test_harm_is_named(changed: dict[str, object], said: str) -> None:
    """And nothing besides."""
    assert words("floods", outcome(**changed)) == said


def test_what_was_taken_is_named() -> None:
    """Bytes of the log, and requests that should have been refused."""
    copied = outcome(tally=tally(read_bytes=1_000_000))
    assert words("stand-in-slave", copied) == "log copied (1000 KB)"
    slow = outcome(http_s=5.0)
    assert words("slow-readers", slow) == "exporter silent for 5.00 s"
    assert words("floods", slow) == "nothing"
    granted = outcome(tally=tally(answers={"0": 3, "16": 1}))
    assert words("configuration", granted) == "3 of 4 granted"
    assert words("floods", granted) == "nothing"


def test_silence_is_the_longest_time_without_a_success() -> None:
    """Calls that are refused at once are as silent as those that hang."""
    samples = Samples([0.0, 1.0, 2.0, 3.0, 4.0], [10.0, 10.0, -1.0, -1.0, 10.0])
    found = silences(Account(samples={"send": samples, "105": Samples()}), 0.0, 5.0)
    assert found["send"] == pytest.approx(3.0)
    assert found["105"] == 5.0


def test_names_are_those_of_attacks() -> None:
    """A misspelt one would restart nobody."""
    assert set(ATTACKS) >= LEAVES_SOMETHING | RESTARTS
