"""A broker set as its controllers keep it, as JSON: what goes from other controllers to ours.

One such object is the body of 60013; a file of them is what ``exportControllerState`` writes, to be
read by people in between. What nobody could tell is ``None``, and is not taken in.
"""

from __future__ import annotations

import msgspec
from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError


class RegisteredReplica(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One broker of the set; Java's controllers do not tell its check code."""

    broker_id: int
    broker_address: str


class BrokerSetState(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A set knows this of itself.

    Attributes:
        cluster_name: None when neither its brokers nor a name server told.
        next_broker_id: the id that the next new broker is given.
        master_broker_id: None when it has no master.
        master_epoch: 0 when it never had one.
        sync_state_set: ascending ids.
        replicas: by ascending id.
    """

    cluster_name: str | None
    broker_name: str
    next_broker_id: int
    master_broker_id: int | None
    master_epoch: int
    sync_state_set: tuple[int, ...]
    sync_state_set_epoch: int
    replicas: tuple[RegisteredReplica, ...]

    def address(self, broker_id: int | None) -> str | None:
        """Where a replica is reached; None when there is no such one."""
        for one in self.replicas:
            if one.broker_id == broker_id:
                return one.broker_address
        return None

    def encode(self) -> bytes:
        """Write 60013's body."""
        return _encode(self)

    @classmethod
    def decode(cls, body: bytes) -> BrokerSetState:
        """Read 60013's body.

        Raises:
            RemoteProtocolError: not such a body.
        """
        try:
            return _decode(body)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RemoteProtocolError(f"not the state of a broker set: {error}") from error


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(BrokerSetState).decode
