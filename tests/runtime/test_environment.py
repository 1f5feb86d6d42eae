"""Settings from the environment."""

from __future__ import annotations

import pytest

from rmqha.broker.common.settings import SETTINGS as BROKER
from rmqha.controller.settings import DEFAULTS as CONTROLLER
from rmqha.namesrv.settings import DEFAULTS as NAMESRV
from rmqha.runtime.environment import not_from, overlaid, settings_of

KNOWN = ("listenPort", "raftSecret", "logLevel")


def test_environment_when_it_has_settings_then_they_and_nothing_else_are_taken() -> None:
    """PATH and the variables that Kubernetes makes of services are no settings."""
    environment = {"PATH": "/bin", "listenPort": "1", "raftSecret": "s", "LISTENPORT": "2"}
    assert settings_of(environment, KNOWN) == {"listenPort": "1", "raftSecret": "s"}


@pytest.mark.parametrize("text", ["", " "])
def test_variable_when_it_is_empty_then_it_is_none(text: str) -> None:
    """An optional key of a ConfigMap comes as an empty text; the file's value counts."""
    assert settings_of({"logLevel": text}, KNOWN) == {}


def test_overlay_when_both_have_a_key_then_the_environment_counts_and_comes_last() -> None:
    """Last, since of a setting and its other name in one file the later one counts."""
    found = overlaid({"listenPort": "1", "other": "2"}, {"listenPort": "3"})
    assert list(found.items()) == [("other", "2"), ("listenPort", "3")]


def test_file_when_the_environment_says_the_same_then_it_is_noted_all_the_same() -> None:
    """Written anew, the file keeps what it had of its own; the variable may be gone by the next start."""
    in_file = {"same": "1", "other": "2", "own": "3"}
    properties = {"same": "1", "other": "4", "own": "3", "new": "5"}
    assert not_from(in_file, properties, ["same", "other"]) == {
        "same": "1",
        "other": "2",
        "new": None,
    }


@pytest.mark.parametrize("settings", [BROKER, CONTROLLER, NAMESRV])
def test_settings_when_named_then_no_variable_of_a_shell_is_called_so(settings: set[str]) -> None:
    """A variable that is there for another reason must not change a server."""
    assert [key for key in settings if key.isupper() or (key.islower() and "." not in key)] == []
