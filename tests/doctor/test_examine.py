"""The rules as a whole: their order, what lasts, what a diagnosis shows, and that all are proven."""

from __future__ import annotations

import re
from pathlib import Path

from rmqha.doctor.diagnosis import Diagnosis, Found, Severity, code_of
from rmqha.doctor.examine import RULES, diagnose, is_wrong, lasting
from tests.doctor.healthy import HANGS, HEALTHY, conf, config, silent

HERE = Path(__file__).parent
OPERATIONS = HERE.parents[1] / "docs" / "OPERATIONS.md"
ROW = re.compile(r"^\| `([a-z-]+)` \| (error|warning|note) \| (.+) \|$", re.MULTILINE)
FOUND = Found("broker-a", "it hurts", "so they say", "wait")


def diagnosis(code: str, severity: Severity = Severity.ERROR, what: str = "") -> Diagnosis:
    """One about broker-a."""
    return Diagnosis(severity, code, Found("broker-a", what, "", ""))


def test_rules_when_counted_then_each_has_a_test_that_names_it() -> None:
    """A rule that no test makes speak may be one that never does."""
    tests = "".join(path.read_text() for path in sorted(HERE.glob("test_diagnoses_*.py")))
    assert [code_of(rule) for rule in RULES if f'"{code_of(rule)}"' not in tests] == []
    assert len(RULES) > 70


def test_operations_when_read_then_its_table_has_every_diagnosis_and_no_other() -> None:
    """An operator looks a code up, and finds what the rule itself says of it."""
    rows = ROW.findall(OPERATIONS.read_text())
    assert rows == [
        (code_of(rule), severity.name.lower(), (rule.__doc__ or "").strip().splitlines()[0])
        for rule, severity in RULES.items()
    ]


def test_diagnoses_when_there_are_several_then_the_gravest_is_first() -> None:
    facts = conf(config(2, silent(3, HANGS), allAckInSyncStateSet="false"), brokerRole="SLAVE")
    found = [(one.severity.name, one.code) for one in diagnose(facts)]
    assert found == [
        ("ERROR", "broker-hangs"),
        ("WARNING", "replicas-configured-differently"),
        ("NOTE", "role-in-config"),
    ]


def test_diagnosis_when_it_is_shown_then_all_of_it_is_there() -> None:
    one = Diagnosis(Severity.WARNING, "some-code", FOUND)
    assert one.members() == {
        "severity": "WARNING", "code": "some-code", "subject": "broker-a", "what": "it hurts",
        "why": "so they say", "nextStep": "wait",
    }  # fmt: skip
    assert one.text().splitlines() == [
        "WARNING some-code: broker-a",
        "  what: it hurts", "  why:  so they say", "  next: wait",
    ]  # fmt: skip


def test_lasting_when_looks_differ_then_only_what_all_have_is_told_in_the_last_words() -> None:
    """A failover that is under way ends by itself; telling of it would have somebody act."""
    first = [diagnosis("a", what="at first"), diagnosis("b")]
    last = [diagnosis("a", what="at last"), diagnosis("c")]
    assert [(one.code, one.found.what) for one in lasting([first, last])] == [("a", "at last")]
    assert lasting([first]) == first
    assert lasting([first, [], first]) == []
    assert lasting([]) == []


def test_lasting_when_one_look_proves_it_then_the_next_one_need_not_see_it() -> None:
    """Two processes of one id take each other's place: one look in two saw both."""
    twice = diagnosis("broker-id-twice")
    other = diagnosis("broker-hangs")
    for looks in ([[twice], []], [[], [twice]], [[twice, other], [other], []]):
        assert lasting(looks) == [twice]
    assert lasting([[twice, other], [other]]) == [twice, other]
    later = diagnosis("broker-id-twice", what="at last")
    assert lasting([[twice], [later]]) == [later]


def test_notes_when_there_is_nothing_else_then_nothing_is_wrong() -> None:
    assert not is_wrong([diagnosis("a", Severity.NOTE)])
    assert is_wrong([diagnosis("a", Severity.NOTE), diagnosis("b", Severity.WARNING)])
    assert not is_wrong(diagnose(HEALTHY))
