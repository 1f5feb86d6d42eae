"""What a replica has to do with its controllers, when each is due, and which requests are out."""

from __future__ import annotations

from enum import Enum

from rmqha.base.ids import MasterEpoch
from rmqha.broker.common.replicas_settings import ReplicasSettings
from rmqha.broker.membership.leader_search import backoff_ms


class Job(Enum):
    """What this machine does, in the order in which due jobs run."""

    FIND_LEADER = "find_leader"
    IDENTIFY = "identify"
    HEARTBEAT = "heartbeat"
    REGISTER = "register"
    ELECT = "elect"
    HAND_OVER = "hand_over"
    SWITCH = "switch"
    CHECK = "check"
    POLL = "poll"
    FIND_MASTER = "find_master"
    ALTER = "alter"


class Agenda:
    """When each job is due, how often it failed, and which request belongs to which job.

    Attributes:
        due: milliseconds on the core's clock; a job that is not in it waits for an answer, or rests.
        attempts: failures in a row.
    """

    def __init__(self, settings: ReplicasSettings) -> None:
        self.due: dict[Job, int] = {}
        self.attempts: dict[Job, int] = dict.fromkeys(Job, 0)
        self._settings = settings
        self._asked: dict[int, tuple[Job, MasterEpoch]] = {}
        self._token = 0

    @property
    def next_deadline_ms(self) -> int | None:
        """When the next job is due."""
        return min(self.due.values(), default=None)

    def take_due(self, now_ms: int) -> list[Job]:
        """The jobs whose time has come, in their order; they are due no more."""
        found = [job for job in Job if self.due.get(job, now_ms + 1) <= now_ms]
        for job in found:
            del self.due[job]
        return found

    def again(self, now_ms: int, job: Job, limit_ms: int) -> None:
        """Do a job once more after a pause that has grown."""
        attempt = self.attempts[job]
        self.attempts[job] = attempt + 1
        salt = f"{self._settings.broker_address}{job.value}"
        self.due[job] = now_ms + backoff_ms(attempt, self._settings.retry_ms, limit_ms, salt)

    def sooner(self, job: Job, due_ms: int) -> None:
        """Have a job done at this time, if not before."""
        self.due[job] = min(self.due.get(job, due_ms), due_ms)

    def asked(self, job: Job, master_epoch: MasterEpoch) -> int:
        """A request goes out for a job; returns its token."""
        self._token += 1
        self._asked[self._token] = (job, master_epoch)
        return self._token

    def is_asking(self, job: Job) -> bool:
        """A request of the job is out."""
        return any(asked is job for asked, _ in self._asked.values())

    def ended(self, token: int) -> tuple[Job, MasterEpoch] | None:
        """The job of a request that has ended, and the master epoch when it went out."""
        return self._asked.pop(token, None)
