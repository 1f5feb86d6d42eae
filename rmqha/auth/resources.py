"""What is protected, and what may be done with it.

Source: Resource, ResourceType, ResourcePattern and Action of RocketMQ 5.3.3, module auth.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from msgspec import Struct

from rmqha.remoting.topic_names import RETRY_PREFIX

NamedT = TypeVar("NamedT", bound=StrEnum)

ALL_NAMES = "*"


class ResourceType(StrEnum):
    """Kinds of resources, as they are written; ``ANY`` stands for all of them."""

    ANY = "Any"
    CLUSTER = "Cluster"
    NAMESPACE = "Namespace"
    TOPIC = "Topic"
    GROUP = "Group"


class Pattern(StrEnum):
    """How a resource's name is meant."""

    ANY = "ANY"
    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"


class Action(StrEnum):
    """What may be done, as it is written."""

    ALL = "All"
    ANY = "Any"
    PUB = "Pub"
    SUB = "Sub"
    CREATE = "Create"
    UPDATE = "Update"
    DELETE = "Delete"
    GET = "Get"
    LIST = "List"


class Resource(Struct, frozen=True):
    """One resource, or all those that a pattern stands for.

    Attributes:
        name: the whole name, or how names begin; empty for ``Pattern.ANY``.
    """

    kind: ResourceType
    name: str
    pattern: Pattern = Pattern.LITERAL

    @property
    def key(self) -> str:
        """As people write it: ``Topic:orders``, ``Group:shop*``, ``Topic:*``, ``*``."""
        if self.kind is ResourceType.ANY:
            return ALL_NAMES
        star = "" if self.pattern is Pattern.LITERAL else ALL_NAMES
        return f"{self.kind}:{self.name}{star}"

    def matches(self, asked: Resource) -> bool:
        """Whether the literal resource of a request is one of these."""
        if self.kind is ResourceType.ANY:
            return True
        if self.kind is not asked.kind:
            return False
        if self.pattern is Pattern.ANY:
            return True
        if self.pattern is Pattern.LITERAL:
            return self.name == asked.name
        return asked.name.startswith(self.name)

    @property
    def rank(self) -> tuple[int, int, int]:
        """The smallest of those that match a request counts: literal, longest prefix, any."""
        return (
            self.kind is ResourceType.ANY,
            (Pattern.LITERAL, Pattern.PREFIXED, Pattern.ANY).index(self.pattern),
            -len(self.name),
        )


def parse_resource(key: str) -> Resource | None:
    """Read what :attr:`Resource.key` writes; None for what is none."""
    if key == ALL_NAMES:
        return Resource(ResourceType.ANY, "", Pattern.ANY)
    kind_text, _, name = key.partition(":")
    kind = named(ResourceType, kind_text)
    if kind is None:
        return None
    if name == ALL_NAMES:
        return Resource(kind, "", Pattern.ANY)
    if name.endswith(ALL_NAMES):
        # Java's prefix, too, ends before the first asterisk.
        return Resource(kind, name.partition(ALL_NAMES)[0], Pattern.PREFIXED)
    return Resource(kind, name)


def named(names: type[NamedT], text: str | None) -> NamedT | None:
    """The member that is written so, in any case of letters; None without one."""
    return next((one for one in names if text is not None and one.lower() == text.lower()), None)


def topic(name: str) -> Resource:
    """A topic; a retry topic is its group."""
    return group(name) if name.startswith(RETRY_PREFIX) else Resource(ResourceType.TOPIC, name)


def group(name: str) -> Resource:
    """A group, also by the name of its retry topic."""
    return Resource(ResourceType.GROUP, name.removeprefix(RETRY_PREFIX))
