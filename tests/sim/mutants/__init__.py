"""Bugs put in on purpose: ``MUTANTS`` are all of them, by the file that they are put into."""

from __future__ import annotations

from tests.sim.mutants import metadata, raft, standstills, storage
from tests.sim.mutants.mutant import Found, Mutant, search

MUTANTS = (*raft.MUTANTS, *standstills.MUTANTS, *storage.MUTANTS, *metadata.MUTANTS)

__all__ = ["MUTANTS", "Found", "Mutant", "search"]
