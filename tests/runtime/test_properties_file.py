"""A properties file that several write: nobody's change is lost, whatever fails."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from rmqha.base.errors import DiskFailed
from rmqha.runtime.aio.machine import MACHINE
from rmqha.runtime.aio.properties_file import PropertiesFile
from rmqha.runtime.properties import parse_properties

WHOLE = {"a": "1", "b": "1", "c": "1"}


def of(path: Path, *, is_edited: bool = True) -> PropertiesFile:
    """The file on this machine's disk."""
    return PropertiesFile(MACHINE.disk(), str(path), is_edited=is_edited)


def nothing() -> dict[str, str]:
    """For a file that is there."""
    raise AssertionError("asked for everything")


async def test_file_when_edited_then_what_others_have_written_meanwhile_stays(
    tmp_path: Path,
) -> None:
    """An operator prepares the next restart while another one sends a request."""
    path = tmp_path / "own.conf"
    path.write_text("# a remark\na=1\nb=1\n")
    file = of(path)
    file.take({"a": "2"})
    path.write_text("# a remark\na=1\nb=9\n")
    await file.write(nothing)
    assert path.read_text() == "# a remark\na=2\nb=9\n"
    path.write_text("# a remark\na=3\nb=9\n")
    file.take({"b": "4"})
    await file.write(nothing)
    assert parse_properties(path.read_text()) == {"a": "3", "b": "4"}


async def test_file_when_it_is_a_copy_or_gone_then_everything_is_written(tmp_path: Path) -> None:
    """Of a copy nobody knows how old it is."""
    copy, gone = tmp_path / "copy", tmp_path / "not" / "there"
    copy.write_text("a=0\nold=1\n")
    for file in (of(copy, is_edited=False), of(gone)):
        file.take({"a": "1"})
        await file.write(lambda: WHOLE)
    assert parse_properties(copy.read_text()) == parse_properties(gone.read_text()) == WHOLE


async def test_change_when_it_was_not_written_then_the_next_write_has_it(tmp_path: Path) -> None:
    """It counts already; but one that does not count is not tried again."""
    folder = tmp_path / "folder"
    folder.write_text("in the way")
    path = folder / "own.conf"
    file = of(path)
    file.take({"a": "2"})
    with pytest.raises((DiskFailed, OSError)):
        await file.write(lambda: WHOLE)
    with pytest.raises((DiskFailed, OSError)):
        await file.change({"c": "9"})
    folder.unlink()
    folder.mkdir()
    path.write_text("a=1\nc=1\n")
    file.take({"b": "2"})
    await file.write(nothing)
    assert parse_properties(path.read_text()) == {"a": "2", "b": "2", "c": "1"}


async def test_change_when_the_file_was_read_again_since_it_failed_then_it_is_not_tried_again(
    tmp_path: Path,
) -> None:
    """SIGHUP: what an operator has written into the file counts now."""
    path = tmp_path / "own.conf"
    path.write_text("a=3\n")
    file = of(path)
    file.take({"a": "2", "b": "2"})
    file.forget({"a": "3"})
    await file.write(nothing)
    assert parse_properties(path.read_text()) == {"a": "3", "b": "2"}


async def test_writers_when_many_then_none_writes_over_another(tmp_path: Path) -> None:
    """Each reads the file, and writes it: two that did so at once lost one change of two."""
    path = tmp_path / "own.conf"
    path.write_text("")
    file = of(path)
    await asyncio.gather(*(file.change({f"k{number}": "1"}) for number in range(20)))
    assert len(parse_properties(path.read_text())) == 20


async def test_file_when_its_link_is_switched_then_the_next_write_goes_where_it_leads(
    tmp_path: Path,
) -> None:
    """A release is switched, and the next start reads what the link leads to by then."""
    for name in ("v1", "v2"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "own.conf").write_text("a=1\n")
    link = tmp_path / "current"
    link.symlink_to("v1")
    file = of(link / "own.conf")
    link.unlink()
    link.symlink_to("v2")
    await file.change({"a": "2"})
    assert (tmp_path / "v1" / "own.conf").read_text() == "a=1\n"
    assert (tmp_path / "v2" / "own.conf").read_text() == "a=2\n"
    single = tmp_path / "single.conf"
    single.symlink_to("v1/own.conf")
    await of(single).change({"a": "3"})
    assert single.is_symlink()
    assert (tmp_path / "v1" / "own.conf").read_text() == "a=3\n"
