"""A slave that lacks what its master has expired: when it starts over, and when it must not."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from rmqha.ha import events as ev
from rmqha.ha.epochs import EpochCache
from tests.ha.cluster import Cluster
from tests.ha.scenario import ALL_ACK, puts, seen, together

ON = replace(ALL_ACK, slave_start_over_enable=True)
WITHOUT = frozenset({1, 2})
WAIT_MS = 2 * ALL_ACK.ha_send_heartbeat_interval_ms + 6_000


def one_left_behind() -> Cluster:
    """Replica 3 has 5 records and is away while the first two files of the others expire."""
    cluster = Cluster(3, file_size=1700)
    cluster.elect(1)
    cluster.run(500)
    puts(cluster, 1, 5)
    cluster.run(500)
    assert cluster.sync_state_set == {1, 2, 3}
    cluster.crash(3)
    cluster.run(20_000)
    assert cluster.sync_state_set == WITHOUT
    puts(cluster, 1, 30)
    cluster.run(500)
    for broker_id in (1, 2):
        for _ in range(2):
            cluster[broker_id].give(ev.Trimmed(cluster[broker_id].log.expire_first_file()))
    cluster.settle()
    return cluster


def back(cluster: Cluster, ids: frozenset[int], *, on: bool = True) -> list[str]:
    """Let replica 3 come back and hear of the set once a second; the trace of it."""
    cluster[3].settings = ON if on else ALL_ACK
    begun = len(cluster.lines)
    cluster.restart(3)
    listen(cluster, ids)
    return cluster.lines[begun:]


def listen(cluster: Cluster, ids: frozenset[int]) -> None:
    """Controllers that say ``ids``, whatever is true."""
    for _ in range(WAIT_MS // 1_000):
        cluster[3].give(ev.SetHeard(ids))
        cluster.run(1_000)


def told(lines: list[str], words: str) -> int:
    """How often replica 3 said so at the level of errors or warnings."""
    return sum(" 3 > note ha_" in line and words in line for line in lines)


def test_slave_when_what_it_lacks_has_expired_then_it_starts_over_and_joins() -> None:
    """It would stay out for ever, though its whole log is in the master's history."""
    cluster = one_left_behind()
    assert told(back(cluster, WITHOUT), "ha_starting_over") == 1
    assert cluster[3].log.min_offset == cluster[1].log.min_offset == 3400
    assert cluster.sync_state_set == {1, 2, 3}
    assert seen(cluster, 3) == 15
    together(cluster, 1)
    cluster.elect(3, members=cluster.sync_state_set)
    cluster.run(1_000)
    puts(cluster, 3, 3)
    assert seen(cluster, 3) == 18


def test_slave_when_it_has_started_over_then_no_epoch_describes_its_empty_log() -> None:
    """An unclean election looks at epochs first: an empty replica would win over a full one."""
    cluster = one_left_behind()
    lines = back(cluster, WITHOUT)
    cut = next(at for at, line in enumerate(lines) if " 3 < LogTruncated" in line)
    after = next(line for line in lines[cut:] if " 3 > " in line)
    assert "WriteEpochs" in after
    assert after.endswith("entries=[]")


def test_slave_when_the_setting_is_off_then_it_keeps_its_log_and_says_so_once() -> None:
    """An operator decides; endless lines hide what else happens, on either side."""
    cluster = one_left_behind()
    lines = back(cluster, WITHOUT, on=False)
    cluster.run(60_000)
    assert cluster[3].log.max_offset == 5 * 158
    assert told(lines + cluster.lines[-len(lines) :], "slaveStartOverEnable=true") == 1
    assert sum("ha_slave_too_late" in line for line in cluster.lines) == 1
    assert sum("ha_slave_closed" in line for line in lines) == 0
    assert cluster.sync_state_set == WITHOUT


def test_slave_when_it_may_be_elected_then_it_keeps_its_log_until_it_is_out_of_the_set() -> None:
    """Emptied and elected, it would take along everything that was acknowledged."""
    cluster = one_left_behind()
    lines = back(cluster, frozenset({1, 2, 3}))
    assert told(lines, "is in the SyncStateSet") == 1
    assert cluster[3].log.max_offset == 5 * 158
    listen(cluster, WITHOUT)
    together(cluster, 1)


def test_slave_when_it_has_heard_no_set_since_it_waits_then_it_keeps_its_log() -> None:
    """What was said before may be of a time when it was no member yet."""
    cluster = one_left_behind()
    cluster[3].settings = ON
    cluster.restart(3)
    cluster.run(1_000)
    cluster[3].give(ev.SetHeard(WITHOUT))
    cluster.run(60_000)
    assert cluster[3].log.max_offset == 5 * 158


def test_slave_when_it_has_no_epochs_then_it_keeps_its_log_and_says_so() -> None:
    """Its log is taken on trust: nothing shows that the master ever had what is in it."""
    cluster = one_left_behind()
    cluster[3].epoch_file = None
    lines = back(cluster, WITHOUT)
    assert told(lines, "without epochs of its own") == 1
    assert cluster[3].log.max_offset == 5 * 158


def test_slave_when_no_epoch_is_common_then_it_keeps_its_log() -> None:
    """The master has dropped the epoch with its files: what the slave has may be its alone."""
    cluster = one_left_behind()
    cluster.elect(1, members=WITHOUT)
    cluster.run(500)
    puts(cluster, 1, 20)
    cluster.run(500)
    while cluster[1].log.min_offset < 35 * 158:
        cluster[1].give(ev.Trimmed(cluster[1].log.expire_first_file()))
    cluster.settle()
    assert [one.epoch for one in cluster[1].core.ha.epochs.entries] == [2]
    lines = back(cluster, WITHOUT)
    assert told(lines, "ha_no_consistent_point") > 0
    assert told(lines, "ha_starting_over") == 0
    assert cluster[3].log.max_offset == 5 * 158


def test_slave_when_the_master_has_nothing_more_then_silence_means_nothing() -> None:
    """A quiet night would cost every slave its log."""
    cluster = Cluster(3, settings=ON, file_size=1700)
    cluster.elect(1)
    cluster.run(500)
    puts(cluster, 1, 5)
    listen(cluster, frozenset({1, 2}))
    assert cluster[3].log.max_offset == 5 * 158
    assert sum("ha_starting_over" in line for line in cluster.lines) == 0


@pytest.mark.parametrize("emptied", [False, True])
def test_slave_when_it_dies_while_it_starts_over_then_it_comes_back_and_goes_on(
    emptied: bool,
) -> None:
    """Before the cut it is as it was, after it an empty replica, whose old epochs mean nothing."""
    cluster = one_left_behind()
    replica = cluster[3]
    if emptied:
        replica.log.truncate_now(0)
        assert replica.epoch_file is not None
    assert replica.core.ha.epochs != EpochCache()
    back(cluster, WITHOUT)
    together(cluster, 1)
    assert cluster.sync_state_set == {1, 2, 3}
