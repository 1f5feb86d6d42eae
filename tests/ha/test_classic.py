"""The protocol without a controller, its cores alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.base.errors import FrameTooLarge
from rmqha.ha import events as ev
from rmqha.ha import layout
from rmqha.ha.classic import (
    ClassicCore,
    ClassicFrameParser,
    ClassicReportParser,
    encode_classic_header,
    encode_report,
)
from rmqha.ha.events import PutStatus, Role
from rmqha.ha.frames import Ack, TransferHeader
from rmqha.ha.settings import HaSettings
from rmqha.ha.state import LogFacts

I64 = st.integers(-(2**63), 2**63 - 1)


@given(st.lists(I64, max_size=8), st.integers(1, 20))
def test_reports_are_read_in_any_chunks(offsets: list[int], chunk: int) -> None:
    """Java takes the last whole word and assumes alignment; here every one is read."""
    data = b"".join(encode_report(offset) for offset in offsets)
    parser = ClassicReportParser()
    pieces = [data[at : at + chunk] for at in range(0, len(data), chunk)]
    assert [one for piece in pieces for one in parser.feed(piece)] == [Ack(o) for o in offsets]


@given(I64, st.integers(0, 100))
def test_struct_equals_construct(offset: int, size: int) -> None:
    """construct is the specification."""
    header = encode_classic_header(offset, size)
    drawn = layout.CLASSIC_TRANSFER.parse(header + bytes(size))
    assert (drawn.offset, drawn.body_size) == (offset, size)
    assert layout.CLASSIC_REPORT.build({"offset": offset}) == encode_report(offset)
    parser = ClassicFrameParser()
    assert parser.feed(header[:5]) is None
    assert parser.feed(header[5:]) == TransferHeader(size, offset, -1, -1, -1)
    assert parser.body_pending == size


def test_a_negative_body_ends_the_connection() -> None:
    """A size is never believed without a bound."""
    with pytest.raises(FrameTooLarge):
        ClassicFrameParser().feed(encode_classic_header(0, -1))


def master(settings: HaSettings | None = None, max_offset: int = 2_500) -> ClassicCore:
    facts = LogFacts(1_000, 0, max_offset, max_offset, max_offset)
    return ClassicCore(role=Role.MASTER, settings=settings or HaSettings(), log=facts)


def batches(effects: list[ev.Effect]) -> list[tuple[int, int]]:
    return [(one.offset, one.length) for one in effects if isinstance(one, ev.SendBatch)]


def test_an_empty_slave_begins_with_the_newest_file_and_batches_end_at_files() -> None:
    """Section 4: request 0; a batch never crosses a file."""
    core = master()
    core.step(0, ev.SlaveConnected(1, "a"))
    assert batches(core.step(0, ev.SlaveSent(1, Ack(0)))) == [(2_000, 500)]
    core.step(0, ev.SlaveConnected(2, "b"))
    assert batches(core.step(0, ev.SlaveSent(2, Ack(700)))) == [(700, 300)]
    assert batches(core.step(0, ev.SlaveWritable(2))) == [(1_000, 1_000)]


def test_3015_a_report_beyond_the_log_ends_the_connection() -> None:
    """#3015: an impossible report must not complete puts."""
    core = master(HaSettings(in_sync_replicas=2))
    core.step(0, ev.SlaveConnected(1, "a"))
    core.step(0, ev.PutWaited(5, 2_500))
    effects = core.step(0, ev.SlaveSent(1, Ack(2_501)))
    assert [type(one) for one in effects][:1] == [ev.CloseSlave]
    assert not [one for one in effects if isinstance(one, ev.PutCompleted)]


def test_puts_are_completed_by_reports_or_their_deadline() -> None:
    """inSyncReplicas=2 needs one slave."""
    core = master(HaSettings(in_sync_replicas=2))
    core.step(0, ev.SlaveConnected(1, "a"))
    core.step(0, ev.SlaveSent(1, Ack(2_000)))
    core.step(0, ev.PutWaited(1, 2_400))
    core.step(0, ev.PutWaited(2, 2_500))
    core.step(0, ev.SlaveWritable(1))
    done = core.step(1, ev.SlaveSent(1, Ack(2_400)))
    assert [one for one in done if isinstance(one, ev.PutCompleted)] == [
        ev.PutCompleted(1, PutStatus.PUT_OK)
    ]
    late = core.step(3_000, ev.Ticked())
    assert ev.PutCompleted(2, PutStatus.FLUSH_SLAVE_TIMEOUT) in late


@pytest.mark.parametrize(
    ("auto", "level"), [(False, PutStatus.FLUSH_SLAVE_TIMEOUT), (True, PutStatus.PUT_OK)]
)
def test_enable_auto_in_sync_replicas_waits_for_no_more_than_are_there(
    auto: bool, level: PutStatus
) -> None:
    """With no slave in sync a put waits for this master only."""
    core = master(HaSettings(in_sync_replicas=2, enable_auto_in_sync_replicas=auto))
    effects = core.step(0, ev.PutWaited(1, 2_500)) + core.step(3_000, ev.Ticked())
    assert [one.status for one in effects if isinstance(one, ev.PutCompleted)] == [level]


def test_a_slave_whose_log_differs_leaves_and_comes_again_later() -> None:
    """#3388: the repair is manual, the check is on the header, before the body."""
    facts = LogFacts(1_000, 0, 500, 500, 500)
    core = ClassicCore(role=Role.SLAVE, settings=HaSettings(), log=facts, master_address="m:1")
    (connect,) = core.step(0, ev.Ticked())
    assert isinstance(connect, ev.Connect)
    assert core.step(0, ev.MasterConnected(connect.conn)) == [ev.SendAck(connect.conn, 500)]
    effects = core.step(1, ev.MasterSent(connect.conn, TransferHeader(10, 400, -1, -1, -1)))
    assert isinstance(effects[0], ev.CloseMaster)
    assert core.next_deadline_ms == 5_001
    assert isinstance(core.step(5_001, ev.Ticked())[0], ev.Connect)


def test_silent_peers_are_left() -> None:
    """Half-open connections: 20 s without a byte, both ways; heartbeats every 5 s."""
    core = master()
    core.step(0, ev.SlaveConnected(1, "a"))
    core.step(0, ev.SlaveSent(1, Ack(2_500)))
    assert batches(core.step(5_000, ev.Ticked())) == [(2_500, 0)]
    assert [type(one) for one in core.step(20_001, ev.Ticked())][:1] == [ev.CloseSlave]
    assert core.sessions == {}
