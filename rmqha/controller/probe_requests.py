"""60030: since when another controller has not heard a broker, and what it still promises it.

Fields of the question: clusterName, brokerName, brokerId. Of the answer: silentMs (-1 when it was
never heard) and promisedMs. A controller that does not know the code answers 3: nobody is given up
upon that.

Source: our own.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decide_register import NAME_LENGTH_MAX
from rmqha.controller.metadata.decision import Decision
from rmqha.controller.metadata.fields import broker_id_field
from rmqha.controller.metadata.probe_messages import NEVER_HEARD, PeerReport
from rmqha.controller.metadata.registrations import Identity
from rmqha.controller.probing import Probing
from rmqha.remoting.codes import ResponseCode
from rmqha.remoting.headers import ext_fields, long_field

UNREADABLE = -1


def silence_fields(identity: Identity) -> dict[str, str]:
    """The question about a broker."""
    cluster, name, broker_id = identity
    return ext_fields(clusterName=cluster, brokerName=name, brokerId=broker_id)


def silence_answer(now_ms: int, probing: Probing, fields: Mapping[str, str]) -> Decision:
    """Answer the question."""
    broker_id = broker_id_field(fields, "brokerId")
    if broker_id is None or broker_id < 1:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, "brokerId must be given")
    identity = (fields.get("clusterName", ""), fields.get("brokerName", ""), BrokerId(broker_id))
    if max(len(identity[0]), len(identity[1])) > NAME_LENGTH_MAX:
        return Decision(ResponseCode.CONTROLLER_INVALID_REQUEST, "no broker has so long a name")
    said = probing.report(now_ms, identity)
    answer = ext_fields(silentMs=said.silent_ms, promisedMs=said.promised_ms)
    return Decision(ResponseCode.SUCCESS, ext_fields=answer)


def read_silence(node: str, code: int, fields: Mapping[str, str] | None) -> PeerReport | None:
    """What a peer has answered; None when it is no answer to the question."""
    if code != ResponseCode.SUCCESS or fields is None:
        return None
    promised_ms = long_field(fields, "promisedMs", UNREADABLE)
    if promised_ms < 0:
        return None
    return PeerReport(
        node, max(NEVER_HEARD, long_field(fields, "silentMs", NEVER_HEARD)), promised_ms
    )
