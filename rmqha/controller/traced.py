"""How the controller's machine is recorded and made again (``runtime/trace``).

It begins with its settings and an empty state: what a store held comes as ``SnapshotLoaded`` and
``Committed``, what brokers say as requests and heartbeats. The Raft core is not recorded. It begins
with a term, a vote and a whole log, and draws its patience from a seed.
"""

from __future__ import annotations

from typing import get_args

from rmqha.controller.machine import ControllerMachine
from rmqha.controller.metadata.messages import ControllerEvent, MachineSettings
from rmqha.remoting.heartbeat import Heartbeat
from rmqha.runtime.trace import Kind

CONTROLLER_KIND = Kind(
    "controller",
    (MachineSettings, Heartbeat, *get_args(ControllerEvent)),
    ControllerMachine,
    # It is what from_snapshot makes of ``data``.
    left_out=frozenset({("SnapshotLoaded", "state")}),
)
