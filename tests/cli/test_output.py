"""What becomes of an output whose encoding does not have what is to be written."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

UNWANTED = ("PYTHONUTF8", "PYTHONCOERCECLOCALE", "PYTHONIOENCODING", "LC_ALL", "LC_CTYPE", "LANG")
PLAIN_C = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
PROGRAM = """
import sys
from rmqha.admin.render import Style, print_report
from rmqha.admin.report import Report, Table
from rmqha.cli.mqadmin import _console
from rmqha.cli.output import run
report = Report("\\xe4", ["\\xe4"], (Table("a", ("b",), [("\\xe4",)]),))
run("shown", lambda: print_report(report, Style(sys.argv[1]), _console()))
"""


@pytest.mark.parametrize("style", ["tables", "json", "plain"])
@pytest.mark.parametrize(
    ("variables", "shown"),
    [
        (PLAIN_C, rb"\xe4"),
        ({"PYTHONIOENCODING": "ascii"}, rb"\xe4"),
        ({"PYTHONIOENCODING": "latin-1"}, b"\xe4"),
        ({"PYTHONIOENCODING": "utf-8"}, "\xe4".encode()),
    ],
)
def test_output_when_its_encoding_lacks_a_letter_then_the_rest_is_there(
    variables: dict[str, str], shown: bytes, style: str
) -> None:
    """A message with an umlaut ended in a traceback of 40 lines, and nobody saw the message."""
    kept = {name: value for name, value in os.environ.items() if name not in UNWANTED}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, style], capture_output=True, check=False, timeout=60,
        env={**kept, **variables},
    )  # fmt: skip
    assert (done.returncode, done.stderr) == (0, b"")
    if style == "json":
        assert json.loads(done.stdout.decode(variables.get("PYTHONIOENCODING", "ascii"))) == [
            "\xe4"
        ]
    else:
        assert shown in done.stdout
