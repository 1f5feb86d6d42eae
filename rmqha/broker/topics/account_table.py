"""The users of a broker set with their policies, kept in ``config/accounts.json``.

Java keeps them in RocksDB, each broker its own, and has a command to copy them; here they are
records of the set's log, as topics are (ADR 0030).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from rmqha.auth.accounts import Account, read_account
from rmqha.auth.refused import ChangeRefused
from rmqha.base.errors import RemoteProtocolError
from rmqha.broker.common.json_members import json_object
from rmqha.broker.common.versioned_table import COUNT_MAX, VersionedTable
from rmqha.remoting import fastjson
from rmqha.remoting.data_version import DataVersion

ACCOUNTS_BYTES_MAX = 1 << 20
"""Of all accounts as JSON, some thousands: the answer to 201 carries them to a slave that has none,
and answers to mqadmin carry them all."""


class AccountTable(VersionedTable[Account]):
    """All accounts of one broker, by the user's name."""

    def __init__(
        self, accounts: Iterable[Account] = (), version: DataVersion | None = None
    ) -> None:
        super().__init__(accounts, version, _json_bytes, ACCOUNTS_BYTES_MAX)

    def members(self) -> dict[str, Any]:
        """``config/accounts.json``, and a member of the answer to 201."""
        return {
            "dataVersion": self.version.members(),
            "accounts": self.item_members(),
        }

    @classmethod
    def of(cls, value: Mapping[str, Any]) -> AccountTable:
        """Read :meth:`members`; raises RemoteProtocolError."""
        table = json_object(value.get("accounts") or {}, "the table of accounts")
        if len(table) > COUNT_MAX:
            raise RemoteProtocolError(f"more than {COUNT_MAX} accounts")
        version = DataVersion.of(value.get("dataVersion") or {})
        return cls(map(account_of, table.values()), version)


def account_of(value: object) -> Account:
    """Read an account's members; raises RemoteProtocolError."""
    try:
        return read_account(json_object(value, "an account"))
    except ChangeRefused as error:
        raise RemoteProtocolError(f"an account: {error}") from error


def _json_bytes(account: Account) -> int:
    """How long an account's member of the table is, at most."""
    return len(fastjson.dumps(account.members())) + len(fastjson.dumps(account.name)) + 2
