"""Bodies of answers as facts; members that a release does not write are empty."""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.client.ha_status import ha_document, read_ha_status
from rmqha.doctor.facts import ControllerView, HaFacts, SetView
from rmqha.remoting import fastjson
from rmqha.remoting.values import as_array, as_number, as_object, as_text

HEARD_MS_MAX = 20_000
"""Java's haHousekeepingInterval: a connection that is silent for longer is closed."""


def peers_of(text: str) -> dict[str, str]:
    """Members by id, of 1005: ``n0:10.0.0.1:9878;``, or JRaft's addresses alone."""
    found = {}
    for part in filter(None, text.split(";")):
        name, _, address = part.partition(":")
        found[name if ":" in address else part] = address if ":" in address else part
    return found


def view_of(body: bytes) -> ControllerView:
    """The answer to 60022.

    Raises:
        RemoteProtocolError: it is another document.
    """
    members = as_object(fastjson.loads(body))
    sets, joining = as_object(members.get("brokerSets")), _joining(members)
    return ControllerView(
        as_text(members.get("nodeId")),
        as_text(members.get("role")),
        as_number(members.get("term")),
        members.get("mayVote") is not False,
        as_number(members.get("appliedIndex")),
        as_number(members.get("commitIndex")),
        {name: _set_view(as_object(one)) for name, one in sets.items()},
        "" if members.get("nodeId") in joining else as_text(members.get("standing")),
        joining,
    )


def _joining(view: Mapping[str, object]) -> frozenset[str]:
    """The members without a vote: the store of one has lost nothing by being empty."""
    members = map(as_object, as_array(view.get("members")))
    return frozenset(as_text(one.get("id")) for one in members if one.get("votes") is False)


def _set_view(one: Mapping[str, object]) -> SetView:
    master_id = one.get("masterBrokerId")
    return SetView(
        None if master_id is None else as_number(master_id),
        as_number(one.get("masterEpoch")),
        tuple(map(as_number, as_array(one.get("syncStateSet")))),
        as_number(one.get("syncStateSetEpoch")),
    )


def ha_facts(body: bytes, broker_now_ms: int | None = None) -> HaFacts:
    """The answer to 907.

    Java's slaves never say ``activated`` in controller mode; there a master that was heard lately
    counts, by the broker's own clock.

    Raises:
        RemoteProtocolError: it is another document.
    """
    status = read_ha_status(ha_document(body))
    following = status.following
    silence_ms = (broker_now_ms or 0) - following.last_read_ms
    is_heard = broker_now_ms is not None and silence_ms <= HEARD_MS_MAX
    return HaFacts(
        status.is_master,
        following.master_address or "",
        following.is_activated or is_heard,
        status.in_sync_slaves,
        tuple(max(0, one.lag_bytes) for one in status.slaves),
        sum(one.is_in_sync for one in status.slaves),
        # Java writes /10.0.1.2:40000, or a name before it.
        tuple(
            one.address.rpartition("/")[2]
            for one in status.slaves
            if one.is_in_sync and one.address
        ),
    )


def topic_names(body: bytes) -> frozenset[str]:
    """The names in the answer to 21.

    Raises:
        RemoteProtocolError: it is another document.
    """
    return frozenset(as_object(as_object(fastjson.loads(body)).get("topicConfigTable")))
