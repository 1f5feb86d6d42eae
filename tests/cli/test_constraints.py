"""``constraints.txt``: one release of each library, for installations that are all the same."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PYTHONS = ("3.11", "3.12", "3.13")
ASKED = [
    *PROJECT["dependencies"],
    *(one for extra in PROJECT["optional-dependencies"].values() for one in extra),
]


def pins(python: str) -> dict[str, str]:
    """What the file has for a Python on Linux: the release of each library.

    Raises:
        ValueError: a line is no pin, or a second one for the same library.
    """
    machine = {
        "python_version": python, "python_full_version": f"{python}.0", "sys_platform": "linux",
        "platform_system": "Linux", "platform_machine": "x86_64", "os_name": "posix",
        "implementation_name": "cpython", "platform_python_implementation": "CPython",
    }  # fmt: skip
    found: dict[str, str] = {}
    lines = (ROOT / "constraints.txt").read_text().splitlines()
    for line in (one for one in lines if one and not one.startswith("#")):
        pin = Requirement(line)
        (release,) = pin.specifier
        if release.operator != "==":
            raise ValueError(f"{line} is no pin")
        if pin.marker is not None and not pin.marker.evaluate(machine):
            continue
        if found.setdefault(canonicalize_name(pin.name), release.version) != release.version:
            raise ValueError(f"{pin.name} has two releases for Python {python}")
    return found


@pytest.mark.few
@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("asked", sorted(set(ASKED)))
def test_requirement_when_pinned_then_the_pin_is_one_that_it_takes(asked: str, python: str) -> None:
    """A requirement that was raised without the file makes ``pip install -c`` fail for everybody."""
    wanted = Requirement(asked)
    if canonicalize_name(wanted.name) == PROJECT["name"]:
        pytest.skip("an extra of this project")
    if wanted.marker is not None and not wanted.marker.evaluate({"python_version": python}):
        pytest.skip("not for this machine")
    release = pins(python).get(canonicalize_name(wanted.name))
    assert release is not None, f"{wanted.name} has no pin: make constraints.txt anew"
    assert wanted.specifier.contains(release, prereleases=True), f"{asked}: {release} is pinned"


def test_pins_when_read_then_none_has_an_index_or_a_path() -> None:
    """They must hold wherever packages come from."""
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert not [line for line in text.splitlines() if line.startswith("-")]
