"""What the servers have in common: why they end, and with which code."""

from __future__ import annotations

import pytest

from rmqha.base.errors import (
    ConfigInvalid,
    DiskFailed,
    DiskFull,
    StoreCorrupted,
    StoreInUse,
    StoreMismatch,
)
from rmqha.cli.process import (
    EXIT_CONFIG,
    EXIT_FAILED,
    EXIT_PORT,
    EXIT_STORE,
    Opening,
    exit_code,
    make_room,
)
from rmqha.runtime.aio import descriptors
from rmqha.runtime.logs import Logger

CODES: list[tuple[type[BaseException], int]] = [
    *((one, EXIT_STORE) for one in (DiskFailed, DiskFull, StoreCorrupted, StoreInUse, StoreMismatch)),
    (FileNotFoundError, EXIT_STORE),
    (ConfigInvalid, EXIT_CONFIG),
    (OSError, EXIT_PORT), (PermissionError, EXIT_PORT),
    (RuntimeError, EXIT_FAILED), (AssertionError, EXIT_FAILED),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "code"), CODES)
def test_error_when_it_ends_a_process_then_the_code_says_what_kind_it_is(
    kind: type[BaseException], code: int
) -> None:
    """Supervisors restart after some codes, and not after a configuration that stays wrong."""
    assert exit_code(kind("reason")) == code


@pytest.mark.parametrize(("kind", "code"), [one for one in CODES if one[1] != EXIT_FAILED])
def test_opening_when_something_goes_wrong_then_only_a_port_is_listened_on(
    kind: type[BaseException], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    """The line that an operator reads first."""
    with Opening("mqbroker", "a:1 (listenPort)") as opening:
        raise kind("reason")
    assert opening.code == code
    where = "cannot listen on a:1 (listenPort): " if code == EXIT_PORT else ""
    assert capsys.readouterr().err == f"mqbroker: {where}reason\n"


def test_opening_when_nobody_knows_what_went_wrong_then_the_error_goes_on() -> None:
    """Its traceback is all that there is to go by."""
    with pytest.raises(RuntimeError), Opening("mqbroker"):
        raise RuntimeError("reason")


@pytest.mark.parametrize(("of_store", "ports", "fitting"), [(False, 1, 942), (True, 2, 245)])
def test_room_when_descriptors_are_shared_then_a_store_has_half_of_them(
    monkeypatch: pytest.MonkeyPatch, of_store: bool, ports: int, fitting: int
) -> None:
    """Connections that take what a broker's files need stop its writes."""
    monkeypatch.setattr(descriptors, "raise_limit", lambda: 1_000)
    monkeypatch.setattr(descriptors, "count_in_use", lambda: 10)
    assert make_room(Logger(), 50_000, ports=ports, of_store=of_store) == fitting
