"""Servers that work and tell nothing here: for who asks, or for how they are spoken to.

Nothing else is said of them: whoever is not let in knows neither that a server is well nor that it
is not.
"""

from __future__ import annotations

from collections.abc import Iterator

from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import BrokerFacts, ControllerFacts, Door, Facts, NameServerFacts

_STEPS = {
    Door.TLS: "Give --tls, or --tlsConfig FILE with the tls.client keys that this server asks for"
    " (docs/SECURITY.md). RMQHA_TLS and RMQHA_TLS_CONFIG stand for both.",
    Door.PLAIN: "Leave --tls and --tlsConfig away, and RMQHA_TLS and RMQHA_TLS_CONFIG, for this"
    " server. If it should speak TLS: tls.server.mode in its file.",
    Door.CERTIFICATE: "Give --tlsConfig FILE: with tls.client.certPath and tls.client.keyPath where"
    " the server asks for a certificate (tls.server.need.client.auth), and with the authority of the"
    " server's own in tls.client.trustCertPath where it is checked.",
}


def credentials_refused(facts: Facts) -> Iterator[Found]:
    """A server asks who sends a request, and refuses who asks here."""
    for kind, one in _servers(facts):
        if one.denied:
            yield Found(
                one.address,
                f"the {kind} does not tell who asks here what it is asked: {one.denied}",
                "It works, and asks for a user (authenticationEnabled, authorizationEnabled). Nothing"
                " that it did not tell is judged.",
                "Put accessKey and secretKey of a user that may ask into"
                " $ROCKETMQ_HOME/conf/tools.yml, or into the file that $RMQHA_TOOLS_FILE names. A"
                " super user may; of brokers also one with Get of the cluster.",
            )


def answer_unreadable(facts: Facts) -> Iterator[Found]:
    """A server answers, and what it says cannot be read."""
    for kind, one in _servers(facts):
        if one.unreadable:
            yield Found(
                one.address,
                f"the {kind} answers what no {kind} of RocketMQ says: {one.unreadable}",
                "It is another server, a proxy is between, or it is of a release that is not known"
                " here. Nothing is judged of what it would tell.",
                "Look at who listens there, on its machine: ss -ltnp. If it is the server that was"
                " meant, look at its release and its log; mqadmin asks it the same.",
            )


def tls_differs(facts: Facts) -> Iterator[Found]:
    """A server is spoken to in plain where it speaks TLS, or the other way round."""
    for kind, one in _servers(facts):
        if one.silent is not None and one.silent.door is not None:
            door = one.silent.door
            yield Found(
                one.address,
                f"the {kind} cannot be asked: {door.value}",
                f"It was tried the other way, and somebody answered. ({one.silent.reason})"
                " Nothing is judged of what it would tell.",
                _STEPS[door],
            )


def _servers(
    facts: Facts,
) -> Iterator[tuple[str, ControllerFacts | NameServerFacts | BrokerFacts]]:
    yield from (("controller", one) for one in facts.controllers)
    yield from (("name server", one) for one in facts.name_servers)
    yield from (("broker", one) for one in facts.brokers)
