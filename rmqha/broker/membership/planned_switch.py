"""A master that is to be replaced on purpose asks the controllers for its heir's election.

It does so itself, since it knows the moment at which the heir has all (``send/handover.py``), and its
connection to the leading controller is open. A question whose answer is lost is asked again of
whoever leads then: an heir that reigns already is named by the refusal. It is not asked again once
any epoch is over, or the switch is taken back: an election that nobody waits for would be a surprise.
"""

from __future__ import annotations

from rmqha.broker.membership.agenda import Agenda, Job
from rmqha.broker.membership.events import RefuseSwitch


class PlannedSwitch:
    """Of one replica.

    Attributes:
        heir: who shall be elected, 0 for nobody.
    """

    def __init__(self, agenda: Agenda) -> None:
        self._agenda = agenda
        self.heir = 0

    def wanted(self, now_ms: int, heir: int) -> None:
        """The heir has all; 0 takes the switch back."""
        self.heir = heir
        if heir:
            self._agenda.due[Job.SWITCH] = now_ms
        else:
            self.over()

    def over(self) -> None:
        """Another epoch has begun, or nobody waits any more."""
        self.heir = 0
        self._agenda.due.pop(Job.SWITCH, None)

    def refused(self, reason: str) -> list[RefuseSwitch]:
        """The controllers answered, and the heir is not elected."""
        asked = bool(self.heir)
        self.over()
        return [RefuseSwitch(reason)] if asked else []
