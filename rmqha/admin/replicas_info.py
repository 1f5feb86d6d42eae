"""1006, in pages: an answer about all broker sets of a large cluster fits into no frame."""

from __future__ import annotations

from collections.abc import Sequence

from rmqha.client.exchange import Exchange, ask_leader
from rmqha.remoting.bodies import BrokerReplicasInfo, ReplicasInfo, encode_names
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

NAMES_A_PAGE = 500


def replicas_infos(
    controllers: tuple[str, ...], names: Sequence[str]
) -> Exchange[tuple[str, dict[str, ReplicasInfo]]]:
    """Ask the leader who is in sync in these broker sets.

    Returns:
        The leader who answered last, and what is known by set's name; two pages may be of different
        moments.
    """
    found: dict[str, ReplicasInfo] = {}
    leader = ""
    # Without names it asks all the same: the leader says what it thinks of that.
    for at in range(0, max(len(names), 1), NAMES_A_PAGE):
        body = encode_names(names[at : at + NAMES_A_PAGE])
        request = RemotingCommand(RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, body=body)
        leader, answer = yield from ask_leader(controllers, request)
        found |= BrokerReplicasInfo.decode(answer.body).replicas_info_table
    return leader, found
