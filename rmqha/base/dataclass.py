"""``dataclass`` as the standard library has it, made in a tenth of its time.

A process of rmqha has some 170 dataclasses, nearly all of them frozen and with slots. The standard
library compiles six functions for each: the classes alone were a third of the time that a broker,
or a test's first cluster, needed to start. Here ``__init__`` is compiled once for all classes of one
shape; comparing, hashing, printing and refusing is the same code for all. Type checkers see the
original.

Whatever is out of the ordinary is given to the original: bases, ``__post_init__``, class variables,
fields that are more than a default or a factory. A test holds the two equal.
"""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Mapping
from functools import cache
from operator import attrgetter
from types import CellType, CodeType, FunctionType
from typing import TYPE_CHECKING, Any

_FROM_FACTORY: Any = object()
"""The default of a parameter whose value a factory makes."""
_NO_FIELDS = "ClassVar", "InitVar", "KW_ONLY"


def _dataclass(
    cls: type | None = None, *, frozen: bool = False, slots: bool = False, eq: bool = True
) -> Any:
    """See ``dataclasses.dataclass``."""
    if cls is None:
        return lambda found: _dataclass(found, frozen=frozen, slots=slots, eq=eq)
    annotations: dict[str, str] = cls.__dict__.get("__annotations__", {})
    given = {name: cls.__dict__[name] for name in annotations if name in cls.__dict__}
    if not slots or _is_unusual(cls, annotations, given):
        return dataclasses.dataclass(cls, frozen=frozen, slots=slots, eq=eq)
    names = tuple(annotations)
    members = {
        name: value
        for name, value in cls.__dict__.items()
        if name not in given and name not in ("__dict__", "__weakref__")
    }
    members["__slots__"] = members["__match_args__"] = names
    members["__dataclass_fields__"] = _Original("__dataclass_fields__", given)
    members["__dataclass_params__"] = _Original("__dataclass_params__", given)
    members.setdefault("__repr__", _repr)
    if eq:
        values = _values(names)
        members.setdefault("__eq__", _equality(values))
        # A class that has __eq__ has the member __hash__ already, as None.
        members["__hash__"] = members.get("__hash__") or (_hashing(values) if frozen else None)
    if frozen:
        members["__setattr__"], members["__delattr__"] = _refuse_to_set, _refuse_to_delete
        members["__getstate__"], members["__setstate__"] = _state, _set_state
    made = type(cls.__name__, (), members)
    made.__qualname__ = cls.__qualname__
    made.__init__ = _init(made, annotations, given, frozen=frozen)  # type: ignore[misc]
    return made


if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    dataclass = _dataclass


def _is_unusual(cls: type, annotations: Mapping[str, str], given: Mapping[str, Any]) -> bool:
    members = cls.__dict__
    if cls.__bases__ != (object,) or type(cls) is not type:
        return True
    if not {"__slots__", "__init__", "__post_init__"}.isdisjoint(members):
        return True
    if any(word in str(kind) for kind in annotations.values() for word in _NO_FIELDS):
        return True
    # The original says what is wrong with a default that no class may have.
    if tuple(given) != tuple(annotations)[len(annotations) - len(given) :]:
        return True
    return any(
        not _is_plain_factory(value)
        if isinstance(value, dataclasses.Field)
        else value.__class__.__hash__ is None
        for value in given.values()
    )


def _is_plain_factory(field: dataclasses.Field[Any]) -> bool:
    usual = field.init and field.repr and field.compare and field.hash is None
    return (
        usual
        and field.default_factory is not dataclasses.MISSING
        and field.kw_only is dataclasses.MISSING
        and not field.metadata
    )


def _init(
    cls: type, annotations: Mapping[str, str], given: Mapping[str, Any], *, frozen: bool
) -> Callable[..., None]:
    """``__init__``; of a frozen class it sets the slots themselves."""
    names = tuple(annotations)
    factories = [isinstance(given.get(name), dataclasses.Field) for name in names]
    outer: dict[str, Any] = {"absent": _FROM_FACTORY}
    for number, name in enumerate(names):
        outer[f"set_{number}"] = cls.__dict__[name].__set__
        if factories[number]:
            outer[f"make_{number}"] = given[name].default_factory
    code = _template(tuple(factories), frozen)
    code = code.replace(
        co_varnames=("self", *names),
        co_names=tuple(names[int(word[2:])] for word in code.co_names),
    )
    module = sys.modules.get(cls.__module__)
    made: Any = FunctionType(
        code,
        {} if module is None else module.__dict__,
        "__init__",
        tuple(_FROM_FACTORY if isinstance(value, dataclasses.Field) else value
              for value in given.values()),
        tuple(CellType(outer[word]) for word in code.co_freevars),
    )  # fmt: skip
    made.__annotations__ = {**annotations, "return": None}
    made.__qualname__ = f"{cls.__qualname__}.__init__"
    made.__module__ = cls.__module__
    return made  # type: ignore[no-any-return]


@cache
def _template(factories: tuple[bool, ...], frozen: bool) -> CodeType:
    """``__init__`` of all classes of one shape, compiled once; the fields are called p_0, p_1."""
    count = range(len(factories))
    lines = [
        f"  set_{number}(self, {value})" if frozen else f"  self.p_{number} = {value}"
        for number in count
        for value in (
            f"make_{number}() if p_{number} is absent else p_{number}"
            if factories[number]
            else f"p_{number}",
        )
    ]
    outer = ["absent", *(f"{word}_{number}" for number in count for word in ("set", "make"))]
    text = (
        f"def outer({', '.join(outer)}):\n"
        f" def __init__({', '.join(('self', *(f'p_{number}' for number in count)))}):\n"
        + ("\n".join(lines) or "  pass")
        + "\n return __init__"
    )
    found: dict[str, Any] = {}
    exec(text, found)  # the original does, too
    code: CodeType = found["outer"](*outer).__code__
    return code


class _Original:
    """What ``dataclasses.fields`` and ``replace`` look for: made when they do, by the original."""

    def __init__(self, name: str, given: Mapping[str, Any]) -> None:
        self._name = name
        self._given = given

    def __get__(self, instance: object, owner: type) -> Any:
        parts = [
            (name, kind, self._given[name]) if name in self._given else (name, kind)
            for name, kind in owner.__annotations__.items()
        ]
        made = dataclasses.make_dataclass(owner.__name__, parts, **self._wanted(owner))
        found = getattr(made, self._name)
        setattr(owner, self._name, found)
        return found

    def _wanted(self, owner: type) -> dict[str, Any]:
        if self._name == "__dataclass_params__":
            return {
                "frozen": "__setattr__" in owner.__dict__,
                "eq": "__eq__" in owner.__dict__,
            }
        # Fields are made without any of the functions.
        return {"init": False, "repr": False, "eq": False}


def _values(names: tuple[str, ...]) -> Callable[[Any], Any]:
    """What gives the values of an object's fields as a tuple."""
    if not names:
        return lambda _: ()
    get = attrgetter(*names)
    return get if len(names) > 1 else lambda one: (get(one),)


def _equality(values: Callable[[Any], Any]) -> Callable[[Any, object], Any]:
    def __eq__(self: Any, other: object) -> Any:  # noqa: N807 - it becomes that method
        if other.__class__ is not self.__class__:
            return NotImplemented
        return values(self) == values(other)

    return __eq__


def _hashing(values: Callable[[Any], Any]) -> Callable[[Any], int]:
    def __hash__(self: Any) -> int:  # noqa: N807 - it becomes that method
        return hash(values(self))

    return __hash__


def _repr(self: Any) -> str:
    parts = ", ".join(f"{name}={getattr(self, name)!r}" for name in self.__match_args__)
    return f"{type(self).__qualname__}({parts})"


def _refuse_to_set(self: object, name: str, value: object) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_to_delete(self: object, name: str) -> None:
    raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")


def _state(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _set_state(self: Any, state: list[Any]) -> None:
    for name, value in zip(self.__match_args__, state, strict=True):
        object.__setattr__(self, name, value)
