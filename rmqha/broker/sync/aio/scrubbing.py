"""Reads this replica's log in the background, compares it with the others', and mends what flipped.

What is right is decided in ``broker/sync/scrub.py``. Old parts of the log are read in a thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import NamedTuple, Protocol

from rmqha.base.errors import DiskFailed, RmqhaError
from rmqha.broker.common.aio import ports
from rmqha.broker.sync.aio.comparing import epoch_end, epoch_of
from rmqha.broker.sync.scrub import (
    RANGE_BYTES,
    RECORDS_A_TURN,
    Pace,
    Place,
    choose,
    differing,
    digest,
    is_whole,
)
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.bodies import BrokerReplicasInfo, encode_names
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.runtime.logs import Logger
from rmqha.store.record import BLANK_SIZE
from rmqha.store.whole import pass_whole

ASK_TIMEOUT_MS = 1_000
PEERS_KNOWN_MS = 30_000
UNABLE_MS = 600_000
"""So long a replica that does not know the question is not asked again."""

DIFFERING_MAX = 10_000


class Broker(ports.Broker, Protocol):
    """What a scrub sees of its broker."""

    @property
    def broker_id(self) -> int | None:
        """The persistent id."""


class Answered(NamedTuple):
    """One replica's answer: whether it has the same, and else its bytes."""

    address: str
    same: bool
    data: bytes


class Scrub:
    """Of one replica.

    Attributes:
        compared_bytes: of the own log, with one other replica at least.
        read_bytes: of the own log.
        differing: records that are whole on two replicas and not the same, without a majority.
    """

    def __init__(self, broker: Broker, client: RemotingClient, log: Logger) -> None:
        self._broker = broker
        self._client = client
        self._log = log
        self._peers: tuple[str, ...] = ()
        self._peers_until_ms = 0
        self._unable: dict[str, int] = {}
        self.compared_bytes = self.read_bytes = 0
        self.differing: set[int] = set()
        broker.store.mending.mender = self.mend

    async def run(self) -> None:
        """Scrub for ever, at the pace of ``scrubBytesPerSecond``; 0 is never."""
        config, clock = self._broker.config, self._broker.clock
        rate = config.integer("scrubBytesPerSecond")
        if not rate:
            return
        pace = Pace(rate, config.integer("scrubPassIntervalMs"), clock.now_ms())
        while True:
            await clock.sleep(pace.wait_ms(clock.now_ms()))
            store = self._broker.store
            begin = await self._next(pace)
            if begin is None:
                continue
            try:
                end = await self._range(begin)
            except DiskFailed as error:
                store.check_alive()
                # A sector that cannot be read: replication and consumers meet it as well.
                self._log.log("error", "scrub_cannot_read", offset=begin, reason=str(error))
                end = store.commit_log.file_end(begin)
            self.read_bytes += max(0, end - begin)
            pace.read(clock.now_ms(), end)

    async def _next(self, pace: Pace) -> int | None:
        """Where to read; behind a cut from the record on in which the log was cut."""
        store = self._broker.store
        while (cut := store.mending.take_cut()) is not None:
            low, log = max(0, store.min_offset), store.commit_log
            place = min(cut, pace.position)
            # A log that ends there may end in a record.
            pace.cut(await log.record_start(place, low) if place < log.max_offset else low)
        return pace.next(self._broker.clock.now_ms(), max(0, store.min_offset), store.limit())

    # -- one range -----------------------------------------------------------------------------

    async def _range(self, begin: int) -> int:
        """Look at a range from the record at ``begin`` on; where it ends."""
        store = self._broker.store
        log = store.commit_log
        file_end = log.file_end(begin)
        # A blank at a file's end is no record, and what follows it is nobody's.
        limit = min(
            begin + RANGE_BYTES, file_end - 1, store.limit(), epoch_end(self._broker, begin)
        )
        await store.fetch(begin, limit - begin)
        end = await self._pass(begin, limit)
        if not self._is_confirmed(begin) or store.mending.cut_to is not None:
            return begin
        if end == begin:
            return await self._single(begin)
        await self._compare(begin, end)
        return end

    def _is_confirmed(self, offset: int) -> bool:
        """Whether the log still has ``offset``, and what is there is never cut."""
        store = self._broker.store
        return max(0, store.min_offset) <= offset < store.limit()

    async def _pass(self, begin: int, limit: int) -> int:
        """Pass whole records before ``limit``, up to one that is not; where that ends.

        Others have their turns of the loop between two pieces.
        """
        store, at = self._broker.store, begin
        log = store.commit_log
        while self._is_confirmed(at):
            end = log.valid_end(at, min(limit, store.limit()), count_max=RECORDS_A_TURN)
            buffer, start = log.file_of(at)
            passed = start + pass_whole(buffer, at - start, end - start, start).position
            if passed == at:
                break
            at = passed
            await self._broker.clock.sleep(0)
        return at

    async def _single(self, begin: int) -> int:
        """Look at one record that is longer than a range, at a blank, or at what is neither."""
        store = self._broker.store
        log = store.commit_log
        await store.fetch(begin, min(log.record_max, log.file_end(begin) - begin))
        if store.mending.cut_to is not None:
            return begin
        _, head = log.check(begin, check_crc=True)
        if not head.size:
            return log.file_end(begin)
        if head.size > 0:
            return begin + head.size
        store.mending.met(begin, head.reason)
        if await store.mending.mend(begin):
            return begin
        # Where the next record begins is known only if the lengths of this one are well.
        size = log.check(begin)[1].size
        return begin + size if size > 0 else log.file_end(begin)

    async def _compare(self, begin: int, end: int) -> None:
        store = self._broker.store
        before = digest(store.view(begin, end - begin))
        answers = await self._ask_all(begin, end, before)
        if answers:
            self.compared_bytes += end - begin
        others = [one.data for one in answers if len(one.data) == end - begin]
        if not others or store.readable(begin, end - begin) < end - begin or end > store.limit():
            return
        if digest(store.view(begin, end - begin)) != before:
            return
        equal = sum(one.same for one in answers)
        for place in differing(store.view(begin, end - begin), others, begin):
            await self._settle(begin, place, others, equal)

    async def _settle(self, begin: int, place: Place, others: Sequence[bytes], equal: int) -> None:
        """Decide about one record that is whole here, and other bytes elsewhere."""
        store, offset = self._broker.store, begin + place.at
        own = bytes(store.view(offset, place.size))
        copies = [one[place.at : place.at + place.size] for one in others]
        whole = [one for one in copies if is_whole(one, offset)] + [own] * equal
        wanted = choose(own, whole)
        if wanted is not None:
            store.mending.met(offset, "other replicas agree on other bytes")
            await self._rewrite(offset, wanted, "replicas that agree")
        elif any(one != own for one in whole) and self._is_undecided(own, whole):
            self._tell_differing(offset)

    @staticmethod
    def _is_undecided(own: bytes, whole: Sequence[bytes]) -> bool:
        """Whether nobody can say who is right; a majority for this replica is a majority."""
        return 1 + whole.count(own) <= len(whole) + 1 - (1 + whole.count(own))

    def _tell_differing(self, offset: int) -> None:
        if offset in self.differing or len(self.differing) >= DIFFERING_MAX:
            return
        self.differing.add(offset)
        self._log.log(
            "error", "record_differs", offset=offset,
            reason="whole on each replica, not the same, and no majority has either",
        )  # fmt: skip

    # -- mending -------------------------------------------------------------------------------

    async def mend(self, offset: int) -> bool:
        """Write a damaged record anew from whole copies; whether it is whole now."""
        answers = await self._ask_all(offset, 0, "")
        copies = [one.data for one in answers if is_whole(one.data, offset)]
        store = self._broker.store
        if not max(0, store.min_offset) <= offset < store.limit():
            return False
        wanted = choose(None, copies)
        sources = ",".join(one.address for one in answers if one.data == wanted)
        return wanted is not None and await self._rewrite(offset, wanted, sources)

    async def _rewrite(self, offset: int, record: bytes, source: str) -> bool:
        """Write a record over the one at ``offset`` if it fits between its neighbours."""
        store, end = self._broker.store, offset + len(record)
        log = store.commit_log
        room = log.file_end(offset) - BLANK_SIZE
        if end > min(store.limit(), room, epoch_end(self._broker, offset)):
            return False
        if end < store.max_offset and log.check(end)[1].size < 0:
            return False
        await store.rewrite(offset, record)
        store.mending.whole(offset, source)
        return True

    # -- the others ----------------------------------------------------------------------------

    async def _ask_all(self, begin: int, end: int, own: str) -> list[Answered]:
        epoch, peers = epoch_of(self._broker, begin), await self._others()
        fields = ext_fields(begin=begin, end=end, epoch=epoch, digest=own)
        found = await asyncio.gather(*(self._ask(address, fields) for address in peers))
        # An epoch that this replica has learned meanwhile makes the answers worthless.
        if epoch_of(self._broker, begin) != epoch:
            return []
        return [one for one in found if one is not None]

    async def _ask(self, address: str, fields: dict[str, str]) -> Answered | None:
        command = RemotingCommand(RequestCode.COMPARE_LOG, ext_fields=dict(fields))
        try:
            answer = await self._client.invoke(address, command, ASK_TIMEOUT_MS)
        except RmqhaError:
            return None
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            self._unable[address] = self._broker.clock.now_ms() + UNABLE_MS
        if answer.code != ResponseCode.SUCCESS:
            return None
        same = (answer.ext_fields or {}).get("same") == "true"
        return Answered(address, same, b"" if same else bytes(answer.body))

    async def _others(self) -> list[str]:
        """The other replicas of the set that live, as a controller knows them."""
        config, now_ms = self._broker.config, self._broker.clock.now_ms()
        if now_ms >= self._peers_until_ms:
            self._peers_until_ms = now_ms + PEERS_KNOWN_MS
            self._peers = await self._told()
        return [
            one for one in self._peers
            if one != config.address and self._unable.get(one, 0) <= now_ms
        ]  # fmt: skip

    async def _told(self) -> tuple[str, ...]:
        name, code = self._broker.config.broker_name, RequestCode.CONTROLLER_GET_SYNC_STATE_DATA
        for controller in self._broker.config.controllers:
            command = RemotingCommand(code, body=encode_names([name]))
            try:
                answer = await self._client.invoke(controller, command, ASK_TIMEOUT_MS)
                if answer.code != ResponseCode.SUCCESS:
                    continue
                info = BrokerReplicasInfo.decode(answer.body).replicas_info_table.get(name)
            except RmqhaError:
                continue
            if info is not None:
                replicas = (*info.in_sync_replicas, *info.not_in_sync_replicas)
                return tuple(one.broker_address for one in replicas if one.broker_address)
        return self._peers
