"""Static topics with long histories, for measurements: mappings told to brokers as mqadmin tells them.

The queues lie with the first broker set; their older segments with both in turn, each with one
message, so that none of them expires.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence

from rmqha.client.offsets import decode_topic_stats
from rmqha.remoting import fastjson
from rmqha.remoting.aio.client import RemotingClient
from rmqha.remoting.command import RemotingCommand
from rmqha.statictopic.mapping import LogicQueueMappingItem, Segments, TopicQueueMappingDetail
from rmqha.statictopic.translate import BLOCK

_AT_ONCE = 256
_LOOK_S = 0.5


def histories(names: Sequence[str], queues: int, segments: int) -> dict[int, Segments]:
    """Of each logical queue so many segments, the last one at the first name."""
    first = (segments - 1) % len(names)
    free = dict.fromkeys(names, 0)

    def segment(number: int) -> LogicQueueMappingItem:
        name = names[(number + first) % len(names)]
        free[name] += 1
        return LogicQueueMappingItem(number, free[name] - 1, name, number * BLOCK)

    return {logical: tuple(map(segment, range(segments))) for logical in range(queues)}


async def prepare(
    client: RemotingClient, addresses: Mapping[str, str], topic: str, queues: int, segments: int
) -> None:
    """Make a static topic whose logical queues have so many segments with messages.

    Raises:
        RuntimeError: a broker has refused.
    """
    lists = histories([*addresses], queues, segments)
    used = dict.fromkeys(addresses, 0)
    for one in (one for history in lists.values() for one in history):
        used[one.broker_name] = max(used[one.broker_name], one.queue_id + 1)
    for name, address in addresses.items():
        detail = TopicQueueMappingDetail(topic, queues, name, 1, hosted_queues=lists)
        fields = {
            "topic": topic, "readQueueNums": str(used[name]), "writeQueueNums": str(used[name]),
            "perm": "6", "topicFilterType": "SINGLE_TAG", "topicSysFlag": "0", "order": "false",
            "defaultTopic": "TBW102", "force": "false",
        }  # fmt: skip
        command = RemotingCommand(513, ext_fields=fields, body=fastjson.dumps(detail.members()))
        await _ask(client, address, command)
    places = ((addresses[name], queue) for name, count in used.items() for queue in range(count))
    await asyncio.gather(*(_fill(client, topic, places) for _ in range(_AT_ONCE)))
    for address in addresses.values():
        while not await _is_filled(client, address, topic):  # noqa: ASYNC110 - it tells nobody
            await asyncio.sleep(_LOOK_S)


async def _is_filled(client: RemotingClient, address: str, topic: str) -> bool:
    """Whether each message is in its queue: making thousands of these takes seconds (202)."""
    answer = await _ask(client, address, RemotingCommand(202, ext_fields={"topic": topic}))
    offsets, _ = decode_topic_stats(answer.body)
    return all(one.max_offset == 1 for one in offsets.values())


async def _fill(client: RemotingClient, topic: str, places: Iterator[tuple[str, int]]) -> None:
    """One message for each physical queue that nobody else has taken from the iterator."""
    for address, queue in places:
        fields = {
            "a": "PG", "b": topic, "c": "TBW102", "d": "4", "e": str(queue), "f": "0", "g": "1",
            "h": "0", "i": "", "j": "0", "k": "false", "m": "false", "lo": "false",
        }  # fmt: skip
        await _ask(client, address, RemotingCommand(310, ext_fields=fields, body=b"x"))


async def _ask(client: RemotingClient, address: str, command: RemotingCommand) -> RemotingCommand:
    answer = await client.invoke(address, command, 30_000)
    if answer.code != 0:
        raise RuntimeError(f"{address} answers {command.code} with {answer.code}: {answer.remark}")
    return answer
