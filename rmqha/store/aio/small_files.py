"""Identity and configuration files on a disk: replaced whole, with a copy to fall back to.

Source: RocketMQ's protocol as observed; unlike Java every write is atomic.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from rmqha.base.errors import StoreCorrupted
from rmqha.runtime.ports import Disk
from rmqha.store.config_files import BACKUP_SUFFIX, decode_config
from rmqha.store.identity import TEMPORARY_SUFFIX, Identity, decode_identity, encode_identity


class IdentityFiles:
    """A broker's ``brokerIdentity`` and ``brokerIdentity-temp``.

    Args:
        path: storePathBrokerIdentity.
    """

    def __init__(self, disk: Disk, path: str) -> None:
        self._disk = disk
        self._path = path

    async def read(self) -> Identity | None:
        """The final identity; None when the broker never had one.

        Raises:
            StoreCorrupted: the file is damaged; nobody may apply for a new id by mistake.
            DiskFailed: it cannot be read.
        """
        return await self._read(self._path, temporary=False)

    async def read_temporary(self) -> Identity | None:
        """The identity that was applied for; None without one. Raises as :meth:`read`."""
        return await self._read(self._path + TEMPORARY_SUFFIX, temporary=True)

    async def _read(self, path: str, *, temporary: bool) -> Identity | None:
        try:
            data = await self._disk.read(path)
        except FileNotFoundError:
            return None
        return decode_identity(data, path, temporary=temporary)

    async def write_temporary(self, identity: Identity) -> None:
        """Remember what is applied for, before asking the controller.

        Raises:
            ConfigInvalid: Java could not read it back.
            DiskFailed: it is not durable.
        """
        await self._write(self._path + TEMPORARY_SUFFIX, identity)

    async def write(self, identity: Identity) -> None:
        """Keep the identity for good; the temporary one goes afterwards. Raises as above."""
        await self._write(self._path, identity)
        await self.remove_temporary()

    async def _write(self, path: str, identity: Identity) -> None:
        data = encode_identity(identity)
        await self._disk.make_dirs(os.path.dirname(path))
        await self._disk.write_atomic(path, data)

    async def remove_temporary(self) -> None:
        """Forget what was applied for."""
        await self._disk.remove(self._path + TEMPORARY_SUFFIX)


class FoundConfig(NamedTuple):
    """The content of a ``config/*.json``.

    Attributes:
        is_copy: it comes from the ``.bak``.
    """

    value: dict[str, Any]
    is_copy: bool


async def read_config(disk: Disk, path: str) -> FoundConfig | None:
    """Read a ``config/*.json``, or its ``.bak`` when it is missing or damaged.

    Returns:
        None when neither file exists.

    Raises:
        StoreCorrupted: what exists is damaged.
        DiskFailed: it cannot be read.
    """
    damage: StoreCorrupted | None = None
    for candidate in (path, path + BACKUP_SUFFIX):
        try:
            value = decode_config(await disk.read(candidate), candidate)
            return FoundConfig(value, candidate != path)
        except FileNotFoundError:
            continue
        except StoreCorrupted as error:
            damage = damage or error
    if damage is not None:
        raise damage
    return None


async def write_config(disk: Disk, path: str, data: bytes, *, is_good: bool = False) -> None:
    """Write a ``config/*.json``; what was there before becomes its ``.bak``.

    Args:
        is_good: what was there before is known to be whole. Else it is read to see that, in one go:
            a damaged file must not replace a good copy.

    Raises:
        DiskFailed: old and new content are both still whole, in one of the two files.
    """
    await disk.make_dirs(os.path.dirname(path))
    try:
        before = await disk.read(path)
        if not is_good:
            decode_config(before, path)
        await disk.write_atomic(path + BACKUP_SUFFIX, before)
    except (FileNotFoundError, StoreCorrupted):
        pass
    await disk.write_atomic(path, data)
