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
