"""Whether our controllers would take a broker set in, by their own rule, before any is given to them.

What only they know is left to them: how many sets and replicas they may keep, and what they hear from
brokers in this moment.
"""

from __future__ import annotations

from collections.abc import Iterable

from rmqha.base.errors import RmqhaError
from rmqha.base.ids import BrokerId
from rmqha.controller.metadata.decide_import import decide_import_broker_set
from rmqha.controller.metadata.decision import Context, LiveInfo
from rmqha.controller.metadata.imported import to_event
from rmqha.controller.metadata.state import MetadataState
from rmqha.remoting.bodies import ReplicasInfo
from rmqha.remoting.broker_set_state import BrokerSetState
from rmqha.remoting.codes import ResponseCode


class NotTakeable(RmqhaError):
    """The controllers would refuse the set as it is."""


class _Nobody:
    """A table of live brokers without any."""

    def alive(self, now_ms: int, cluster: str, name: str, broker_id: BrokerId) -> bool:
        return False

    def info(self, cluster: str, name: str, broker_id: BrokerId) -> LiveInfo | None:
        return None

    def heard_in(self, cluster: str, name: str) -> Iterable[tuple[BrokerId, LiveInfo]]:
        return ()

    def first_heard_ms(self, cluster: str, name: str) -> int | None:
        return None


def need_takeable(one: BrokerSetState, known: ReplicasInfo | None) -> None:
    """Refuse what the leader would refuse (60013).

    Args:
        one: the set as it would be given to it.
        known: what the leader keeps under this name (1006); None for nothing.

    Raises:
        NotTakeable: the set is malformed, or known otherwise.
    """
    fields = {"brokerName": one.broker_name}
    decision = decide_import_broker_set(
        MetadataState(), Context(0, _Nobody()), fields, one.encode()
    )
    if decision.code != ResponseCode.SUCCESS:
        raise NotTakeable(f"{one.broker_name}: {decision.remark}")
    if known is not None and not _is_as_imported(one, known):
        raise NotTakeable(
            f"{one.broker_name}: the controllers know this set already, with master epoch"
            f" {known.master_epoch}: it is not overwritten. Leave it out with --brokerNames"
        )


def _is_as_imported(one: BrokerSetState, known: ReplicasInfo) -> bool:
    """Whether it was taken in before, and nothing has happened since: the leader says yes again."""
    event = to_event(one, one.cluster_name or "")
    replicas = (*known.in_sync_replicas, *known.not_in_sync_replicas)
    return (
        known.master_broker_id == event.master_broker_id
        and known.master_epoch == event.master_epoch
        and known.sync_state_set_epoch == event.sync_state_set_epoch
        and {each.broker_id for each in known.in_sync_replicas} == set(event.sync_state_set)
        and sorted((each.broker_id, each.broker_address) for each in replicas)
        == list(event.replicas)
    )
