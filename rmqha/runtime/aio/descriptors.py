"""How many descriptors this process may have, and how many of them connections may take.

A process without a free descriptor can open neither its next log file nor a snapshot, so whoever
connects must not be able to take the last ones. Source: getrlimit(2), proc_pid_fd(5).
"""

from __future__ import annotations

import os
import resource

CONNECTIONS_LEAST = 8
"""So many are let in however low the limit is: without any a server is of no use."""

UNKNOWN_IN_USE = 32
"""Taken for the number in use where the system does not tell."""

COMMON_MAX = 10_240
"""What systems allow that name no hard limit, and refuse more than this (macOS)."""


def raise_limit() -> int:
    """Raise the soft limit to the hard one, as far as the system lets us; the limit in force."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    for wanted in (hard, COMMON_MAX):
        if soft == resource.RLIM_INFINITY or soft >= wanted > 0:
            break
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
            soft = wanted
            break
        except (OSError, ValueError):
            continue
    return COMMON_MAX if soft == resource.RLIM_INFINITY else soft


def count_in_use() -> int:
    """Descriptors that are open now."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return UNKNOWN_IN_USE


def connections_that_fit(wanted: int, *, limit: int, in_use: int, files: int, ports: int) -> int:
    """How many connections each port may have.

    Args:
        wanted: by the configuration.
        limit: descriptors that the process may have.
        in_use: that are open already.
        files: kept for files, and for connections that the process itself makes.
        ports: that share the rest.
    """
    return min(wanted, max(CONNECTIONS_LEAST, (limit - in_use - files) // ports))
