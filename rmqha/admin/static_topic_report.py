"""What commands show of a change of a static topic: the plan, its files, and the outcome."""

from __future__ import annotations

from typing import Any

from rmqha.admin.report import Report, Table
from rmqha.admin.spec import Here
from rmqha.admin.static_topic_walk import Walk, carry_out
from rmqha.admin.static_topics import Found, Wish, next_change
from rmqha.base.errors import RemoteProtocolError, RmqhaError
from rmqha.client.exchange import Exchange, Refused, Unreachable
from rmqha.statictopic.known import Known, PlanRefused, histories
from rmqha.statictopic.map_file import REMAPPING, after_file, before_file
from rmqha.statictopic.mapping import Segments
from rmqha.statictopic.plan import Change
from rmqha.statictopic.steps import Step, Tell

_ROUNDS_MAX = 3
"""A change that was left, and the wish; a third would go round in circles."""


def perform(found: Found, wish: Wish, here: Here, *, dry_run: bool) -> Exchange[Report]:
    """Finish what was left, then do what is wished; only show both with ``dry_run``.

    The report leaves the doing to the driver, when the map files are written.

    Raises:
        NotFound, PlanRefused: it cannot be done; nothing has been changed.
        Refused, Unreachable: with ``dry_run``, a broker that was asked where queues end.
    """
    if dry_run:
        return (yield from _rehearse(found, wish, here))
    return _begin(found, wish, here, {})


def _rehearse(found: Found, wish: Wish, here: Here) -> Exchange[Report]:
    before, walk = found.known, Walk([])
    for _ in range(_ROUNDS_MAX):
        change, is_wish = next_change(found, wish, here.now_ms)
        if change is not None:
            found = yield from carry_out(found, change, walk, dry_run=True)
        if is_wish:
            break
    plain = "".join(f"{words}\n" for words in map(_words, walk.done))
    rows = [(at, one.broker_name, _words(one)) for at, one in enumerate(walk.done, 1)]
    steps = Table("Steps, none of which was taken", ("Step", "Broker", "What"), rows)
    data = {**_data(before, found.known), "dryRun": True, "steps": list(map(_step_data, walk.done))}
    tables = steps, _moves_table(before, found.known)
    return Report(plain, data, tables, warnings=found.warnings)


def _begin(
    found: Found, wish: Wish, here: Here, files: dict[str, bytes], rounds: int = 1
) -> Report:
    change, is_wish = next_change(found, wish, here.now_ms)
    warnings = found.warnings if rounds == 1 else ()
    if change is None:
        topic = found.known.topic
        nothing = Table(f"{topic}: nothing to do", ("Broker", "Epoch"), _epochs(found.known))
        data = {**_data(found.known, found.known), "finished": True, "files": [*files]}
        return Report("nothing to do\n", data, (nothing,), warnings=warnings)
    written = _files(found, change, wish.kind if is_wish else REMAPPING, here)
    old, new = written
    plain = (
        f"The old mapping data is written to file {old}\n"
        f"The new mapping data is written to file {new}\n"
    )
    title = "Map files" if is_wish else "Map files: an unfinished change is finished first"
    table = Table(title, ("Mapping", "File"), (("old", old), ("new", new)))
    all_files = {**files, **written}
    then = _go_on(found, change, wish, here, all_files, is_wish=is_wish, rounds=rounds)
    data = {"files": [*all_files]}
    return Report(
        plain, data, (table,), files=written, makes_folders=True, then=then, warnings=warnings
    )


def _files(found: Found, change: Change, kind: str, here: Here) -> dict[str, bytes]:
    known = change.known
    old_epoch = known.epoch if known.epoch >= 0 else change.epoch
    stem = f"{here.folder}/{known.topic}-"
    return {
        f"{stem}{old_epoch}.before": before_file(change, kind, found.configs),
        f"{stem}{change.epoch}.after": after_file(change, kind, found.configs),
    }


def _go_on(
    found: Found,
    change: Change,
    wish: Wish,
    here: Here,
    files: dict[str, bytes],
    *,
    is_wish: bool,
    rounds: int,
) -> Exchange[Report]:
    before, walk = found.known, Walk([])
    try:
        after = yield from carry_out(found, change, walk)
    except (Refused, Unreachable, RemoteProtocolError, PlanRefused) as error:
        return _cut_short(found.known, walk, error, files)
    if is_wish:
        data = {**_data(before, after.known), "finished": True, "files": [*files]}
        return Report("", data, (_moves_table(before, after.known),))
    if rounds == _ROUNDS_MAX:
        raise PlanRefused(f"{before.topic} is still unfinished after {rounds} changes")
    return _begin(after, wish, here, files, rounds + 1)


def _cut_short(known: Known, walk: Walk, error: RmqhaError, files: dict[str, bytes]) -> Report:
    words = "not finished: the same command again, or any other for this topic, goes on from here\n"
    data = {
        "topic": known.topic, "finished": False, "steps": list(map(_step_data, walk.done)),
        "files": [*files],
    }  # fmt: skip
    rows = [(at, one.broker_name, _words(one)) for at, one in enumerate(walk.done, 1)]
    table = Table(f"{known.topic}: {words[:-1]}", ("Step", "Broker", "Done"), rows)
    return Report(words, data, (table,), (error,))


# -- words -----------------------------------------------------------------------------------------


def _words(step: Step) -> str:
    if not isinstance(step, Tell):
        return f"say where queues {_numbers(step.queue_ids)} end (202)"
    leads = step.detail.curr_id_map
    force = ", by force" if step.force else ""
    return (
        f"{step.phase}: leads {_numbers(leads) or 'nothing'} of {step.detail.total_queues}, "
        f"epoch {step.detail.epoch}, {step.write_queue_nums} queues{force} (513)"
    )


def _numbers(numbers: object) -> str:
    return ",".join(map(str, numbers))  # type: ignore[call-overload]


def _step_data(step: Step) -> dict[str, Any]:
    if not isinstance(step, Tell):
        return {"brokerName": step.broker_name, "code": 202, "queues": list(step.queue_ids)}
    return {
        "brokerName": step.broker_name, "code": 513, "phase": step.phase.name,
        "readQueueNums": step.read_queue_nums, "writeQueueNums": step.write_queue_nums,
        "force": step.force, "mappingDetail": step.detail.members(),
    }  # fmt: skip


def _moves(before: Known, after: Known) -> list[tuple[int, Segments | None, Segments]]:
    """The logical queues with another leader than before."""
    old, new = histories(before), histories(after)
    return [
        (logical, old.get(logical), segments)
        for logical, segments in new.items()
        if logical not in old or old[logical][-1] != segments[-1]
    ]


def _data(before: Known, after: Known) -> dict[str, Any]:
    moves = [
        {
            "logicalQueue": logical,
            "from": old[-1].broker_name if old else None,
            "to": new[-1].broker_name,
            "queueId": new[-1].queue_id,
            "logicOffset": new[-1].logic_offset,
        }
        for logical, old, new in _moves(before, after)
    ]
    return {
        "topic": after.topic, "epoch": after.epoch, "totalQueues": after.total_queues,
        "moves": moves,
    }  # fmt: skip


def _moves_table(before: Known, after: Known) -> Table:
    columns = ("Logical queue", "From", "To", "Queue there", "Begins at")
    rows = [
        (
            logical, old[-1].broker_name if old else None, new[-1].broker_name, new[-1].queue_id,
            new[-1].logic_offset,
        )
        for logical, old, new in _moves(before, after)
    ]  # fmt: skip
    title = f"{after.topic}: {after.total_queues} logical queues, epoch {after.epoch}"
    return Table(title, columns, rows)


def _epochs(known: Known) -> list[tuple[str, int]]:
    return [(one.broker_name, one.epoch) for one in known.details]
