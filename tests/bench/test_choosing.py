"""Options of benchmarks that name some of several: nothing is measured for a typing error."""

from __future__ import annotations

import argparse
import importlib
import sys

import pytest

from tests.bench.choosing import beginning_of, some_of


def test_some_of_when_all_are_known_then_the_text_stays() -> None:
    read = some_of(("java", "rmqha"))
    assert [read(one) for one in ("java", "rmqha,java")] == ["java", "rmqha,java"]
    for wrong in ("", "jav", "java,", "java, rmqha", "JAVA"):
        with pytest.raises(argparse.ArgumentTypeError, match="none of java, rmqha"):
            read(wrong)


def test_beginning_of_when_one_begins_so_then_the_text_stays() -> None:
    read = beginning_of(("a pull", "a message"))
    assert [read(one) for one in ("", "a", "a pull")] == ["", "a", "a pull"]
    with pytest.raises(argparse.ArgumentTypeError, match="begins none of: a pull, a message"):
        read("b")


@pytest.mark.parametrize(
    ("what", "option"),
    [
        ("attacks", "--kinds"), ("attacks", "--attacks"), ("clients", "--kinds"),
        ("cluster", "--kinds"), ("controller", "--kinds"), ("controller", "--only"),
        ("failover", "--kinds"), ("remaps", "--kinds"), ("siege", "--attacks"),
        ("switch", "--brokers"), ("switch", "--how"), ("topics", "--sets"), ("waits", "--phases"),
    ],
)  # fmt: skip
def test_bench_when_a_name_is_not_known_then_it_measures_nothing(
    what: str, option: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """``--kinds nosuch`` measured ours, or DLedger's, under that name."""
    module = importlib.import_module(f"tests.bench.bench_{what}")
    monkeypatch.setattr(module, "end_children_when_terminated", lambda: None)
    monkeypatch.setattr(sys, "argv", [what, option, "nosuch"])
    with pytest.raises(SystemExit) as ended:
        module.main()
    assert ended.value.code == 2
    assert f"argument {option}: 'nosuch'" in capsys.readouterr().err
