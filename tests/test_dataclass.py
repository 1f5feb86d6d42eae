"""Our ``dataclass`` is the standard library's, whatever a class is like, but for its speed."""

from __future__ import annotations

import copy
import dataclasses
import pickle
import typing
from collections.abc import Callable, Iterable
from dataclasses import FrozenInstanceError, field
from typing import Any, ClassVar, Generic, TypeVar

import pytest

from rmqha.base.dataclass import dataclass

T = TypeVar("T")
Make = Callable[..., Any]
ORIGINAL: Make = dataclasses.dataclass
OURS: Make = dataclass


def _empty(make: Make) -> Any:
    @make(frozen=True, slots=True)
    class Made:
        """Nothing in it."""

    return Made


def _single(make: Make) -> Any:
    @make(frozen=True, slots=True)
    class Made:
        """One field."""

        a: int

    return Made


def _usual(make: Make) -> Any:
    @make(frozen=True, slots=True)
    class Made:
        """With a default, a factory, a method and a property."""

        a: int
        b: str = "b"
        c: list[int] = field(default_factory=list)

        @property
        def both(self) -> str:
            return f"{self.a}{self.b}"

        @classmethod
        def of(cls, a: int) -> Made:
            return cls(a)

    return Made


def _mutable(make: Make) -> Any:
    @make(slots=True)
    class Made:
        """May be changed."""

        a: int
        b: tuple[int, ...] = ()

    return Made


def _without_eq(make: Make) -> Any:
    @make(slots=True, eq=False)
    class Made:
        """One field."""

        a: int

    return Made


def _own_methods(make: Make) -> Any:
    @make(frozen=True, slots=True)
    class Made:
        """Says for itself what it is."""

        a: int

        def __repr__(self) -> str:
            return "mine"

        def __eq__(self, other: object) -> bool:
            return type(other) is type(self)

        def __hash__(self) -> int:
            return 7

    return Made


def _in_a_dict(make: Make) -> Any:
    @make
    class Made:
        """No slots."""

        a: int = 1

    return Made


def _unusual(make: Make) -> Any:
    @make(frozen=True, slots=True)
    class Made:
        """All at once."""

        kind: ClassVar[str] = "k"
        a: int
        b: int = field(default=2, repr=False, compare=False)
        c: int = field(init=False, default=3)

        def __post_init__(self) -> None:
            object.__setattr__(self, "c", self.a + self.b)

    return Made


def _generic(make: Make) -> Any:
    @make(slots=True)
    class Made(Generic[T]):
        """With a base."""

        a: T

    return Made


KINDS = (
    _empty, _single, _usual, _mutable, _without_eq, _own_methods, _in_a_dict, _unusual, _generic,
)  # fmt: skip


def _objects(made: Any) -> Iterable[Any]:
    """Equal ones and different ones, as far as the class takes values."""
    for values in ((), (1,), (1,), (2,), (1, "x"), (1, "b", [1])):
        try:
            yield made(*values)
        except TypeError as error:
            yield str(error).replace(made.__qualname__, "")


def _tried(work: Callable[[], object]) -> object:
    try:
        return work()
    except Exception as error:  # noqa: BLE001 - which one it is, is what is compared
        return type(error), str(error)


def _behaviour(made: Any) -> list[object]:
    """All that can be told of a class and its objects."""
    found: list[object] = [made.__match_args__, made.__doc__]
    found += [(one.name, one.default, one.type) for one in dataclasses.fields(made)]
    found.append(typing.get_type_hints(made.__init__, globals(), {"T": T, "Made": made}))
    found.append(bool(made.__hash__))
    objects = list(_objects(made))
    for one in objects:
        found.append(one if isinstance(one, str) else repr(one))
        if isinstance(one, str):
            continue
        found.append([one == other for other in objects])
        found.append(made.__eq__(one, 1))
        found.append(_tried(lambda one=one: hash(one) == hash(copy.copy(one))))
        found.append(repr(copy.deepcopy(one)))
        found.append(dataclasses.asdict(one))
        found.append(_tried(lambda one=one: repr(dataclasses.replace(one, a=9))))
        found.append(_tried(lambda one=one: setattr(one, "a", 5)))
        found.append(_tried(lambda one=one: delattr(copy.copy(one), "a")))
        found.append(_tried(lambda one=one: repr(one)))
        found.append(hasattr(one, "__dict__"))
    return found


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: kind.__name__.strip("_"))
def test_a_class_behaves_as_the_originals(kind: Callable[[Make], Any]) -> None:
    ours = _behaviour(kind(OURS))
    for mine, theirs in zip(ours, _behaviour(kind(ORIGINAL)), strict=True):
        if kind is _empty and isinstance(mine, tuple):
            continue  # ours names the field that there is none of where theirs says "a", too
        assert mine == theirs


def test_a_factory_is_called_for_each_object() -> None:
    made = _usual(OURS)
    one, other = made(1), made(1)
    one.c.append(4)
    assert (one.c, other.c, made.of(2).both) == ([4], [], "2b")


@dataclass(frozen=True, slots=True)
class Kept:
    """At the top of a module, where pickle finds it."""

    a: int
    b: str = "b"


def test_a_frozen_object_is_pickled() -> None:
    assert pickle.loads(pickle.dumps(Kept(4))) == Kept(4)
    with pytest.raises(FrozenInstanceError):
        Kept(1).a = 2  # type: ignore[misc]


def test_keywords_and_matching() -> None:
    match Kept(b="x", a=3):
        case Kept(3, text):
            assert text == "x"
        case _:
            pytest.fail("the positions of a pattern are those of the fields")


@pytest.mark.parametrize("make", [OURS, ORIGINAL], ids=["ours", "original"])
def test_wrong_classes_are_refused(make: Make) -> None:
    def shared_list() -> None:
        @make(frozen=True, slots=True)
        class Made:
            a: list[int] = []  # noqa: RUF012 - it must be refused

    def default_first() -> None:
        @make(frozen=True, slots=True)
        class Made:
            a: int = 1
            b: int

    with pytest.raises(ValueError, match="mutable default"):
        shared_list()
    with pytest.raises(TypeError, match="non-default argument"):
        default_first()


def test_a_base_may_be_ours() -> None:
    @dataclasses.dataclass(frozen=True)
    class More(Kept):
        c: int = 0

    assert repr(More(1, "y", 2)).endswith("More(a=1, b='y', c=2)")
