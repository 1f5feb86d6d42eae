"""Bodies and fields that are longer than any real one are refused before they are parsed.

16 MB of configuration held a controller for 14 s, in which no broker's heartbeat was heard.
"""

from __future__ import annotations

import pytest

from rmqha.controller import config_requests
from rmqha.controller.aio.group_requests import told_fields
from rmqha.controller.config_requests import update_config
from rmqha.controller.machine import MachineSettings
from rmqha.controller.metadata import by_address, decide_alter, decide_clean, decide_import
from rmqha.remoting.codes import ResponseCode
from rmqha.runtime.properties import CHANGE_BYTES_MAX, CHANGE_LINES_MAX
from tests.controller.metadata.driving import CLUSTER, NAME, Driver
from tests.controller.test_config_requests import dledger

FEW = MachineSettings(replicas_per_set_max=4)
INVALID = ResponseCode.CONTROLLER_INVALID_REQUEST


def paired() -> Driver:
    driver = Driver(FEW)
    driver.pair()
    return driver


@pytest.mark.parametrize(
    "body", [b"a" * CHANGE_BYTES_MAX + b"=", b"\n" * CHANGE_LINES_MAX, b"a=b\r" * CHANGE_LINES_MAX]
)
def test_configuration_when_it_is_too_long_then_it_is_refused_and_not_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = dledger()
    fits = b"\n" * (CHANGE_LINES_MAX - 10) + b"electMasterMaxRetryCount=7\n"
    assert update_config(config, fits).code == ResponseCode.SUCCESS
    monkeypatch.setattr(config_requests, "parse_properties", None)
    answer = update_config(config, body)
    assert answer.code == ResponseCode.SYSTEM_ERROR
    assert "65536 bytes and 1000 lines at most" in (answer.remark or "")
    assert not answer.changed


def test_sync_state_set_when_it_is_too_long_then_it_is_refused_and_not_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """1001 of 14 MB took 2.4 s; all ids of a full set fit, as far apart as anybody writes them."""
    driver = paired()
    fields = {"brokerName": NAME, "masterBrokerId": 1, "masterEpoch": 1}
    ids = b",\n        ".join(b'"%d"' % (2**63 - 1 - one) for one in range(4))
    long = b'{"syncStateSet":[' + ids + b'],"syncStateSetEpoch":2}'
    code = driver.ask(1001, 1, long, **fields).code
    assert code == ResponseCode.CONTROLLER_INVALID_REPLICAS
    monkeypatch.setattr(decide_alter, "parse_sync_state_set", None)
    answer = driver.ask(1001, 1, long + b" " * 1_000, **fields)
    assert answer.code == INVALID
    assert "4 replicas at most" in (answer.remark or "")
    assert answer.ext_fields == {"newSyncStateSetEpoch": "0"}


@pytest.mark.parametrize("members", [b'"' + b"a" * 5_000 + b'"', b'"a","b","c","d","e"', b"," * 9])
def test_addresses_when_they_are_too_many_then_they_are_refused_and_not_parsed(
    members: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """1001 of brokers that name themselves by their address."""
    driver = paired()
    fields = {"brokerName": NAME, "masterAddress": "h:1", "masterEpoch": 1}
    body = b'{"syncStateSet":[%b],"syncStateSetEpoch":2}'
    four = b",".join(b'"%b"' % (b"%d" % one * 512) for one in range(4))
    assert driver.ask(1001, 1, body % four, **fields).code != INVALID
    monkeypatch.setattr(by_address.orjson, "loads", None)
    answer = driver.ask(1001, 1, body % members, **fields)
    assert answer.code == INVALID
    assert "4 replicas at most" in (answer.remark or "")


@pytest.mark.parametrize("body", [b"{" + b" " * 11_000, b'{"syncStateSet":[' + b"1," * 60])
def test_import_when_it_is_too_long_then_it_is_refused_and_not_parsed(
    body: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A set as large as one can be is in ``test_import``."""
    driver = paired()
    monkeypatch.setattr(decide_import, "BrokerSetState", None)
    answer = driver.ask(60013, 9, body, brokerName="other")
    assert answer.code == INVALID
    assert "4 replicas at most" in (answer.remark or "")


def test_ids_to_clean_when_they_are_too_many_then_they_are_refused_and_not_parsed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A header holds 130,000 of them; each was looked up, and all went into the log."""
    driver = paired()
    fields = {"clusterName": CLUSTER, "brokerName": NAME}
    allowed = ";".join("7" * 4 + "8")
    assert driver.ask(1011, 9, brokerControllerIdsToClean=allowed, **fields).code == 0
    monkeypatch.setattr(decide_clean, "parse_number", None)
    answer = driver.ask(1011, 9, brokerControllerIdsToClean=";".join("7" * 3_000), **fields)
    assert answer.code == ResponseCode.CONTROLLER_INVALID_CLEAN_BROKER_METADATA
    assert "at most" in (answer.remark or "")


def test_group_change_when_its_fields_are_long_then_the_log_gets_their_beginnings() -> None:
    """Each was a line of 256 KiB."""
    asked = {"nodeId": "n" * 9_000, "action": "add", "more": "x"}
    assert told_fields(asked) == {"nodeId": "n" * 200, "action": "add"}
