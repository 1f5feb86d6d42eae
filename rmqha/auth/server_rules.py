"""Who may ask name servers and controllers for what: they have no topics and groups to protect.

Java checks nothing there (5.5: issues #10956 and #10957). Here three kinds of users are told apart:

- a super user may do everything: operators, and brokers whose innerClientAuthenticationCredentials
  name one, as in Java;
- a user with ``brokerNames`` speaks for these broker sets: registers, heartbeats, alters and elects
  for them, and for no others;
- any user may ask.
"""

from __future__ import annotations

from collections.abc import Mapping

from rmqha.auth.accounts import Account
from rmqha.auth.refused import Reason, Refused
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

NO_FIELDS: dict[str, str] = {}

ASKING = frozenset(
    int(code)
    for code in (
        RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.GET_BROKER_CLUSTER_INFO,
        RequestCode.GET_KV_CONFIG, RequestCode.GET_KVLIST_BY_NAMESPACE,
        RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_TOPICS_BY_CLUSTER,
        RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS, RequestCode.GET_UNIT_TOPIC_LIST,
        RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST, RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST,
        RequestCode.GET_BROKER_MEMBER_GROUP,
        RequestCode.CONTROLLER_GET_REPLICA_INFO, RequestCode.CONTROLLER_GET_METADATA_INFO,
        RequestCode.CONTROLLER_GET_SYNC_STATE_DATA, RequestCode.CONTROLLER_GET_NEXT_BROKER_ID,
        RequestCode.GET_NAMESRV_CONFIG, RequestCode.GET_CONTROLLER_CONFIG,
        RequestCode.GET_ELECTION_HISTORY, RequestCode.EXPLAIN_ELECTION,
        RequestCode.GET_BROKER_SILENCE,
    )
)  # fmt: skip
"""What any user may ask; secrets are in none of the answers."""

OF_A_BROKER = frozenset(
    int(code)
    for code in (
        RequestCode.REGISTER_BROKER, RequestCode.UNREGISTER_BROKER, RequestCode.BROKER_HEARTBEAT,
        RequestCode.QUERY_DATA_VERSION,
        RequestCode.CONTROLLER_ALTER_SYNC_STATE_SET, RequestCode.CONTROLLER_ELECT_MASTER,
        RequestCode.CONTROLLER_REGISTER_BROKER, RequestCode.CONTROLLER_APPLY_BROKER_ID,
    )
)  # fmt: skip
"""What a broker does; ``brokerName`` says for which set. 322 is its sign of life at a name server."""

CHANGING = frozenset(
    int(code)
    for code in (
        RequestCode.UPDATE_NAMESRV_CONFIG, RequestCode.UPDATE_CONTROLLER_CONFIG,
        RequestCode.CLEAN_BROKER_DATA, RequestCode.IMPORT_BROKER_SET,
        RequestCode.CHANGE_CONTROLLER_MEMBERS, RequestCode.TRANSFER_CONTROLLER_LEADER,
    )
)  # fmt: skip
"""What takes a super user as soon as there is one, also where authentication is off."""


def by_server_rules(account: Account, request: RemotingCommand, peer: str) -> None:
    """Let a user pass, or not; raises Refused."""
    code = request.code
    if account.is_super or code in ASKING:
        return
    if code in OF_A_BROKER and _speaks_for(account, request.ext_fields or NO_FIELDS):
        return
    raise Refused(
        Reason.NOT_SUPER, f"{account.subject} has no permission for request {code} from {peer}"
    )


def _speaks_for(account: Account, fields: Mapping[str, str]) -> bool:
    name = fields.get("brokerName", "")
    return any(
        name.startswith(one[:-1]) if one.endswith("*") else name == one
        for one in account.broker_names
    )
