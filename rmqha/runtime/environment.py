"""Settings from the environment, for where a container is started by somebody else's rules. Pure.

A variable has the name of the setting, as those that rocketmq-operator gives its controllers, and
counts more than the file: what one file says of all replicas differs by the variables of each.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping


def settings_of(environment: Mapping[str, str], known: Collection[str]) -> dict[str, str]:
    """The settings that the environment has; an empty variable is none.

    Args:
        environment: all variables.
        known: names of settings.
    """
    return {key: environment[key] for key in sorted(known) if environment.get(key, "").strip()}


def overlaid(properties: Mapping[str, str], over: Mapping[str, str]) -> dict[str, str]:
    """The properties, with these instead of those of the same name, behind all others."""
    return {key: value for key, value in properties.items() if key not in over} | dict(over)


def not_from(
    in_file: Mapping[str, str], properties: Mapping[str, str], over: Collection[str]
) -> dict[str, str | None]:
    """What the file itself says of the properties that it was not asked for, None for nothing.

    Args:
        in_file: as it was read.
        properties: that count.
        over: the names of those that the environment has; others may be worked out.
    """
    other = (key for key, value in properties.items() if key in over or in_file.get(key) != value)
    return {key: in_file.get(key) for key in other}
