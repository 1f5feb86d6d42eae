"""What a diagnosis says, and what a rule is: a function from the facts to what is wrong.

Rules are pure and know nothing of each other; ``examine`` runs them all. A rule's code is its
function's name, so that a diagnosis leads to the lines that made it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import IntEnum

from msgspec import Struct

from rmqha.doctor.facts import Facts

NAMED_MAX = 5
"""So many of several names stand in a diagnosis."""


class Severity(IntEnum):
    """How bad it is: the gravest comes first, and a note is nothing wrong."""

    ERROR = 0
    WARNING = 1
    NOTE = 2


class Found(Struct, frozen=True):
    """What a rule has to say about one subject.

    Attributes:
        subject: which broker set, node, file or key.
        what: what is wrong, with the figures.
        why: how that is known, or what follows from it.
        next_step: what an operator can do next without losing anything.
    """

    subject: str
    what: str
    why: str
    next_step: str


class Diagnosis(Struct, frozen=True):
    """A :class:`Found` with its severity, and the code by which documents and alerts name it."""

    severity: Severity
    code: str
    found: Found

    @property
    def key(self) -> tuple[str, str]:
        """What makes it the same diagnosis at another look."""
        return self.code, self.found.subject

    def members(self) -> dict[str, str]:
        """The members of an object of ``--json``."""
        found = self.found
        return {
            "severity": self.severity.name, "code": self.code, "subject": found.subject,
            "what": found.what, "why": found.why, "nextStep": found.next_step,
        }  # fmt: skip

    def text(self) -> str:
        """Four lines for people."""
        found = self.found
        return (
            f"{self.severity.name} {self.code}: {found.subject}\n"
            f"  what: {found.what}\n  why:  {found.why}\n  next: {found.next_step}\n"
        )


Rule = Callable[[Facts], Iterator[Found]]


def code_of(rule: Rule) -> str:
    """The code of a rule's diagnoses: its name with hyphens."""
    return rule.__name__.replace("_", "-")
