"""Requests 11 and 361. Consumers see confirmed messages only, as slices of the log.

A pull that finds nothing is held until its queue has a message that it wants, or its time is over.
"""

from __future__ import annotations

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.groups.consumers import Subscription
from rmqha.broker.logical.aio.forwarding import Forwarding
from rmqha.broker.logical.aio.segments import SegmentAccess
from rmqha.broker.logical.place import mapping_for
from rmqha.broker.pull.aio.asked import Asked, logically
from rmqha.broker.pull.aio.logical_pulls import LogicalPulls, Place, answer_fields, is_read_through
from rmqha.broker.pull.aio.ports import Broker
from rmqha.broker.pull.aio.waiting_pulls import WaitingPulls
from rmqha.broker.pull.filters import Matches
from rmqha.broker.pull.refusals import read_refusal
from rmqha.broker.pull.request import (
    SCAN_MAX,
    PullRequest,
    check_filter,
    check_pull,
    parse_pull,
    status_code,
    suggest_broker,
    transfer_of,
)
from rmqha.broker.topics.group_table import own_group_refusal
from rmqha.ha.events import Role
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.old_clients import knows_static_topics
from rmqha.remoting.topic_names import PERM_READ
from rmqha.statictopic.translate import PullAnswer
from rmqha.store.aio.pulling import FETCHES_MAX, Pulled

OFFSET_RESET = "OFFSET_RESET"
UNSAID = frozenset({ResponseCode.SUBSCRIPTION_NOT_EXIST, ResponseCode.SUBSCRIPTION_NOT_LATEST})
"""Why a new pull is refused while a heartbeat is late, or members want different topics."""


class PullProcessor:
    """Serves consumers from the queues."""

    def __init__(self, broker: Broker, access: SegmentAccess, forwarding: Forwarding) -> None:
        self._broker = broker
        self._pulling = broker.store.pulling
        self.waiting = WaitingPulls(broker, self)
        self._logical = LogicalPulls(
            broker, access, forwarding, self._at, self.waiting.hold_undecided
        )

    def handlers(self) -> Handlers:
        """By request code."""
        return {
            RequestCode.PULL_MESSAGE: self.pull,
            RequestCode.LITE_PULL_MESSAGE: self.pull,
        }

    # These may change while the broker runs (live_config.LIVE).

    @property
    def _slave_reads(self) -> bool:
        return self._broker.config.boolean("slaveReadEnable")

    def refusal(self) -> Refusal | None:
        """Why nobody may pull now."""
        role = self._broker.role
        return read_refusal(
            role, "pulling",
            may_read=bool(self._broker.config.integer("brokerPermission") & PERM_READ),
            slave_reads=role is not Role.SLAVE or self._slave_reads,
        )  # fmt: skip

    # -- one pull ----------------------------------------------------------------------------------

    def pull(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Take a pull."""
        broker = self._broker
        pull = parse_pull(request.ext_fields)
        mapping = mapping_for(broker.mappings.table, pull.topic, request.ext_fields)
        if mapping is not None:
            return self._pull_logically(connection, request, pull)
        return self._at(connection, request, pull, None)

    def _pull_logically(
        self, connection: Connection, request: RemotingCommand, pull: PullRequest
    ) -> RemotingCommand | None:
        """Read a logical queue; a broker that may not read its own segments asks for none elsewhere."""
        refusal = self.refusal()
        if refusal is not None:
            return request.reply(refusal.code, refusal.remark)
        return self._logical.pull(connection, request, pull)

    def _at(
        self,
        connection: Connection,
        request: RemotingCommand,
        pull: PullRequest,
        place: Place | None,
    ) -> RemotingCommand | None:
        """Read a physical queue.

        Args:
            place: which segment of a logical queue that is; None for an ordinary one.
        """
        asked = self._checked(connection, request, pull, place)
        if isinstance(asked, Refusal):
            return request.reply(asked.code, asked.remark)
        moved = self._take_reset(asked)
        if moved is not None:
            return moved
        if place is not None:
            self._logical.commit(connection, request, place)
        found = self.read(asked, pull.queue_offset)
        if place is not None and is_read_through(place, pull.queue_offset, found):
            return self._logical.go_on(connection, request, place)
        if pull.commits and pull.commit_offset >= 0:
            self._commit(pull)
        self.serve(asked, found, may_wait=True)
        return None

    def _checked(
        self,
        connection: Connection,
        request: RemotingCommand,
        pull: PullRequest,
        place: Place | None,
    ) -> Asked | Refusal:
        broker, name = self._broker, pull.consumer_group
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        group = broker.groups.find(name, may_write=broker.role is Role.MASTER)
        topic = broker.topics.table.get(pull.topic)
        wanted = check_pull(pull, group, topic, broker.consumers.get(name))
        if isinstance(wanted, Refusal) or group is None:
            return wanted if isinstance(wanted, Refusal) else Refusal(ResponseCode.SYSTEM_ERROR, "")
        matches = self._filter(pull, wanted)
        if isinstance(matches, Refusal):
            return matches
        return Asked(connection, request, pull, group, wanted, matches, place)

    def _filter(self, pull: PullRequest, wanted: Subscription) -> Matches | Refusal | None:
        enabled = self._broker.config.boolean("enablePropertyFilter")
        return check_filter(pull, wanted, self._broker.selectors, enabled=enabled)

    def again(self, asked: Asked) -> Asked | Refusal:
        """A pull that has waited, by what is true now; itself where it wants what it wanted.

        Its group may be gone or switched off by now, its topic be gone, and its consumer's selector
        another one: what the old one passed over may be what the new one wants. Where nobody says any
        more what the group wants of the topic, it is what it was.
        """
        broker, pull, before = self._broker, asked.pull, asked.wanted
        refusal = self.refusal()
        if refusal is not None:
            return refusal
        name, is_master = pull.consumer_group, broker.role is Role.MASTER
        # No group is made for it: whoever has deleted it does not want it back.
        is_served = not is_master or broker.groups.is_served(name)
        group = broker.groups.find(name, may_write=False) if is_served else None
        topic = broker.topics.table.get(pull.topic)
        wanted = check_pull(pull, group, topic, broker.consumers.get(name), before)
        if isinstance(wanted, Refusal):
            return asked if wanted.code in UNSAID else wanted
        if wanted == before:
            return asked
        matches = self._filter(pull, wanted)
        if isinstance(matches, Refusal):
            return matches
        return asked._replace(group=group or asked.group, wanted=wanted, matches=matches)

    def serve(self, asked: Asked, found: Pulled, *, may_wait: bool) -> None:
        """Answer with what was found, or later: once it is in memory, or there is something."""
        if self._pulling.is_cold(found):
            work = self._answer_cold(asked, found, may_wait=may_wait)
            self._broker.answers.start(work, asked.connection, asked.request, name="cold pull")
        else:
            self._show(asked, found, may_wait=may_wait)

    def _show(self, asked: Asked, found: Pulled, *, may_wait: bool) -> None:
        """Answer with what was found, which is in memory: with what of it is whole."""
        found = self._pulling.whole(found)
        if found.damaged >= 0 and not found.messages:
            work = self._answer_mended(asked, found, may_wait=may_wait)
            self._broker.answers.start(work, asked.connection, asked.request, name="damaged pull")
        elif not (may_wait and self.waiting.hold(asked, found)):
            self._answer(asked, found)

    async def _answer_mended(self, asked: Asked, found: Pulled, *, may_wait: bool) -> None:
        """Answer once the next message is whole again; refuse if nobody has a whole copy."""
        if not await self._broker.store.mending.mend(found.damaged):
            remark = (
                f"the next message is damaged on this broker, at {found.damaged} of its log, and no "
                "other replica that answers has a whole copy"
            )
            asked.connection.send(asked.request.reply(ResponseCode.SYSTEM_ERROR, remark))
            return
        refusal = self.refusal()
        if refusal is not None:
            asked.connection.send(asked.request.reply(refusal.code, refusal.remark))
            return
        self.serve(asked, self.read(asked, found.next_offset), may_wait=may_wait)

    async def _answer_cold(self, asked: Asked, found: Pulled, *, may_wait: bool) -> None:
        """Answer once the messages are in memory; looking into them would wait for the disk."""
        for _ in range(FETCHES_MAX):
            await self._pulling.fetch(found)
            # A role may have ended meanwhile, and a log been cut.
            refusal = self.refusal()
            if refusal is not None:
                asked.connection.send(asked.request.reply(refusal.code, refusal.remark))
                return
            pull, fetched_to = asked.pull, (found.missing or found.runs)[-1][-1]
            if not found.messages:
                # Nothing was wanted before what is missing, so nobody looks there again.
                asked = asked._replace(pull=pull._replace(queue_offset=found.next_offset))
            found = self.read(asked, asked.pull.queue_offset, fetched_to)
            if not found.missing:
                break
        self._show(asked, found, may_wait=may_wait)

    def _take_reset(self, asked: Asked) -> RemotingCommand | None:
        """An operator has moved the group: its consumer is told where to."""
        pull = asked.pull
        offset = self._broker.offsets.table.take_reset(
            pull.consumer_group, pull.topic, pull.queue_id
        )
        if offset is None:
            return None
        reader = self._broker.store.reader
        answer = PullAnswer(
            ResponseCode.PULL_OFFSET_MOVED,
            offset,
            reader.min_offset(pull.topic, pull.queue_id),
            reader.max_offset(pull.topic, pull.queue_id),
        )
        fields = answer_fields(0, logically(asked, answer), asked.place)
        return asked.request.reply(ResponseCode.PULL_OFFSET_MOVED, OFFSET_RESET, fields)

    def _commit(self, pull: PullRequest) -> None:
        offsets, wall_ms = self._broker.offsets, self._broker.clock.wall_ms()
        group, topic, queue_id = pull.consumer_group, pull.topic, pull.queue_id
        if own_group_refusal(group) is not None:
            return
        if offsets.table.commit(group, topic, queue_id, pull.commit_offset, wall_ms):
            offsets.changed()

    def read(self, asked: Asked, offset: int, fetched_to: int = 0) -> Pulled:
        """What is in its queue from here."""
        pull, clock = asked.pull, self._broker.clock
        begun_ms = clock.now_ms()
        found = self._pulling.read(
            pull.topic,
            pull.queue_id,
            offset,
            asked.hashes,
            count_max=max(1, pull.max_msg_nums),
            bytes_max=max(1, pull.max_msg_bytes),
            scan_max=SCAN_MAX if asked.matches is None else asked.matches.scan_max,
            transfer=transfer_of(self._broker.near_bytes, self._broker.config.values),
            matches=asked.matches,
            fetched_to=fetched_to,
        )
        self._broker.statistics.read_took(clock.now_ms() - begun_ms)
        return found

    def _answer(self, asked: Asked, found: Pulled) -> None:
        """Say what was found; on a slave everything but messages sends the consumer back."""
        pull, broker = asked.pull, self._broker
        code = status_code(found.status, pull.queue_offset)
        next_offset = found.next_offset
        is_master = broker.role is Role.MASTER
        suggested = suggest_broker(
            asked.group,
            slave_reads=self._slave_reads,
            is_master=is_master,
            lag_bytes=found.lag_bytes,
            near_bytes=broker.near_bytes,
        )
        if not is_master and code in (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_OFFSET_MOVED):
            # A slave may not have what its master has, so it corrects nobody.
            code, next_offset, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, pull.queue_offset, 0
        told = logically(asked, PullAnswer(code, next_offset, found.min_offset, found.max_offset))
        code, fields = told.code, answer_fields(suggested, told, asked.place)
        group, topic, queue_id = pull.consumer_group, pull.topic, pull.queue_id
        broker.offsets.table.pulled(group, topic, queue_id, next_offset)
        if asked.request.is_oneway:
            return
        answer, place = asked.request.reply(code, found.status, fields), asked.place
        parts = found.parts if code == ResponseCode.SUCCESS else ()
        if parts and place is not None and not knows_static_topics(asked.request.version):
            answer.body = self._logical.shown(asked.request, place, b"".join(parts))
            asked.connection.send(answer)
        else:
            asked.connection.send_parts(answer, parts)
        if code == ResponseCode.SUCCESS:
            broker.statistics.got(topic, group, found.messages, found.size)
        else:
            broker.statistics.missed()

    def once_more(self, asked: Asked, wanted: PullRequest) -> None:
        """Serve a pull from a logical queue anew."""
        answer = self._pull_logically(asked.connection, asked.request, wanted)
        if answer is not None and not asked.request.is_oneway:
            asked.connection.send(answer)
