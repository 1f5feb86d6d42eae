"""What a user may do that only shows once the broker has looked: a record is of a topic of its own.

A request can name a topic, and a record of another by its place in the log. Java looks at the name
alone; but here users and their passwords are records as well (ADR 0030).
"""

from __future__ import annotations

from rmqha.auth.aio.guard import Refusals
from rmqha.auth.check import Check
from rmqha.auth.contexts import record_contexts
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.resources import Action
from rmqha.auth.signature import Credentials
from rmqha.base.proofs import Secrets
from rmqha.broker.common.refusal import Refusal
from rmqha.broker.topics.aio.account_file import AccountFile
from rmqha.remoting.aio.connection import Connection
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.command import RemotingCommand
from rmqha.remoting.topic_names import is_system_topic
from rmqha.store import properties as props
from rmqha.store.metadata_records import METADATA_TOPIC
from rmqha.store.record import Record

_SENDS = frozenset(
    {RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE}
)

SLAVE_USER = "rmqha-slave"
"""Who signs with ``haSecret``: it is no user, and may nothing but copy the users."""


def slave_credentials(ha_secret: str) -> Credentials | None:
    """What a slave of a set with this secret signs its questions with; None without one."""
    return Credentials(SLAVE_USER, ha_secret) if ha_secret else None


def _accepted(secrets: Secrets) -> tuple[Credentials, ...]:
    """What slaves of the set may sign with; nothing while they may prove nothing as well."""
    if secrets.is_optional:
        return ()
    return tuple(Credentials(SLAVE_USER, one) for one in secrets.accepted)


class Rights:
    """Of one broker's users.

    Args:
        check: knows who has signed a request.
        ha_secrets: of the set.
    """

    def __init__(
        self, check: Check, accounts: AccountFile, refusals: Refusals, ha_secrets: Secrets
    ) -> None:
        self._check = check
        self._accounts = accounts
        self._refusals = refusals
        self._slaves = _accepted(ha_secrets)

    def refusal(
        self, connection: Connection, request: RemotingCommand, record: Record, *actions: Action,
        group: str = "",
    ) -> Refusal | None:  # fmt: skip
        """Why somebody may not have this record, whatever else was asked for.

        What is for replicas alone nobody has, with permissions switched off as well.

        Args:
            actions: one of them is needed, on what the record is of.
            group: who consumes it.
        """
        if record.topic == METADATA_TOPIC:
            remark = f"can not find message by the offset, {record.physical_offset}"
            return Refusal(ResponseCode.SYSTEM_ERROR, remark)
        return self.refusal_of_topic(connection, request, topic_of(record), *actions, group=group)

    def refusal_of_topic(
        self, connection: Connection, request: RemotingCommand, topic: str, *actions: Action,
        group: str = "",
    ) -> Refusal | None:  # fmt: skip
        """The same of a record that was not read, but of which the topic is known."""
        try:
            for resource, needed in record_contexts(topic, group, actions):
                self._check.require(request, connection.peer, resource, needed)
        except Refused as why:
            return self._refused(connection, request, why)
        return None

    def signer(self, request: RemotingCommand) -> str:
        """The name of the user who has signed a request; empty where permissions are not looked at,
        and of one that needs no signature and has none."""
        if not self._check.settings.authorization:
            return ""
        try:
            return self._check.user_of(request).name
        except Refused:
            return ""

    def is_enabled(self, user: str) -> bool:
        """Whether what a user has signed, as :meth:`signer` knew him, counts still; what nobody
        has signed does."""
        account = self._accounts.find(user)
        return not user or (account is not None and account.is_enabled)

    def may_be_sent(self, user: str, source_ip: str, topic: str, *actions: Action) -> bool:
        """Whether a client may be given a record of a topic because of its heartbeat.

        Its user's policies may have changed since. Where a send needs no permission at all
        (``authorizationWhitelist``), who produces has no policy that could allow it.

        Args:
            user: as :meth:`signer` knew him.
            actions: he needs one of them.
        """
        if Action.PUB in actions and _SENDS & self._check.settings.authorization_free:
            return True
        return all(
            self._check.allows(user, RequestCode.HEART_BEAT, source_ip, resource, needed)
            for resource, needed in record_contexts(topic, "", actions)
        )

    def refusal_of_users(self, connection: Connection, request: RemotingCommand) -> Refusal | None:
        """Why somebody may not have the users, with their passwords (201).

        Where permissions are checked, Get of the cluster was asked for. Else a super user may, and
        who proves to be a slave. Without anything by which slaves could, whoever asks: the
        replication port tells him the same.
        """
        settings = self._check.settings
        is_checked = settings.authorization and request.code not in settings.authorization_free
        can_prove = bool(self._slaves) or settings.credentials is not None
        if is_checked or not self._accounts.has_super or not can_prove:
            return None
        try:
            if not self._is_slave(request) and not self._check.user_of(request).is_super:
                raise Refused(Reason.NOT_SUPER, "only a super user may copy users")
        except Refused as why:
            return self._refused(connection, request, why)
        return None

    def _is_slave(self, request: RemotingCommand) -> bool:
        return any(one.have_signed(request) for one in self._slaves)

    def _refused(self, connection: Connection, request: RemotingCommand, why: Refused) -> Refusal:
        self._refusals.note(connection, request, why)
        return Refusal(ResponseCode.NO_PERMISSION, str(why))


def topic_of(record: Record) -> str:
    """The topic that a record is of, also while it waits in one of the broker's own."""
    if not is_system_topic(record.topic):
        return record.topic
    real = props.find(record.properties, b"REAL_TOPIC")
    return record.topic if real is None else real.decode("utf-8", "replace")
