"""Who consumes how, and from which queues, where brokers assign them: requests 400, 401 and 402.

Source: QueryAssignmentProcessor, MessageRequestModeManager and AllocateMessageQueueAveragely of
RocketMQ 5.0 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import MessageQueue, json_object, number, read_object, text
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.topic_table import QUEUES_MAX
from rmqha.remoting import fastjson
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.topic_names import BROADCASTING, RETRY_PREFIX

PULL, POP = "PULL", "POP"
ANY_QUEUE = -1

ROUTE_QUEUES_MAX = 16_384
"""Of a topic on all brokers: anybody may register brokers at a name server."""


class RequestMode(NamedTuple):
    """How a group consumes a topic.

    Attributes:
        share: popShareQueueNum: how many of its neighbours' queues a client pops as well; 0 and
            below, or nearly all, means every queue.
    """

    topic: str
    group: str
    mode: str = PULL
    share: int = 0

    def members(self) -> dict[str, Any]:
        """The JSON members."""
        return {
            "consumerGroup": self.group,
            "mode": self.mode,
            "popShareQueueNum": self.share,
            "topic": self.topic,
        }

    @classmethod
    def of(cls, value: object) -> RequestMode:
        """Read the JSON members; raises RemoteProtocolError."""
        members = json_object(value, "a request mode")
        mode = text(members, "mode", PULL)
        if mode not in (PULL, POP):
            raise RemoteProtocolError(f"mode {mode!r} is neither {PULL} nor {POP}")
        return cls(
            text(members, "topic"), text(members, "consumerGroup"), mode,
            number(members, "popShareQueueNum", 0),
        )  # fmt: skip


class RequestModes:
    """The modes that operators have set.

    Args:
        modes_max: pairs of topic and group.
        default: the mode of all others; retry topics are always pulled.
    """

    def __init__(self, modes_max: int, default: RequestMode) -> None:
        self._modes: dict[tuple[str, str], RequestMode] = {}
        self._max = modes_max
        self._default = default

    def __len__(self) -> int:
        return len(self._modes)

    def find(self, topic: str, group: str) -> RequestMode:
        """The mode that counts."""
        known = self._modes.get((topic, group))
        if known is not None:
            return known
        mode = PULL if topic.startswith(RETRY_PREFIX) else self._default.mode
        return RequestMode(topic, group, mode, self._default.share if mode == POP else 0)

    def put(self, mode: RequestMode) -> Refusal | None:
        """Set a mode."""
        if mode.topic.startswith(RETRY_PREFIX):
            return Refusal(ResponseCode.NO_PERMISSION, "retry topic is not allowed to set mode")
        key = mode.topic, mode.group
        if key not in self._modes and len(self._modes) >= self._max:
            return Refusal(1, f"there are {self._max} request modes already")
        self._modes[key] = mode
        return None

    def known(self, topic: str, group: str) -> RequestMode | None:
        """The mode that an operator has set."""
        return self._modes.get((topic, group))

    def take_back(self, mode: RequestMode, before: RequestMode | None) -> None:
        """A mode that was set is not to count, and one that somebody has set meanwhile is."""
        key = mode.topic, mode.group
        if self._modes.get(key) is not mode:
            return
        if before is None:
            del self._modes[key]
        else:
            self._modes[key] = before

    def members(self) -> dict[str, Any]:
        """The JSON members of the file and of 402."""
        table: dict[str, dict[str, Any]] = {}
        for (topic, group), mode in sorted(self._modes.items()):
            table.setdefault(topic, {})[group] = mode.members()
        return {"messageRequestModeMap": table}

    def load(self, value: Mapping[str, Any]) -> bool:
        """Take the place of what is known; whether that changed anything.

        Raises:
            RemoteProtocolError: not such members.
        """
        found: dict[tuple[str, str], RequestMode] = {}
        topics = json_object(value.get("messageRequestModeMap") or {}, "messageRequestModeMap")
        for topic, groups in topics.items():
            for group, one in json_object(groups, "the modes of a topic").items():
                mode = RequestMode.of(one)._replace(topic=topic, group=group)
                if len(found) < self._max:
                    found[topic, group] = mode
        changed = found != self._modes
        self._modes = found
        return changed


class AssignmentRequest(NamedTuple):
    """The body of 400."""

    topic: str
    group: str
    client_id: str
    strategy: str
    message_model: str

    @classmethod
    def decode(cls, body: bytes) -> AssignmentRequest:
        """Read a body; raises RemoteProtocolError."""
        members = read_object(body, "a request for an assignment")
        return cls(
            text(members, "topic"), text(members, "consumerGroup"), text(members, "clientId", ""),
            text(members, "strategyName", "AVG"), text(members, "messageModel", "CLUSTERING"),
        )  # fmt: skip


def assign(
    asked: AssignmentRequest,
    mode: RequestMode,
    queues: Sequence[MessageQueue],
    client_ids: Sequence[str],
) -> list[MessageQueue] | None:
    """The queues of one client; None when nobody can say, which leaves it what it has.

    Args:
        queues: of the topic, on all brokers.
        client_ids: of the group, as this broker knows it.
    """
    if not queues:
        return None
    if asked.message_model == BROADCASTING:
        return sorted(queues)
    if not client_ids or asked.strategy not in ("AVG", "AVG_BY_CIRCLE"):
        return None
    ordered, clients = sorted(queues), sorted(client_ids)
    if mode.mode != POP:
        return _share(asked.strategy, asked.client_id, ordered, clients)
    if mode.share <= 0 or mode.share >= len(clients) - 1:
        # Every client pops from every broker, and the broker chooses the queue.
        return sorted({queue._replace(queue_id=ANY_QUEUE) for queue in ordered})
    if asked.client_id not in clients:
        return []
    at = clients.index(asked.client_id)
    if len(clients) > len(ordered):
        return [ordered[at % len(ordered)]]
    found: set[MessageQueue] = set()
    for step in range(mode.share + 1):
        neighbour = clients[(at + step) % len(clients)]
        found.update(_share(asked.strategy, neighbour, ordered, clients))
    return sorted(found)


def _share(
    strategy: str, client_id: str, queues: Sequence[MessageQueue], clients: Sequence[str]
) -> list[MessageQueue]:
    """A client's part of the queues, as Java's clients would compute it."""
    if client_id not in clients:
        return []
    at = clients.index(client_id)
    if strategy == "AVG_BY_CIRCLE":
        return list(queues[at :: len(clients)])
    size, more = divmod(len(queues), len(clients))
    first = at * size + min(at, more)
    return list(queues[first : first + size + (at < more)])


def assignment_body(queues: Sequence[MessageQueue] | None, mode: str) -> bytes:
    """The body of an answer to 400."""
    if queues is None:
        return fastjson.dumps({})
    return fastjson.dumps(
        {
            "messageQueueAssignments": [
                {"messageQueue": queue.members(), "mode": mode} for queue in queues
            ]
        }
    )


def route_queues(topic: str, route: Mapping[str, Any]) -> list[MessageQueue]:
    """The queues that consumers read, of an answer to 105.

    Raises:
        RemoteProtocolError: not such an answer, or more queues than anybody has.
    """
    found: list[MessageQueue] = []
    for value in route.get("queueDatas") or ():
        members = json_object(value, "queue data")
        if not number(members, "perm", 6) & 4:
            continue
        name = text(members, "brokerName")
        count = min(number(members, "readQueueNums", 0), QUEUES_MAX)
        if len(found) + count > ROUTE_QUEUES_MAX:
            raise RemoteProtocolError(f"a route with more than {ROUTE_QUEUES_MAX} queues")
        found += [MessageQueue(topic, name, queue_id) for queue_id in range(count)]
    return found
