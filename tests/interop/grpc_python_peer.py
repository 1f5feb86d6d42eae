"""Drives the real Python gRPC client of RocketMQ 5 by lines; see ``client_peer`` for the answers.

A program: ``python grpc_python_peer.py ENDPOINTS``, in an environment that has the client.

===========================================  ===================================================
producer TOPIC                               start a producer
send TOPIC COUNT PREFIX [group=GROUP]        send PREFIX-0, PREFIX-1, ...; ``group`` is the message
                                             group of an ordered topic
simple GROUP TOPIC                           start a simple consumer
receive GROUP COUNT INVISIBLE_S HOW          ``attempt:body`` of what came within two seconds; HOW is
                                             ack or keep
push GROUP TOPIC FAILURES                    start a push consumer; each message fails so often
got GROUP                                    ``attempt:body`` of everything it was given
===========================================  ===================================================
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

AWAIT_S = 2


class Peer:
    """The clients of one process, by what they were named."""

    def __init__(self, endpoints: str) -> None:
        import rocketmq

        self._library: Any = rocketmq
        self._configuration = rocketmq.ClientConfiguration(endpoints, rocketmq.Credentials())
        self._clients: dict[str, Any] = {}
        self._given: dict[str, list[str]] = {}

    def producer(self, topic: str) -> str:
        """Start a producer of a topic."""
        made = self._library.Producer(self._configuration, [topic])
        made.startup()
        self._clients[f"producer {topic}"] = made
        return ""

    def send(self, topic: str, count: str, prefix: str, *more: str) -> str:
        """Send some, one after another; their ids."""
        options = dict(one.split("=", 1) for one in more)
        found = []
        for number in range(int(count)):
            message = self._library.Message()
            message.topic = topic
            message.body = f"{prefix}-{number}".encode()
            if "group" in options:
                message.message_group = options["group"]
            found.append(self._clients[f"producer {topic}"].send(message).message_id)
        return ",".join(found)

    def _subscription(self, topic: str) -> dict[str, Any]:
        return {topic: self._library.FilterExpression("*")}

    def simple(self, group: str, topic: str) -> str:
        """Start a simple consumer."""
        made = self._library.SimpleConsumer(
            self._configuration, group, self._subscription(topic), await_duration=AWAIT_S
        )
        made.startup()
        self._clients[group] = made
        return ""

    def receive(self, group: str, count: str, invisible_s: str, how: str) -> str:
        """What there is; acknowledged or not."""
        found = self._clients[group].receive(int(count), int(invisible_s)) or []
        if how == "ack":
            for message in found:
                self._clients[group].ack(message)
        return ",".join(f"{one.delivery_attempt}:{one.body.decode()}" for one in found)

    def push(self, group: str, topic: str, failures: str) -> str:
        """Start a push consumer."""
        given: list[str] = []
        self._given[group] = given
        result = self._library.ConsumeResult

        class Listener(self._library.MessageListener):  # type: ignore[name-defined,misc]
            """Fails as often as it was told to."""

            def consume(self, message: Any) -> Any:
                """Keep it; say how it went."""
                given.append(f"{message.delivery_attempt}:{message.body.decode()}")
                failed = message.delivery_attempt <= int(failures)
                return result.FAILURE if failed else result.SUCCESS

        made = self._library.PushConsumer(
            self._configuration, group, Listener(), self._subscription(topic)
        )
        made.startup()
        self._clients[group] = made
        return ""

    def got(self, group: str) -> str:
        """What a push consumer was given so far."""
        return ",".join(self._given[group])


def main() -> None:
    """Answer lines until there are no more."""
    peer = Peer(sys.argv[1])
    print("ok", flush=True)
    for line in sys.stdin:
        word, *arguments = line.split()
        verb: Callable[..., str] = getattr(peer, word)
        try:
            answer = f"ok {verb(*arguments)}"
        except Exception as error:  # noqa: BLE001 whatever it is, the test is told
            answer = f"error {type(error).__name__}: {error}".replace("\n", " ")
        print(answer, flush=True)


if __name__ == "__main__":
    main()
