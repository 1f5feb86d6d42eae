"""A scripted cluster that really keeps mappings, for commands about static topics."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from rmqha.admin.report import Report
from rmqha.admin.spec import Here
from rmqha.client.exchange import Call, Unreachable
from rmqha.remoting import fastjson
from rmqha.remoting.asked_queues import asked_queues
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.known import Known, KnownTopic
from rmqha.statictopic.mapping import TopicQueueMappingDetail
from rmqha.statictopic.rules import updated
from tests.admin.driving import HERE, drive, start

TOPIC = "Orders"


class Died(BaseException):
    """The command was killed."""


class Broker:
    """One broker set: its topic, and where physical queues begin and end."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.config: dict[str, Any] | None = None
        self.detail: TopicQueueMappingDetail | None = None
        self.ends: dict[int, tuple[int, int]] = {}
        self.consumed: dict[int, int] = {}
        self.fields: dict[str, str] = {}


class StaticCluster:
    """Broker sets at ``<name>:1``, known to ``ns:1``.

    Attributes:
        down: addresses that do not answer.
        lost: how many requests from now on one is carried out and its answer lost.
        die_at: the number of the call before which the command is killed.
        calls: what was asked.
        is_javas: its brokers tell the ends of all queues, whichever they are asked for.
        asked_ends: which they were asked for last.
    """

    def __init__(self, names: Iterable[str]) -> None:
        self.brokers = {name: Broker(name) for name in names}
        self.masters = {name: f"{name}:1" for name in self.brokers}
        self.down: set[str] = set()
        self.lost: int | None = None
        self.die_at: int | None = None
        self.calls: list[Call] = []
        self.is_javas = False
        self.asked_ends: list[int] = []

    # -- driving -----------------------------------------------------------------------------------

    def run(self, line: str, here: Here = HERE) -> list[Report]:
        """Run a command line to its end; the reports in order."""
        exchange, reports = start(line.split(), here), []
        while exchange is not None:
            report, _ = drive(exchange, self.answer)
            reports.append(report)
            exchange = report.then  # type: ignore[assignment]
        return reports

    def run_killed(self, line: str, at: int, here: Here = HERE) -> bool:
        """The same, killed before the call of this number; whether there was one."""
        self.die_at = len(self.calls) + at
        try:
            self.run(line, here)
        except Died:
            return True
        finally:
            self.die_at = None
        return False

    def known(self) -> Known:
        """What brokers know."""
        return Known(TOPIC, {name: self._knows(one) for name, one in self.brokers.items()})

    def _knows(self, one: Broker) -> KnownTopic:
        if one.config is None:
            return KnownTopic()
        nums = int(one.config["readQueueNums"]), int(one.config["writeQueueNums"])
        return KnownTopic(*nums, one.detail)

    def leaders(self) -> dict[int, str]:
        """Who leads each logical queue, as the brokers say."""
        return {
            logical: one.name
            for one in self.brokers.values()
            if one.detail is not None
            for logical in one.detail.curr_id_map
        }

    def codes(self) -> list[tuple[str, int]]:
        """Whom was asked what, but for lists and routes."""
        return [
            (call.address.partition(":")[0], call.command.code)
            for call in self.calls
            if call.command.code not in (105, 106, 351)
        ]

    # -- answering ---------------------------------------------------------------------------------

    def answer(self, call: Call) -> RemotingCommand:
        """Answer one call."""
        if self.die_at == len(self.calls):
            raise Died
        self.calls.append(call)
        if call.address in self.down:
            raise Unreachable(f"{call.address} is down")
        found = self._answer(call)
        if self.lost is not None:
            self.lost -= 1
            if self.lost < 0:
                self.lost = None
                raise Unreachable(f"{call.address} did not answer")
        return found

    def _answer(self, call: Call) -> RemotingCommand:
        command = call.command
        if call.address == "ns:1":
            return command.reply(0, body=self._name_server(command.code))
        broker = next(one for one in self.brokers.values() if self._is_at(one, call.address))
        match command.code:
            case 351 if broker.config is None:
                return command.reply(17, "no such topic")
            case 351:
                mapping = None if broker.detail is None else broker.detail.members()
                body = fastjson.dumps_bare({**(broker.config or {}), "mappingDetail": mapping})
                return command.reply(0, body=body)
            case 513:
                return self._tell(broker, command)
            case 202:
                return command.reply(0, body=self._ends(broker, command))
            case 208:
                return command.reply(0, body=self._consumed(broker))
            case 215:
                broker.config = broker.detail = None
                return command.reply(0)
        return command.reply(3, "not supported")

    def _is_at(self, one: Broker, address: str) -> bool:
        return self.masters[one.name] == address

    def _name_server(self, code: int) -> bytes:
        groups = {
            name: {"brokerAddrs": {"0": self.masters[name]}, "brokerName": name, "cluster": "C"}
            for name in self.brokers
        }
        if code == 106:
            table = {"C": list(self.brokers), "D": ["far"]}
            return fastjson.dumps({"brokerAddrTable": groups, "clusterAddrTable": table})
        if code == 105:
            infos = {
                one.name: one.detail.info_members()
                for one in self.brokers.values()
                if one.detail is not None
            }
            route = {"brokerDatas": list(groups.values()), "queueDatas": [],
                     "topicQueueMappingByBroker": infos}  # fmt: skip
            return fastjson.dumps(route)
        return b""

    def _tell(self, broker: Broker, command: RemotingCommand) -> RemotingCommand:
        """As a broker does: the topic first, then the mapping."""
        fields = broker.fields = dict(command.ext_fields or {})
        assert fields["topic"] == TOPIC
        broker.config = {
            "topicName": TOPIC, "perm": int(fields["perm"]), "order": fields["order"] == "true",
            "readQueueNums": int(fields["readQueueNums"]),
            "writeQueueNums": int(fields["writeQueueNums"]), "topicFilterType": "SINGLE_TAG",
            "topicSysFlag": int(fields["topicSysFlag"]), "attributes": {},
        }  # fmt: skip
        detail = TopicQueueMappingDetail.of(fastjson.loads(command.body))
        found = updated(broker.detail, detail, force=fields["force"] == "true")
        if isinstance(found, str):
            return command.reply(1, found)
        broker.detail = found
        return command.reply(0)

    def _ends(self, broker: Broker, command: RemotingCommand) -> bytes:
        count = int(broker.config["writeQueueNums"]) if broker.config else 0
        self.asked_ends = [*asked_queues(command.ext_fields, count)]
        table = {
            queue: dict(
                zip(("minOffset", "maxOffset"), broker.ends.get(queue, (0, 0)), strict=True),
                lastUpdateTimestamp=1_000,
            )
            for queue in (range(count) if self.is_javas else self.asked_ends)
        }
        return self._table(broker, table)

    def _consumed(self, broker: Broker) -> bytes:
        count = int(broker.config["writeQueueNums"]) if broker.config else 0
        table = {
            queue: {
                "brokerOffset": broker.ends.get(queue, (0, 0))[1],
                "consumerOffset": broker.consumed.get(queue, -1),
                "pullOffset": broker.consumed.get(queue, -1),
                "lastTimestamp": 1_000,
            }
            for queue in range(count)
        }
        return self._table(broker, table)

    def _table(self, broker: Broker, table: dict[int, dict[str, int]]) -> bytes:
        """A map with object keys, which JSON has not."""
        rows = [
            fastjson.dumps({"topic": TOPIC, "brokerName": broker.name, "queueId": queue})
            + b":"
            + fastjson.dumps(row)
            for queue, row in table.items()
        ]
        return b'{"offsetTable":{' + b",".join(rows) + b"}}"
