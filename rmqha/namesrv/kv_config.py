"""Key-value configuration by namespace: the only thing that a name server keeps on disk.

Source: KVConfigManager and KVConfigSerializeWrapper, RocketMQ namesrv.
"""

from __future__ import annotations

from bisect import bisect_left, insort

from rmqha.base.errors import RemoteProtocolError, StoreCorrupted
from rmqha.remoting import fastjson

ORDER_TOPIC_CONFIG = "ORDER_TOPIC_CONFIG"
"""How ordered topics' queues lie over the brokers: ``broker-a:4;broker-b:4`` by topic."""

ENTRY_BYTES = 200
"""What a key or a namespace costs besides its characters: a million empty keys are 200 MB."""


class _Namespace:
    """Texts by key, with the JSON of each: to write all of 16 MiB anew for each change kept the
    loop for a quarter of a second."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self._keys: list[str] = []
        self._members: dict[str, bytes] = {}

    def put(self, key: str, value: str) -> None:
        if key not in self.values:
            insort(self._keys, key)
        self.values[key] = value
        self._members[key] = b"%b:%b" % (fastjson.dumps(key), fastjson.dumps(value))

    def pop(self, key: str) -> str | None:
        if key in self.values:
            del self._keys[bisect_left(self._keys, key)], self._members[key]
        return self.values.pop(key, None)

    def body(self) -> bytes:
        return b"{%b}" % b",".join(map(self._members.__getitem__, self._keys))


class KvConfig:
    """Texts by namespace and key.

    A namespace goes with its last key, where Java keeps it for ever; that of ordered topics stays:
    a broker that gets an empty one hears that the last order is gone.
    """

    def __init__(self, bytes_max: int) -> None:
        self._table: dict[str, _Namespace] = {}
        # Every registration is answered with that of ordered topics, up to 16 MiB.
        self._answers: dict[str, bytes] = {}
        self._bytes_max = bytes_max
        self._bytes = 0

    @property
    def content_bytes(self) -> int:
        """Of namespaces, keys and values, with what each costs besides."""
        return self._bytes

    def get(self, namespace: str, key: str) -> str | None:
        """A value; None when there is none."""
        known = self._table.get(namespace)
        return None if known is None else known.values.get(key)

    def put(self, namespace: str, key: str, value: str) -> bool:
        """Set a value; False when there is no room for it, and nothing has changed."""
        size = self._bytes + _size(key, value)
        known = self._table.get(namespace)
        if known is None:
            size += _size(namespace)
        elif key in known.values:
            size -= _size(key, known.values[key])
        if size > self._bytes_max:
            return False
        self._put(namespace, key, value, size)
        return True

    def _put(self, namespace: str, key: str, value: str, size: int) -> None:
        self._answers.pop(namespace, None)
        self._table.setdefault(namespace, _Namespace()).put(key, value)
        self._bytes = size

    def delete(self, namespace: str, key: str) -> None:
        """Remove a value, and its namespace with the last one."""
        known = self._table.get(namespace)
        if known is None:
            return
        self._answers.pop(namespace, None)
        if (value := known.pop(key)) is not None:
            self._bytes -= _size(key, value)
        if not known.values and namespace != ORDER_TOPIC_CONFIG:
            del self._table[namespace]
            self._bytes -= _size(namespace)

    def namespace_body(self, namespace: str) -> bytes | None:
        """A namespace as a KVTable, kept until it changes; None for one that is not there."""
        kept, table = self._answers.get(namespace), self._table.get(namespace)
        if kept is not None or table is None:
            return kept
        body = self._answers[namespace] = b'{"table":%b}' % table.body()
        return body

    def content(self) -> bytes:
        """What ``kvConfig.json`` holds."""
        members = (
            b"%b:%b" % (fastjson.dumps(name), self._table[name].body())
            for name in sorted(self._table)
        )
        return b'{"configTable":{%b}}' % b",".join(members)

    def load(self, content: bytes) -> None:
        """Take what ``kvConfig.json`` holds; an empty file is an empty table.

        Raises:
            StoreCorrupted: it is not what Java or we write, or its texts are more than there is
                room for. What they cost besides was not counted by releases of before, so it keeps
                nobody from starting, only from putting more.
        """
        if not content.strip():
            return
        try:
            members = fastjson.loads(content)
        except RemoteProtocolError as error:
            raise StoreCorrupted(f"not KV configuration: {error}") from error
        table = members.get("configTable") if isinstance(members, dict) else members
        if not isinstance(table, dict):
            raise StoreCorrupted("not KV configuration: there is no configTable")
        texts = 0
        for namespace, values in table.items():
            if not isinstance(values, dict):
                raise StoreCorrupted(f"not KV configuration: {namespace} is no table")
            if values or namespace == ORDER_TOPIC_CONFIG:
                texts += len(namespace)
                self._table[namespace] = _Namespace()
                self._bytes += _size(namespace)
            for key, value in values.items():
                if not isinstance(value, str):
                    raise StoreCorrupted(f"not KV configuration: {namespace}.{key} is no text")
                texts += len(key) + len(value)
                if texts > self._bytes_max:
                    raise StoreCorrupted(f"more than kvBytesMax={self._bytes_max} bytes")
                self._put(namespace, key, value, self._bytes + _size(key, value))


def _size(key: str, value: str = "") -> int:
    return ENTRY_BYTES + len(key) + len(value)
