"""Silent masters: when they are asked, who is given up, and who is not."""

from __future__ import annotations

import pytest

from rmqha.base.machine import Ticked
from rmqha.controller import probing
from rmqha.controller.machine import (
    AskPeers,
    MachineSettings,
    PeersHeard,
    Probe,
    ProbeAnswered,
)
from rmqha.controller.metadata.messages import Effects
from rmqha.controller.metadata.probe_messages import NEVER_HEARD, PeerReport
from rmqha.controller.probing import UNASKED_MS, WITHHELD_MS
from rmqha.remoting.heartbeat import Heartbeat
from tests.controller.metadata.driving import CLUSTER, NAME, Driver

TIMEOUT_MS = 700
LIMIT_MS = 1_300
SILENT = PeerReport("n1", 2_000, 0)


class Probed(Driver):
    """One of three controllers; the shell's part of probes is in the tests' hands."""

    def __post_init__(self) -> None:
        self.probes: list[Probe] = []
        self.asked: list[AskPeers] = []
        super().__post_init__()

    def carry_out(self, effects: Effects) -> None:
        self.probes += [one for one in effects if isinstance(one, Probe)]
        self.asked += [one for one in effects if isinstance(one, AskPeers)]
        super().carry_out(effects)

    def told_by(self, *reports: PeerReport) -> None:
        """Other controllers answer the newest question."""
        self.step(PeersHeard(self.asked[-1].number, reports, 2))


LEASED = "true"


def watched(*, write_lease: str = LEASED, only_leased: bool = True) -> Probed:
    """A pair with a heartbeat of each at this moment."""
    settings = MachineSettings(
        active_probe_timeout_ms=TIMEOUT_MS, active_probe_only_leased=only_leased
    )
    driver = Probed(settings)
    driver.pair()
    for broker_id in (1, 2):
        driver.beat(broker_id, epoch=1, writeLease=write_lease)
    return driver


def silent(driver: Probed, duration_ms: int) -> None:
    """The slave beats, the master does not."""
    end_ms = driver.now_ms + duration_ms
    while driver.now_ms < end_ms:
        driver.pass_time(min(100, end_ms - driver.now_ms))
        driver.beat(2, epoch=1)


def test_probe_when_the_master_beats_then_it_is_never_asked() -> None:
    driver = watched()
    for _ in range(30):
        silent(driver, 500)
        driver.beat(1, epoch=1, writeLease=LEASED)
    assert driver.probes == []


def test_probe_when_it_and_the_peers_are_silent_then_another_is_elected_in_time() -> None:
    driver = watched()
    silent(driver, LIMIT_MS)
    assert [one.connections for one in driver.probes] == [(1,)]
    assert driver.probes[0].address == "h:1"
    assert driver.master() == (1, 1)
    driver.told_by(SILENT)
    assert driver.master() == (2, 2)
    assert driver.machine.probing.counts.elections == 1
    assert answer(driver) == {"promiseMillis": "0"}, "a lease could live on by what is said now"
    assert [one.facts["reason"] for one in driver.notes if one.event == "master_elected"][-1] == (
        "probe_unanswered"
    )


def test_probe_when_it_is_answered_then_nobody_is_elected() -> None:
    driver = watched()
    answered = 0
    for _ in range(80):
        silent(driver, 100)
        while answered < len(driver.probes):
            answered = len(driver.probes)
            driver.step(ProbeAnswered(driver.probes[-1].number))
    assert len(driver.probes) > 3
    assert driver.asked == []
    assert driver.master() == (1, 1)


def test_probe_when_a_late_answer_is_of_an_older_question_then_it_counts_for_nothing() -> None:
    driver = watched()
    silent(driver, LIMIT_MS)
    driver.step(ProbeAnswered(driver.probes[0].number))
    driver.told_by(SILENT)
    assert driver.master() == (2, 2)


def test_probe_when_a_follower_hears_the_master_then_it_stays_longer_than_its_timeout() -> None:
    """#10812: heartbeats that reach only a follower count."""
    driver = watched()
    answered = 0
    for _ in range(200):
        silent(driver, 100)
        while answered < len(driver.asked):
            answered = len(driver.asked)
            driver.told_by(PeerReport("n1", 300, LIMIT_MS - 300), SILENT)
    assert answered > 5
    assert driver.master() == (1, 1)
    assert driver.machine.liveness.alive(driver.now_ms, CLUSTER, NAME, 1)


def test_probe_when_a_promise_is_left_then_its_end_is_waited_for() -> None:
    driver = watched()
    silent(driver, LIMIT_MS)
    driver.told_by(PeerReport("n1", NEVER_HEARD, 50))
    assert driver.master() == (1, 1)
    silent(driver, 50)
    assert len(driver.asked) == 2
    driver.told_by(SILENT)
    assert driver.master() == (2, 2)


def test_probe_when_no_majority_reports_then_the_timeout_decides() -> None:
    driver = watched()
    answered = 0
    for _ in range(99):
        silent(driver, 100)
        while answered < len(driver.asked):
            answered = len(driver.asked)
            driver.told_by()
    assert answered > 3
    assert driver.master() == (1, 1)
    silent(driver, 200)
    assert driver.master() == (2, 2)


def test_probe_when_nobody_else_is_heard_then_nobody_is_asked() -> None:
    """A leader that hears nobody is cut off itself."""
    driver = watched()
    driver.pass_time(9_000)
    assert driver.asked == []
    assert driver.master() == (1, 1)


def test_probe_when_the_controller_itself_stood_still_then_it_asks_again() -> None:
    driver = watched()
    silent(driver, 650)
    assert len(driver.probes) == 1
    driver.now_ms += 3_000
    driver.beat(2, epoch=1)
    driver.step(Ticked())
    assert driver.asked == []
    assert len(driver.probes) == 2


def test_probe_when_it_is_off_then_nobody_is_asked_and_nothing_promised() -> None:
    driver = Probed()
    driver.pair()
    silent(driver, 9_000)
    assert driver.probes == []
    assert answer(driver) == {}


@pytest.mark.parametrize("said", ["false", ""], ids=["says no", "says nothing"])
def test_probe_when_the_master_holds_no_lease_then_the_timeout_decides(said: str) -> None:
    """Java's goes on acknowledging what would be lost, and an older one of ours believes in it."""
    driver = watched(write_lease=said)
    silent(driver, 9_900)
    assert driver.probes == []
    assert driver.master() == (1, 1)
    assert answer(driver, write_lease=False) == {}
    silent(driver, 200)
    assert driver.master() == (2, 2)


def test_probe_when_the_master_holds_no_lease_then_its_set_is_looked_at_seldom() -> None:
    """Ten thousand sets of Java's brokers must not cost a look each every 600 ms."""
    driver = watched(write_lease="")
    silent(driver, 700)
    due_ms = driver.machine.probing.next_deadline_ms()
    assert due_ms is not None
    assert due_ms - driver.now_ms > UNASKED_MS - 700


def test_probe_when_all_masters_are_asked_then_java_s_too() -> None:
    driver = watched(write_lease="", only_leased=False)
    silent(driver, LIMIT_MS)
    assert len(driver.probes) == 1
    assert answer(driver, write_lease=False) == {"promiseMillis": str(LIMIT_MS)}
    driver.told_by(SILENT)
    assert driver.master() == (2, 2)


def test_probe_when_a_leased_master_follows_one_without_then_it_is_asked_from_its_election_on() -> (
    None
):
    driver = watched()
    driver.beat(1, epoch=1)
    silent(driver, 1_000)
    assert driver.probes == []
    driver.beat(1, epoch=1)
    driver.beat(2, epoch=1, writeLease=LEASED)
    driver.elect(2, designate=True)
    assert driver.master() == (2, 2)
    driver.alter(2, 2, [1, 2], 3)
    for _ in range(LIMIT_MS // 100):
        driver.pass_time(100)
        driver.beat(1, epoch=2)
    assert [one.address for one in driver.probes] == ["h:2"]
    driver.told_by(SILENT)
    assert driver.master() == (1, 3)


def test_silence_when_the_broker_holds_no_lease_then_its_own_timeout_was_promised() -> None:
    driver = watched(write_lease="")
    driver.pass_time(LIMIT_MS)
    told = driver.ask(60030, 77, clusterName=CLUSTER, brokerName=NAME, brokerId=1)
    assert told.ext_fields == {"silentMs": str(LIMIT_MS), "promisedMs": str(10_000 - LIMIT_MS)}


def answer(driver: Probed, *, write_lease: bool = True) -> dict[str, str]:
    """What the master hears upon a heartbeat."""
    beat = Heartbeat(1, CLUSTER, NAME, write_lease=write_lease)
    return driver.machine.heartbeat_answer(driver.now_ms, beat).ext_fields


def test_promise_when_a_peer_was_told_of_silence_then_nothing_is_promised_for_a_while() -> None:
    driver = watched()
    assert answer(driver) == {"promiseMillis": str(LIMIT_MS)}
    asked = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": 1}
    told = driver.ask(60030, 77, **asked)
    assert told.ext_fields == {"silentMs": "0", "promisedMs": str(LIMIT_MS)}
    assert answer(driver) == {"promiseMillis": str(LIMIT_MS)}
    driver.pass_time(LIMIT_MS)
    told = driver.ask(60030, 77, **asked)
    assert told.ext_fields == {"silentMs": str(LIMIT_MS), "promisedMs": "0"}
    assert answer(driver) == {"promiseMillis": "0"}
    driver.pass_time(1_000)
    assert answer(driver) == {"promiseMillis": str(LIMIT_MS)}


def test_promise_when_the_controller_has_just_started_then_it_may_have_promised_before() -> None:
    driver = Probed(MachineSettings(active_probe_timeout_ms=TIMEOUT_MS))
    asked = {"clusterName": CLUSTER, "brokerName": NAME, "brokerId": 1}
    driver.pass_time(600)
    told = driver.ask(60030, 77, **asked)
    assert told.ext_fields == {"silentMs": "-1", "promisedMs": str(LIMIT_MS - 600)}


@pytest.mark.parametrize("broker_id", ["", "0", "x"])
def test_silence_when_no_broker_is_named_then_refused(broker_id: str) -> None:
    driver = watched()
    assert driver.ask(60030, 77, brokerName=NAME, brokerId=broker_id).code != 0


def ask_silence(driver: Probed, name: str) -> str:
    """How much longer a controller waits for a broker, as it says."""
    told = driver.ask(60030, 77, clusterName=CLUSTER, brokerName=name, brokerId=1)
    assert told.code == 0
    return told.ext_fields["promisedMs"]


def test_promise_when_a_stranger_asks_for_very_many_then_only_so_many_are_kept(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each beyond 200 went through all that were kept: 6,000 questions took seconds."""
    monkeypatch.setattr(probing, "WITHHELD_MAX", 50)
    driver = watched()
    driver.pass_time(LIMIT_MS)
    said = [ask_silence(driver, f"made-up-{number}") for number in range(60)]
    assert said == ["0"] * 50 + ["1"] * 10, "who is not kept may still be promised something"
    assert len(driver.machine.probing.withheld) == 50
    assert ask_silence(driver, NAME) == "0"
    assert answer(driver) == {"promiseMillis": "0"}, "a registered one always finds room"
    driver.pass_time(WITHHELD_MS // 2)
    assert ask_silence(driver, "made-up-0") == "0", "it is kept already"
    driver.pass_time(WITHHELD_MS // 2 + 1)
    assert ask_silence(driver, "made-up-99") == "0"
    assert {name for _, name, _ in driver.machine.probing.withheld} == {"made-up-0", "made-up-99"}


def test_silence_when_a_name_is_longer_than_any_then_refused() -> None:
    """None of these is registered, and each would be kept for a second."""
    driver = watched()
    for long in ({"brokerName": "n" * 256, "clusterName": "c"}, {"clusterName": "c" * 256}):
        assert driver.ask(60030, 77, brokerId=1, **long).code != 0
