"""Which controller of its group a pod of Kubernetes is.

All pods of a StatefulSet have the same variables but for their names, so the group's members are
told to each and its own id is not. Source: the Controller resource of rocketmq-operator, whose
peers are ``controller0-controller-0.SERVICE:9878`` and so on, and which sets ``MY_POD_NAME``.
"""

from __future__ import annotations

from collections.abc import Mapping

POD_NAME = "MY_POD_NAME"
PEERS, SELF_ID = "controllerDLegerPeers", "controllerDLegerSelfId"


def named_by_pod(properties: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """The properties, with the id of the peer whose host is this pod where they have none.

    Args:
        properties: of file and environment.
        environment: all variables.
    """
    found = dict(properties)
    pod = environment.get(POD_NAME, "").strip()
    if pod and not found.get(SELF_ID, "").strip():
        for part in found.get(PEERS, "").split(";"):
            node, _, address = part.strip().partition("-")
            if address.partition(":")[0].partition(".")[0] == pod:
                found[SELF_ID] = node
    return found
