"""Known bugs of Java's controller and brokers, put into ours: ``MUTANTS`` by the numbers of docs/known-java-bugs.md."""

from __future__ import annotations

from tests.javabugs import elections, group, liveness, replication, sets
from tests.javabugs.mutant import Mutant

MUTANTS: tuple[Mutant, ...] = (
    *liveness.MUTANTS,
    *elections.MUTANTS,
    *sets.MUTANTS,
    *group.MUTANTS,
    *replication.MUTANTS,
)

__all__ = ["MUTANTS", "Mutant"]
