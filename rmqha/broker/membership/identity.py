"""How a broker gets the id that it keeps for good, and survives a crash at every step of it.

INITIAL, then an id is chosen and kept in a temporary file, then the controller grants it, then the
final file is written. A lost answer to "apply" is asked again with the same check code, which the
controller takes for the same broker; Java throws the temporary file away and leaves the granted id
unused for ever. Only a clear refusal (2014) makes this machine choose another id.

Source: persistent-broker-id design; ReplicasManager of RocketMQ 5.1.1 to 5.5.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple

from rmqha.base.errors import StoreMismatch
from rmqha.remoting.codes import RequestCode, ResponseCode
from rmqha.remoting.headers import ext_fields, long_field
from rmqha.store.identity import Identity


class RegisterState(Enum):
    """Java's names; a file on disk stands behind each but the first and the last."""

    INITIAL = "initial"
    CREATE_TEMP_METADATA_FILE_DONE = "create_temp_metadata_file_done"
    CREATE_METADATA_FILE_DONE = "create_metadata_file_done"
    REGISTERED = "registered"


class AskNextId(NamedTuple):
    """Ask the controller for the next free id (1012)."""

    fields: dict[str, str]


class ApplyId(NamedTuple):
    """Ask the controller for the id of the temporary file (1013)."""

    fields: dict[str, str]


class WriteTemporary(NamedTuple):
    """Keep what will be applied for; ends in :meth:`Registration.temporary_written`."""

    identity: Identity


class RemoveTemporary(NamedTuple):
    """Forget an id that belongs to somebody else; ends in ``temporary_removed``."""


class WriteIdentity(NamedTuple):
    """Keep the id for good; ends in ``identity_written``. The temporary file goes after it."""

    identity: Identity


class Registration:
    """One broker's way to its id.

    Args:
        cluster_name, broker_name: as configured; the files must agree.
        address: where the broker serves; part of the check code.

    Attributes:
        state: how far it is.
        broker_id: set once the final file is there.
    """

    def __init__(self, cluster_name: str, broker_name: str, address: str) -> None:
        self.cluster_name = cluster_name
        self.broker_name = broker_name
        self.address = address
        self.state = RegisterState.INITIAL
        self.broker_id: int | None = None
        self._temporary: Identity | None = None

    def loaded(self, final: Identity | None, temporary: Identity | None) -> None:
        """Take what the disk holds; the final file wins over a temporary one beside it.

        Raises:
            StoreMismatch: a file names another cluster or broker set.
        """
        for identity in (final, temporary):
            if identity is not None:
                self._check_names(identity)
        if final is not None:
            self._done(final)
        elif temporary is not None:
            self.temporary_written(temporary)

    def _check_names(self, identity: Identity) -> None:
        mine = (self.cluster_name, self.broker_name)
        if (identity.cluster_name, identity.broker_name) != mine:
            raise StoreMismatch(
                f"the store belongs to broker {identity.broker_name} of cluster "
                f"{identity.cluster_name}, the configuration says {mine[1]} of {mine[0]}"
            )

    def _done(self, identity: Identity) -> None:
        self.state = RegisterState.CREATE_METADATA_FILE_DONE
        self.broker_id = identity.broker_id
        self._temporary = None

    @property
    def is_identified(self) -> bool:
        """The id is on disk for good."""
        return self.broker_id is not None

    def request(self) -> AskNextId | ApplyId | None:
        """What to ask the controller now; None when the id is known."""
        names = ext_fields(clusterName=self.cluster_name, brokerName=self.broker_name)
        if self.is_identified:
            return None
        if self._temporary is None:
            return AskNextId(names)
        identity = self._temporary
        applied = ext_fields(
            appliedBrokerId=identity.broker_id, registerCheckCode=identity.check_code
        )
        return ApplyId({**names, **applied})

    # -- answers of the controller -------------------------------------------------------------

    def answered(
        self, code: int, fields: Mapping[str, str] | None, wall_ms: int
    ) -> WriteTemporary | WriteIdentity | RemoveTemporary | None:
        """Take the answer to :meth:`request`; None when it has to be asked again."""
        if self._temporary is None:
            return self.next_id_answered(code, fields, wall_ms)
        return self.apply_answered(code)

    def next_id_answered(
        self, code: int, fields: Mapping[str, str] | None, wall_ms: int
    ) -> WriteTemporary | None:
        """Take the answer to 1012; None when it names no id and has to be asked again."""
        broker_id = long_field(fields, "nextBrokerId", 0)
        if code != ResponseCode.SUCCESS or broker_id < 1:
            return None
        check_code = f"{self.address};{wall_ms}"
        return WriteTemporary(Identity(self.cluster_name, self.broker_name, broker_id, check_code))

    def apply_answered(self, code: int) -> WriteIdentity | RemoveTemporary | None:
        """Take the answer to 1013; None when it has to be asked again just so."""
        if self._temporary is None:
            return None
        if code == ResponseCode.SUCCESS:
            return WriteIdentity(
                Identity(self.cluster_name, self.broker_name, self._temporary.broker_id)
            )
        if code == ResponseCode.CONTROLLER_BROKER_ID_INVALID:
            return RemoveTemporary()
        return None

    def registered(self) -> None:
        """The controller has answered 1003 with success."""
        self.state = RegisterState.REGISTERED

    # -- what the disk has done ------------------------------------------------------------------

    def temporary_written(self, identity: Identity) -> None:
        """The temporary file is durable."""
        self._temporary = identity
        self.state = RegisterState.CREATE_TEMP_METADATA_FILE_DONE

    def temporary_removed(self) -> None:
        """The temporary file is gone."""
        self._temporary = None
        self.state = RegisterState.INITIAL

    def identity_written(self, identity: Identity) -> None:
        """The final file is durable."""
        self._done(identity)


REQUEST_OF = {
    AskNextId: RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
    ApplyId: RequestCode.CONTROLLER_APPLY_BROKER_ID,
}
