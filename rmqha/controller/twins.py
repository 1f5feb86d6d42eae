"""Two brokers with one identity, as a restored image or a copied disk makes them.

Both would be the master of one epoch, with promises to both, and what one of them acknowledges is not at
the other. So an id that is heard over a connection that is open goes to no other address, whose heartbeats
are those of nobody; a broker that has moved has closed its connections, or is silent for its heartbeats'
timeout.

Source: our own. Java's controllers take the last address that registers.
"""

from __future__ import annotations

from rmqha.base.ids import BrokerId
from rmqha.base.machine import Note
from rmqha.controller.liveness import Liveness
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.fields import broker_id_field
from rmqha.controller.metadata.messages import RequestReceived
from rmqha.controller.metadata.registrations import Identity
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.codes import RequestCode, ResponseCode

NOTE_EVERY_MS = 60_000
NOTED_MAX = 1_000
"""Twins that are remembered, so that each of their tries is no line in the log."""


def is_at(state: MetadataState, identity: Identity, address: str) -> bool:
    """Whether a broker may be at an address: it is registered there, or nowhere, or says none."""
    broker_set = state.sets.get(identity[1])
    replica = None if broker_set is None else broker_set.replicas.get(identity[2])
    return replica is None or not address or replica.address == address


class Twins:
    """Finds requests of brokers whose identity another one has.

    Args:
        liveness: whom this node hears.
    """

    def __init__(self, liveness: Liveness) -> None:
        self._liveness = liveness
        self._noted_ms: dict[tuple[str, BrokerId, str], int] = {}

    def refused(
        self, now_ms: int, state: MetadataState, request: RequestReceived
    ) -> Decision | None:
        """Why this 1003 is refused; None when it is not, nor any other request.

        It is no sign of life of the other broker either.
        """
        if request.code != RequestCode.CONTROLLER_REGISTER_BROKER:
            return None
        broker_set = state.sets.get(request.ext_fields.get("brokerName", ""))
        broker_id = broker_id_field(request.ext_fields, "brokerId")
        replica = (
            None if broker_set is None or broker_id is None else broker_set.replicas.get(broker_id)
        )
        address = request.ext_fields.get("brokerAddress", "")
        if (
            broker_set is None
            or broker_id is None
            or replica is None
            or address in ("", replica.address)
        ):
            return None
        name = broker_set.broker_name
        if not self._liveness.is_elsewhere(
            now_ms, request.connection, broker_set.cluster_name, name, broker_id
        ):
            return None
        return Decision(
            ResponseCode.CONTROLLER_INVALID_REQUEST,
            f"brokerId {broker_id} of {name} is alive at {replica.address}: a second broker with its"
            f" identity, at {address}, is not registered while that one is heard",
        )

    def notes(self, now_ms: int, request: RequestReceived, why: Decision) -> list[Note]:
        """The line for it, from time to time."""
        fields = request.ext_fields
        broker_id = broker_id_field(fields, "brokerId")
        key = (
            fields.get("brokerName", ""),
            BrokerId(broker_id or 0),
            fields.get("brokerAddress", ""),
        )
        last_ms = self._noted_ms.get(key)
        if last_ms is not None and now_ms - last_ms < NOTE_EVERY_MS:
            return []
        if len(self._noted_ms) >= NOTED_MAX:
            self._noted_ms.clear()
        self._noted_ms[key] = now_ms
        return [Note("broker_identity_twice", "error", {"broker": key[0], "reason": why.remark})]
