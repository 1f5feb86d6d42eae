"""Frames of the real RocketMQ 5.3.3 decode, and come back as the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from rmqha.remoting.bodies import (
    BrokerReplicasInfo,
    ClusterInfo,
    ElectMasterResponseBody,
    EpochEntryCache,
    SyncStateSet,
    decode_names,
    encode_names,
)
from rmqha.remoting.command import SERIALIZE_ROCKETMQ, RemotingCommand
from rmqha.remoting.frame import FrameDecoder, encode

GOLDEN = Path(__file__).resolve().parent.parent / "golden" / "5.3.3" / "remoting.jsonl"
FRAMES: list[dict[str, Any]] = [json.loads(line) for line in GOLDEN.read_text().splitlines()]


def decode(frame: dict[str, Any]) -> RemotingCommand:
    """The one command of a captured frame."""
    (command,) = FrameDecoder().feed(bytes.fromhex(frame["hex"]))
    return command


def answers(request_code: int) -> list[RemotingCommand]:
    """All captured successful answers to a code."""
    found = [decode(f) for f in FRAMES if f["request_code"] == request_code and f["response"]]
    assert found
    return [command for command in found if command.code == 0]


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f"{f['t']}-{f['request_code']}-{f['dir']}")
def test_captured_frame_round_trips(frame: dict[str, Any]) -> None:
    """If this fails, rmqha reads or writes something else than Java does."""
    raw = bytes.fromhex(frame["hex"])
    command = decode(frame)
    header = frame["header"]
    assert header["code"] == command.code
    assert header["opaque"] == command.opaque
    assert header.get("extFields") == command.ext_fields
    assert header.get("remark") == command.remark
    assert [command] == FrameDecoder().feed(encode(command))
    if b'{"code": ' not in raw:
        assert raw == encode(command)


@pytest.mark.parametrize("frame", FRAMES, ids=lambda f: f"{f['t']}-{f['request_code']}-{f['dir']}")
def test_captured_frame_survives_the_binary_header(frame: dict[str, Any]) -> None:
    """The same request must mean the same in both header formats."""
    command = decode(frame)
    command.serialize_type = SERIALIZE_ROCKETMQ
    # An empty value or block is null in a binary header.
    command.ext_fields = {k: v for k, v in (command.ext_fields or {}).items() if v} or None
    assert [command] == FrameDecoder().feed(encode(command))


def test_captured_bodies_come_back_as_the_same_bytes() -> None:
    """Body shapes are Java's to the byte, but for bare number keys."""
    for command in answers(1004):
        assert command.body == SyncStateSet.decode(command.body).encode()
    for command in answers(1006):
        assert command.body == BrokerReplicasInfo.decode(command.body).encode()
    requests = [f for f in FRAMES if f["request_code"] == 1006 and not f["response"]]
    assert [decode(f).body for f in requests] == [
        encode_names(decode_names(decode(f).body)) for f in requests
    ]


def test_captured_election_answer_is_read() -> None:
    """Its addresses have bare number keys."""
    body = ElectMasterResponseBody.decode(answers(1002)[0].body)
    assert body.broker_member_group is not None
    assert {1: "127.0.0.1:30911"} == body.broker_member_group.broker_addrs
    assert (1,) == body.sync_state_set


def test_captured_cluster_and_epochs_are_read() -> None:
    """mqadmin needs both to reach the brokers."""
    cluster = ClusterInfo.decode(answers(106)[0].body)
    assert {"DefaultCluster": ("broker-a",)} == cluster.cluster_addr_table
    assert "127.0.0.1:30911" == cluster.broker_addr_table["broker-a"].broker_addrs[0]
    cache = EpochEntryCache.decode(answers(1007)[0].body)
    assert (0, 6500, 1) == (cache.broker_id, cache.max_offset, cache.epoch_list[0].epoch)
