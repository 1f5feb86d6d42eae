"""A message store on disk: commit log, checkpoint, queues and epochs, and how they fit."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rmqha.doctor.advice import EMPTYING, known_name_servers, mqadmin
from rmqha.doctor.diagnosis import Found
from rmqha.doctor.facts import Facts, StoreFacts

LISTED_MAX = 3
_COPY = "Keep a copy of the whole store before anything is started on it."
_QUEUE_ANEW = (
    "Stop the broker, move the folders of these queues (below consumequeue) away, and start it: after"
    " a stop in order bin/mqbroker makes them anew from the log, which it reads for that. Where"
    " Java's broker or an older release has stopped it, start and stop it once before."
)


def _under_controllers(facts: Facts) -> StoreFacts | None:
    conf = facts.conf
    return facts.store if conf is None or conf.controller_mode else None


def commit_log_damaged(facts: Facts) -> Iterator[Found]:
    """Messages that were once durable cannot be read."""
    store = facts.store
    if store is not None and store.damage and not store.missing_before:
        yield Found(
            store.path,
            f"the commit log is damaged: {store.damage}",
            "Recovery would cut everything behind that place. Ours refuses to start; Java cuts.",
            f"{_COPY} See first whether its disk is mounted. Else let another replica be master, and"
            f" empty this one then ({EMPTYING}), so that it copies the log. mqdoctor show prints what"
            " is whole.",
        )


def commit_log_file_missing(facts: Facts) -> Iterator[Found]:
    """A file in the middle of the commit log is not there."""
    store = facts.store
    if store is not None and store.missing_before:
        yield Found(
            store.path,
            f"the commit log ends at {store.end_offset}: {store.missing_before}",
            "Somebody deleted or moved a file. What stands behind the gap cannot be reached.",
            f"{_COPY} Bring the file back; else let another replica be master, and empty this one"
            f" then ({EMPTYING}).",
        )


def records_behind_end(facts: Facts) -> Iterator[Found]:
    """Whole records stand behind the end of the log: an old tail that was not erased."""
    store = facts.store
    if store is None or store.later_record is None or store.damage or store.missing_before:
        return
    yield Found(
        store.path,
        f"the log ends at {store.end_offset} ({store.end_reason}), and a whole record follows at"
        f" {store.later_record}",
        "A truncation moved the end and left the bytes, or a power cut tore the tail. Java may"
        " take them for messages after a crash (#10666); ours erases them at its start.",
        "Nothing, if this broker follows a master: it cuts there. Do not start it alone as master.",
    )


def commit_log_file_size_differs(facts: Facts) -> Iterator[Found]:
    """A file of the commit log is longer or shorter than all of them have to be."""
    store, conf = facts.store, facts.conf
    if store is None or not store.log_sizes:
        return
    wanted = next(iter(store.log_sizes.values())) if conf is None else conf.commit_log_file_size
    wrong = {path: size for path, size in store.log_sizes.items() if size != wanted}
    if wanted is None or not wrong:
        return
    named = ", ".join(f"{path} has {size}" for path, size in list(wrong.items())[:LISTED_MAX])
    more = len(wrong) - LISTED_MAX
    says = "the first one has" if conf is None else f"{conf.path} says mappedFileSizeCommitLog ="
    yield Found(
        store.path,
        f"{named} bytes{f' (and {more} more files)' if more > 0 else ''}; {says} {wanted}",
        "All files of a commit log have one length, and are found by it. The broker does not start,"
        " Java's does not either, and changes nothing.",
        f"{_COPY} If the setting was changed: set it back to what the files have. If a file was cut"
        " or appended to, as by a copy that was not finished: copy it again, or empty this store"
        f" ({EMPTYING}), and it copies the log from another replica.",
    )


def checkpoint_damaged(facts: Facts) -> Iterator[Found]:
    """The checkpoint is of another length than a checkpoint has."""
    store = facts.store
    if store is not None and store.checkpoint_damage:
        yield Found(
            store.path,
            f"the checkpoint cannot be used: {store.checkpoint_damage}",
            "It says how far the log was durable. bin/mqbroker ends with exit code 3 rather than"
            " guess it.",
            f"{_COPY} Copy it again, with the rest of the store, from a broker that is stopped. If"
            " there is no other: take the file away; recovery then reads the whole log, and cannot"
            " tell a torn tail from a damaged one.",
        )


def config_file_damaged(facts: Facts) -> Iterator[Found]:
    """A table of the broker cannot be read, and neither can its copy."""
    store = facts.store
    for path, damage in () if store is None else store.config_damages.items():
        yield Found(
            path,
            f"the file cannot be used, nor is there a copy that can (.bak): {damage}",
            "bin/mqbroker ends with exit code 3 rather than begin with an empty table: topics or"
            " groups would be unknown, or consumers begin anew.",
            "Put back a copy of it. A slave gets topics, groups and offsets from its master: take the"
            " damaged file away, and start it while the master runs. Without either, take it away"
            " and make anew what it held (updateTopic, updateSubGroup, resetOffsetByTime).",
        )


def checkpoint_missing(facts: Facts) -> Iterator[Found]:
    """A store with messages has no checkpoint."""
    store = facts.store
    if store is None or store.checkpoint_damage:
        return
    if store.has_data and store.checkpoint is None:
        yield Found(
            store.path,
            "there is no checkpoint file",
            "Nobody knows how far the log was durable, so that recovery reads it from its first"
            " file and cannot tell a torn tail from a damaged one.",
            "Start the broker; it takes longer. If the store was copied, copy it again with its"
            " checkpoint, from a broker that is stopped.",
        )


def confirm_offset_beyond_log(facts: Facts) -> Iterator[Found]:
    """What was confirmed goes beyond what the log holds."""
    store = facts.store
    if store is None or store.checkpoint is None or store.damage or store.missing_before:
        return
    confirm = store.checkpoint.confirm_offset
    if confirm > store.end_offset:
        yield Found(
            store.path,
            f"confirmOffset is {confirm} in the checkpoint, and the log ends at {store.end_offset}",
            f"{confirm - store.end_offset} bytes that every replica in sync had are not here: they"
            " were lost with the machine's power, or the files are of another time.",
            "Do not let this broker be elected before it has caught up: start it while the master"
            " of its set runs.",
        )


def queue_beyond_log(facts: Facts) -> Iterator[Found]:
    """A consume queue points behind the end of the log."""
    store = facts.store
    if store is None or store.damage or store.missing_before:
        return
    wrong = [queue for queue in store.queues if queue.log_end > store.end_offset]
    if wrong:
        named = ", ".join(f"{q.topic}/{q.queue_id} to {q.log_end}" for q in wrong[:LISTED_MAX])
        yield Found(
            store.path,
            f"{len(wrong)} consume queues point behind the log's end at {store.end_offset}: {named}",
            "The log lost its tail and the queues did not; consumers would be given offsets that"
            " are used again.",
            "Start the broker: recovery cuts the queues. Files of queues and log must be copied"
            " together, from a broker that is stopped.",
        )


def queue_damaged(facts: Facts) -> Iterator[Found]:
    """A file within a consume queue is missing, or a part of one."""
    store = facts.store
    damages = [] if store is None else [queue.damage for queue in store.queues if queue.damage]
    if store is not None and damages:
        yield Found(
            store.path,
            f"{len(damages)} consume queues are damaged: {_some(damages)}",
            "Somebody deleted a file, or a file system check or a copy lost a part of one. The log has"
            " the messages, and consumers are not given them.",
            f"{_COPY} {_QUEUE_ANEW}",
        )


def queue_lost(facts: Facts) -> Iterator[Found]:
    """Queues, or parts of them, have gone since the broker stopped."""
    store = facts.store
    if store is not None and store.lost_queues:
        lost = store.lost_queues
        yield Found(
            store.path,
            f"{len(lost)} consume queues are not as the broker left them when it stopped:"
            f" {_some(lost)}",
            "Files were deleted, or a copy of the store has not all of them. The log has the messages.",
            "Start the broker: it makes the queues anew from the log, which it reads for that, and says"
            " which they were (queue_file_missing). If this is a copy, copy it again.",
        )


def messages_out_of_reach(facts: Facts) -> Iterator[Found]:
    """Messages are in the log and not in their queues."""
    store = facts.store
    if store is not None and store.unreached:
        yield Found(
            store.path,
            f"the log has messages that {len(store.unreached)} consume queues lack:"
            f" {_some(store.unreached)}",
            "Files of the queues were deleted or lost, and the broker has stopped in order, so that the"
            " next start trusts them. Consumers are not given these messages. (A topic that was"
            " deleted and made anew on a broker of Java's looks like that, too, until it has messages.)",
            f"{_COPY} {_QUEUE_ANEW}",
        )


def _some(all_of_them: Sequence[str]) -> str:
    more = len(all_of_them) - LISTED_MAX
    return "; ".join(all_of_them[:LISTED_MAX]) + (f"; and {more} more" if more > 0 else "")


def consumer_offset_beyond_queue(facts: Facts) -> Iterator[Found]:
    """A group's offset lies behind the end of its queue: it would skip what comes next."""
    store = facts.store
    if store is None:
        return
    ends = {(queue.topic, queue.queue_id): queue.max_offset for queue in store.queues}
    wrong = [
        (topic, group, queue, offset)
        for (topic, group, queue), offset in sorted(store.consumer_offsets.items())
        if offset > ends.get((topic, queue), offset)
    ]
    if wrong:
        named = ", ".join(
            f"{group} on {topic}/{queue} at {offset} of {ends[topic, queue]}"
            for topic, group, queue, offset in wrong[:LISTED_MAX]
        )
        pairs = list(dict.fromkeys((topic, group) for topic, group, _, _ in wrong))
        yield Found(
            store.path,
            f"{len(wrong)} consumer offsets lie behind their queues: {named}",
            "Offsets are copied apart from messages, and the log was cut by an election after that"
            " (an unclean one above all). Groups would skip the next messages.",
            "If this broker becomes master, set the offsets of these groups anew before producers go"
            f" on: {', '.join(_to_the_end(facts, *one) for one in pairs[:LISTED_MAX])}"
            + ("." if len(pairs) <= LISTED_MAX else f" and {len(pairs) - LISTED_MAX} more."),
        )


def _to_the_end(facts: Facts, topic: str, group: str) -> str:
    asked = known_name_servers(facts)
    return mqadmin("resetOffsetByTime", "-n", asked, "-g", group, "-t", topic, "-s", "now")


def unclean_stop(facts: Facts) -> Iterator[Found]:
    """The broker did not stop in order."""
    store, conf = facts.store, facts.conf
    if store is None or not store.abort or conf is None or not conf.address:
        return
    broker = facts.broker(conf.address)
    if broker is None or broker.silent is None or broker.is_there:
        return
    if not broker.silent.connected:
        yield Found(
            store.path,
            "an abort file is there, and the broker does not run",
            "It was killed or lost power; the next start reads more of the log.",
            "Start it. Do not delete the abort file: that would have a torn tail taken for whole.",
        )


def epoch_file_damaged(facts: Facts) -> Iterator[Found]:
    """The epoch file cannot be read."""
    store = facts.store
    if store is not None and store.epoch_damage:
        yield Found(
            store.path,
            f"the epoch file is damaged: {store.epoch_damage}",
            "Epochs say where this log parts from the master's. "
            + ("Its backup is whole." if store.epochs is not None else "There is no whole backup."),
            "Start the broker as a slave; it takes the backup."
            if store.epochs is not None
            else "Copy epochFileCheckpoint of a replica with the same log, or empty this store"
            f" ({EMPTYING}), and it copies the log.",
        )


def epoch_file_missing(facts: Facts) -> Iterator[Found]:
    """A log under controllers has no epochs."""
    store = _under_controllers(facts)
    if store is None or facts.conf is None or store.epoch_damage:
        return
    if store.has_data and not store.epochs:
        yield Found(
            store.path,
            f"the log goes up to {store.end_offset}, and there is no epoch file",
            "It was written without controllers, or the file was lost. As a slave it finds no"
            " place at which its log and the master's are equal.",
            "Make it the first master of its set if it was the master before controllers came."
            f" Else empty it ({EMPTYING}), and it copies the log.",
        )


def epoch_begins_late(facts: Facts) -> Iterator[Found]:
    """The first epoch begins behind the log's first offset."""
    store = facts.store
    if store is None or not store.epochs or not store.has_data:
        return
    first = store.epochs[0]
    if first.start > store.min_offset:
        yield Found(
            store.path,
            f"epoch {first.epoch} begins at {first.start}, the log at {store.min_offset}",
            "What stands before it belongs to no epoch: a slave that has only that part finds"
            " nothing in common with this log.",
            "Harmless while all slaves are beyond that offset. A slave that does not follow has to"
            f" be emptied ({EMPTYING}).",
        )


def epoch_beyond_log(facts: Facts) -> Iterator[Found]:
    """The last epoch begins behind the end of the log."""
    store = facts.store
    if store is None or not store.epochs or store.damage or store.missing_before:
        return
    last = store.epochs[-1]
    if last.start > store.end_offset:
        yield Found(
            store.path,
            f"epoch {last.epoch} begins at {last.start}, and the log ends at {store.end_offset}",
            "The log is shorter than when that epoch began: it lost its tail, or the epoch file is"
            " another store's.",
            "Start it as a slave: it drops such epochs and compares again. Do not let it be"
            " elected before it has caught up.",
        )
