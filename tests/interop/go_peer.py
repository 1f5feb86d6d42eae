"""Drives real Go clients in one process by lines; see ``client_peer`` for how answers look.

==============================================  ================================================
start SERVERS                                   start the producers
sync TOPIC BODY [delay=LEVEL] [tag=TAG]         send one; the answer is ``queue:offset:msgId``
async|oneway|batch TOPIC COUNT PREFIX           send PREFIX-0, PREFIX-1, ...
ordered TOPIC ORDERS STEPS                      bodies ORDER/STEP, one queue an order, by its hash
transaction TOPIC BODY commit|rollback|unknown  send a half message and decide; later questions are
                                                answered by what BODY begins with: ``yes`` commits
checks BODY                                     how often the client was asked about it
push NAME GROUP TOPIC EXPRESSION MODEL          consume; each message fails so often; ``~`` stands
  LISTENER FAILURES                             for a blank in EXPRESSION
pull NAME GROUP TOPIC EXPRESSION                start a pull consumer
poll NAME COUNT TIMEOUT_MS                      its messages, acknowledged
got NAME, stop NAME
==============================================  ================================================
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from rmqha.testing.real.processes import Child
from tests.interop.client_peer import ClientPeer

PROGRAM = Path(__file__).parent / "go"
BUILD_TIMEOUT_S = 200


def build(folder: Path) -> Path:
    """The program, built with what ``go.sum`` names; without Go the test is skipped."""
    go = shutil.which("go")
    if go is None:
        pytest.skip("needs Go")
    path = folder / "peer"
    environment = {**os.environ, "GOFLAGS": "-mod=readonly"}
    built = subprocess.run(
        [go, "build", "-o", str(path), "."],
        cwd=PROGRAM, env=environment, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S,
        check=False,
    )  # fmt: skip
    assert built.returncode == 0, built.stderr
    return path


class GoPeer(ClientPeer):
    """A Go process with clients."""

    def __init__(self, binary: Path, home: Path) -> None:
        super().__init__(home, name="go")
        # Broadcasting groups keep their offsets under HOME, also from one run to the next.
        command = ["env", f"HOME={home}", str(binary)]
        self.child = Child("go", command, home / "go.log", piped=True)
