"""The long way of a message: its properties are read once, whatever rules ask for them."""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from rmqha.broker.send.aio.send_requests import SendProcessor
from rmqha.store import properties as props
from tests.broker.replicas import ReplicaCluster, master_of, send_fields


def _visits(fields: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> int:
    """How often the broker's rooms go to the properties' module for one message."""
    send, visits = SendProcessor.send, []

    def watch(frame: FrameType, event: str, _: object) -> None:
        caller = frame.f_back
        by_broker = caller is not None and "/rmqha/broker/" in caller.f_code.co_filename
        if event == "call" and by_broker and frame.f_code.co_filename == props.__file__:
            visits.append(frame.f_code.co_name)

    def watched(*those: Any) -> Any:
        sys.setprofile(watch)
        try:
            return send(*those)
        finally:
            sys.setprofile(None)

    monkeypatch.setattr(SendProcessor, "send", watched)
    with ReplicaCluster(seed=9, replicas=1) as cluster:
        cluster.boot_all()
        master = master_of(cluster)
        visits.clear()
        answer = cluster.ask(master.config.address, 310, {**send_fields(1), **fields}, b"body")
        assert answer.code == 0
        return len(visits)


@pytest.mark.few
@pytest.mark.parametrize(
    ("fields", "visits"),
    [
        ({"h": "7"}, 1),
        ({"i": "KEYS\x01k\x02"}, 1),
        ({"i": "UNIQ_KEY\x01U\x02DELAY\x013\x02"}, 2),
        ({"i": "UNIQ_KEY\x01U\x02TIMER_DELAY_SEC\x0130\x02"}, 3),
        ({"i": "UNIQ_KEY\x01U\x02TRAN_MSG\x01true\x02PGROUP\x01p\x02", "f": "4"}, 2),
    ],
    ids=["a flag", "no key", "delayed", "a timer", "half"],
)
def test_message_when_sent_the_long_way_then_its_properties_are_read_once(
    fields: dict[str, str], visits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each rule would scan the bytes anew: a timer's took eleven visits, and a tenth more time.

    One visit reads them, one sets those of a message that waits, one reads a timer's time back.
    """
    assert _visits(fields, monkeypatch) == visits
