"""Stores that are given together: each once, under a name of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline import read
from rmqha.pipeline.commitlog.distinct import distinct, refuse_twice


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A directory with a space in it, as a URL writes otherwise."""
    (tmp_path / "s t" / "commitlog").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "s t")
    (tmp_path / "apart").mkdir()
    (tmp_path / "apart" / "commitlog").symlink_to(tmp_path / "s t" / "commitlog")
    return tmp_path / "s t"


@pytest.mark.parametrize(
    "other",
    [
        "{store}", "{store}/", "{store}/commitlog", "{store}/commitlog/", "{above}/link",
        "{above}/link/commitlog", "{above}/apart", "file://{store}", "file://{store}/commitlog",
        "file://{quoted}", "file://localhost{quoted}/",
    ],
)  # fmt: skip
def test_store_when_given_twice_then_refused_however_it_is_told(store: Path, other: str) -> None:
    """Each message came twice, and an audit found a store equal to itself."""
    told = other.format(store=store, above=store.parent, quoted=str(store).replace(" ", "%20"))
    with pytest.raises(ConfigInvalid, match="is given twice"):
        refuse_twice([str(store), told])


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("s3://b/s", "s3a://b/s/"),
        ("s3://b/s", "s3://b/s/commitlog"),
        ("s3://b/s?region=x", "s3a://b/s/commitlog/?region=x"),
    ],
)
def test_store_when_elsewhere_and_given_twice_then_refused(one: str, other: str) -> None:
    """Its address tells, and nobody is asked."""
    with pytest.raises(ConfigInvalid, match="is given twice"):
        refuse_twice([one, other])


@pytest.mark.parametrize(
    "other", ["s3://b/s?endpoint_override=y", "gs://b/s", "s3://b/t", "s3://b/scommitlog"]
)
def test_stores_when_elsewhere_and_apart_then_both_are_read(other: str) -> None:
    """Another endpoint may have another bucket of that name."""
    refuse_twice(["s3://b/s?endpoint_override=x", "s3://b/s", other])


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ([("", "/x/store")], ["store"]),
        ([("", "/x/a"), ("", "/x/b")], ["a", "b"]),
        ([("", "/x/store"), ("", "/y/store")], ["x/store", "y/store"]),
        ([("", "/x/n/store"), ("", "/y/n/store"), ("a", "/z")], ["x/n/store", "y/n/store", "a"]),
        ([("", "/store"), ("", "/y/store")], ["store", "y/store"]),
        ([("store", "/x"), ("", "/y/store")], ["store", "y/store"]),
        ([("", "s3://b/x/s?region=r"), ("", "gs://b/y/s")], ["x/s", "y/s"]),
        ([("", "s3://b"), ("", "/")], ["b", ""]),
        ([("", "/x/a/s"), ("", "/x/b/s"), ("", "/x/c/t")], ["a/s", "b/s", "t"]),
        ([("", "/p/s"), ("", "/q/p/s"), ("", "/r/p/s")], ["p/s", "q/p/s", "r/p/s"]),
        ([("", "s3://K:word@b/s"), ("", "s3://K:word@c/s")], ["b/s", "c/s"]),
        ([("", "abfss://one@a/s"), ("", "abfss://two@a/s")], ["one@a/s", "two@a/s"]),
    ],
)
def test_names_when_paths_end_alike_then_more_of_them_tells_which(
    given: list[tuple[str, str]], names: list[str]
) -> None:
    """Both were called store, and who has what could not be told."""
    assert distinct(given) == [(name, root) for name, (_, root) in zip(names, given, strict=True)]


@pytest.mark.parametrize(
    "given",
    [
        [("a", "/x"), ("a", "/y")],
        [("", "/z/b"), ("a", "/x"), ("a", "/y")],
        [("", "s3://b/s"), ("", "gs://b/s")],
    ],
)
def test_names_when_two_are_one_then_refused(given: list[tuple[str, str]]) -> None:
    """Whoever gives names means something by them."""
    with pytest.raises(ConfigInvalid, match="two stores are called"):
        distinct(given)


def test_stores_when_read_together_then_held_to_it(store: Path) -> None:
    """What Spark's source and Arrow's reader have in common."""
    with pytest.raises(ConfigInvalid, match="is given twice"):
        read(f"a={store},b={store}/commitlog")
    with pytest.raises(ConfigInvalid, match="two stores are called a"):
        read(f"a={store},a={store.parent}")
