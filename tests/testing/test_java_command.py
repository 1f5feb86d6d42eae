"""How the real RocketMQ is started."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.testing.real import maven
from rmqha.testing.real.java import java_command

TEMPORARY = "-Djava.io.tmpdir="


@pytest.mark.parametrize("more", [(), (f"{TEMPORARY}/elsewhere",)])
def test_command_when_made_then_temporary_files_go_to_its_home_or_where_an_option_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, more: tuple[str, ...]
) -> None:
    """Of two settings of one property Java takes the last."""
    monkeypatch.setattr(maven, "java", lambda: "java")
    monkeypatch.setattr(maven, "classpath", lambda _version: "some.jar")
    command = java_command("5.3.3", tmp_path / "home", "Main", ["-c", "file"], ("-Xmx1m", *more))
    *_, last = [one for one in command if one.startswith(TEMPORARY)]
    assert last == (more[0] if more else f"{TEMPORARY}{tmp_path / 'home'}")
    assert (tmp_path / "home").is_dir(), "Java makes no such folder"
    assert command[0] == "java"
    assert command[-4:] == ["some.jar", "Main", "-c", "file"]
