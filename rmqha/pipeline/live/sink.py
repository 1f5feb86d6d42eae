"""The sink ``rocketmq``: rows of a batch or of a stream become messages, every row at least once.

A task that fails is run again by Spark and sends again what it had sent; the property ``DEDUP_ID`` is
the same for the same row, so that a reader can keep one of each.
"""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import Iterable, Iterator
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegralType,
    MapType,
    StringType,
    StructType,
)

from rmqha.base.errors import ConfigInvalid, LocalProtocolError, MessageIllegal
from rmqha.client.aio.master_client import MasterClient
from rmqha.client.routes import QueueKey
from rmqha.pipeline.live.aims import aim_of, is_aimed
from rmqha.pipeline.live.clients import Way, borrowed
from rmqha.pipeline.live.messages import Batch, Batcher, Outgoing, Row, RowId, Turns, to_message
from rmqha.pipeline.live.options import CONSUMER_GROUP, NAME, WriteOptions
from rmqha.pipeline.spark.plain_errors import one_line
from rmqha.pipeline.spark.worker import freeze_modules
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.headers import ext_fields
from rmqha.remoting.topic_names import AUTO_CREATE_TOPIC, TEMPLATE_QUEUES

LOG = logging.getLogger("rmqha.pipeline.live")
SENDS_AT_ONCE = 4
_BATCH_ID, _QUERY_ID = "streaming.sql.batchId", "sql.streaming.queryId"
"""What Spark calls them among a task's properties."""
_COLUMNS = (
    "body", "topic", "tags", "keys", "properties", "delayLevel", "shardingKey", "brokerName", "queueId",
)  # fmt: skip


class Sent(WriterCommitMessage):
    """What a task has sent.

    Attributes:
        messages, requests, body_bytes: how many.
    """

    def __init__(self) -> None:
        self.messages = self.requests = self.body_bytes = 0

    def __repr__(self) -> str:
        return f"<{self.messages} messages, {self.body_bytes} bytes in {self.requests} requests>"


class _Writer:
    """What both writers do. Travels to the workers by pickle."""

    def __init__(self, options: WriteOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigInvalid(f"{NAME} cannot overwrite a topic: use mode append")
        _check_schema(schema, has_topic=options.topic is not None)
        self._options = options
        self._names = schema.fieldNames()
        self._query_id = uuid.uuid4().hex

    @one_line()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Sent:
        """Send a task's rows; returns when every one is stored.

        Raises:
            MessageIllegal: a row that cannot be a message; those before it are sent.
            Refused, Unreachable: somebody does not store them.
        """
        options = self._options
        context = TaskContext.get()
        assert context is not None, "rows are written in tasks"
        task = (*self._ids(context), context.partitionId())
        way = Way(
            options.name_servers,
            timeout_ms=options.send_timeout_ms,
            failover_timeout_ms=options.failover_timeout_ms,
            group=CONSUMER_GROUP,
            access=options.access,
        )
        with borrowed(way) as cluster:
            sender = _Sender(cluster, options, Turns(*task))
            batcher = Batcher(options)
            for row_id, row in self._rows(iterator, task):
                message = to_message(row, row_id, options, cluster.clock.wall_ms())
                if is_aimed(row):
                    message = _aimed(message, row, row_id, cluster.writable(message.topic))
                sender.take(batcher.add(message))
            sender.take(batcher.rest())
            sender.flush()
            freeze_modules()
            return sender.sent

    def _ids(self, context: TaskContext) -> tuple[str, str]:
        """Names of the query and of its batch.

        A batch has a name of its own, also within ``foreachBatch``: two writes of the same rows
        there are two messages each.
        """
        return self._query_id, "0"

    def _rows(
        self, batches: Iterable[pa.RecordBatch], task: tuple[str, str, int]
    ) -> Iterator[tuple[RowId, Row]]:
        number = 0
        for batch in batches:
            given = {name: batch.column(i).to_pylist() for i, name in enumerate(self._names)}
            nothing = [None] * batch.num_rows
            columns = [given.get(name, nothing) for name in _COLUMNS]
            for body, topic, tags, keys, properties, level, *aim in zip(*columns, strict=True):
                row_id = RowId(*task, number)
                yield row_id, Row(body, topic, tags, keys, dict(properties or ()), level, *aim)
                number += 1


class LiveWriter(_Writer, DataSourceArrowWriter):
    """Writes a batch; there is nothing to commit, for what is stored is seen at once."""

    def commit(self, messages: list[Any]) -> None:
        """Say how much it was."""
        _tell(messages, "a batch")

    def abort(self, messages: list[Any]) -> None:
        """Say what stays in the topics."""
        _tell(messages, "a batch that failed")


class LiveStreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes a stream's batches."""

    def _ids(self, context: TaskContext) -> tuple[str, str]:
        """The same when the batch is written again, also by a query that was started again."""
        query_id, batch_id = (context.getLocalProperty(one) for one in (_QUERY_ID, _BATCH_ID))
        if not query_id or not batch_id:
            raise LocalProtocolError("Spark does not say which batch of which query this is")
        return query_id, batch_id

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Say how much it was."""
        _tell(messages, f"batch {batchId}")

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803 - Spark's name
        """Say what stays in the topics; it is sent once more with the batch."""
        _tell(messages, f"batch {batchId} that failed")


def _tell(messages: list[Any], what: str) -> None:
    sent = [one for one in messages if isinstance(one, Sent)]
    LOG.info("%d messages of %s", sum(one.messages for one in sent), what)


class _Sender:
    """Sends a few requests at a time.

    Attributes:
        sent: what has been acknowledged.
    """

    def __init__(self, cluster: MasterClient, options: WriteOptions, turns: Turns) -> None:
        self._cluster = cluster
        self._options = options
        self._waiting: list[Batch] = []
        self._turns = turns
        self.sent = Sent()

    def take(self, batches: Iterable[Batch]) -> None:
        """Send them, or keep them until there are enough."""
        for batch in batches:
            self._waiting.append(batch)
            if len(self._waiting) >= SENDS_AT_ONCE:
                self.flush()

    def flush(self) -> None:
        """Send what waits, and wait for its acknowledgements."""
        waiting, self._waiting = self._waiting, []
        if waiting:
            self._cluster.call(self._send_all(waiting))

    async def _send_all(self, batches: list[Batch]) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for some in _in_order(batches):
                    group.create_task(self._send_each(some))
        except ExceptionGroup as errors:
            raise errors.exceptions[0] from errors

    async def _send_each(self, batches: list[Batch]) -> None:
        for batch in batches:
            turn = 0 if batch.queue is not None else self._turns.take(batch.topic)
            await self._send(batch, turn)

    async def _send(self, batch: Batch, turn: int) -> None:
        code = RequestCode.SEND_MESSAGE_V2 if batch.is_single else RequestCode.SEND_BATCH_MESSAGE
        properties = batch.messages[0].properties.decode() if batch.is_single else ""
        body, wall_ms = batch.body(), self._cluster.clock.wall_ms()
        await self._cluster.send(
            batch.topic,
            turn,
            lambda queue: RemotingCommand(
                code,
                ext_fields=ext_fields(
                    a=self._options.producer_group, b=batch.topic, c=AUTO_CREATE_TOPIC, d=TEMPLATE_QUEUES,
                    e=queue.queue_id, f=0, g=wall_ms, h=0, i=properties, j=0, k=False,
                    m=not batch.is_single, n=queue.broker_name,
                ),
                body=body,
            ),
            batch.queue,
        )  # fmt: skip
        self.sent.messages += len(batch.messages)
        self.sent.requests += 1
        self.sent.body_bytes += sum(len(one.body) for one in batch.messages)


def _in_order(batches: Iterable[Batch]) -> list[list[Batch]]:
    """What may be sent at once: batches of one queue go one behind the other."""
    found: list[list[Batch]] = []
    of_queue: dict[QueueKey, list[Batch]] = {}
    for batch in batches:
        some = [] if batch.queue is None else of_queue.setdefault(batch.queue, [])
        if not some:
            found.append(some)
        some.append(batch)
    return found


def _aimed(message: Outgoing, row: Row, row_id: RowId, queues: list[QueueKey]) -> Outgoing:
    try:
        return message._replace(queue=aim_of(row, queues))
    except MessageIllegal as error:
        raise MessageIllegal(f"row {row_id}: {error}") from error


def _check_schema(schema: StructType, *, has_topic: bool) -> None:
    text: tuple[type[DataType], ...] = (StringType,)
    kinds: dict[str, tuple[type[DataType], ...]] = {
        "body": (BinaryType, StringType), "topic": text, "tags": text, "keys": text,
        "properties": (MapType,), "delayLevel": (IntegralType,), "shardingKey": text,
        "brokerName": text, "queueId": (IntegralType,),
    }  # fmt: skip
    for field in schema:
        if field.name not in kinds:
            raise ConfigInvalid(
                f"{NAME} writes no column {field.name}; it writes {', '.join(kinds)}"
            )
        kind = field.dataType
        is_text_map = not isinstance(kind, MapType) or (
            isinstance(kind.keyType, StringType) and isinstance(kind.valueType, StringType)
        )
        if not isinstance(kind, kinds[field.name]) or not is_text_map:
            raise ConfigInvalid(f"column {field.name} cannot be {kind.simpleString()}")
    names = schema.fieldNames()
    if "body" not in names:
        raise ConfigInvalid(f"{NAME} needs a column body, and has {', '.join(names) or 'none'}")
    if "topic" not in names and not has_topic:
        raise ConfigInvalid(f"{NAME} needs a column topic, or the option topic")
