"""``bin/pipeline replica-audit``: stores that one Spark reaches, or hashes of machines apart."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
from msgspec.structs import replace

from rmqha.base.errors import ConfigInvalid
from rmqha.cli.pipeline_exits import EXIT_FOUND, usage_errors
from rmqha.pipeline import session

if TYPE_CHECKING:
    from rmqha.pipeline.commitlog.compare import Difference
    from rmqha.pipeline.commitlog.hashed_store import HashedStore

SPAN = re.compile(r"([0-9]{1,19})-([0-9]{1,19})")
"""No log ends behind 2^63."""


@click.command("replica-audit")
@click.argument("stores", nargs=-1, required=True)
@click.option(
    "--up-to",
    type=click.IntRange(min=0),
    default=None,
    help="Compare up to this physical offset.",
)
@click.option("--report", "page", default=None, help="Write an HTML page here.")
@click.option("--hash-only", "hashes", default=None, help="Hash one store into this file.")
@click.option("--seed", default=None, help="With --hash-only: the same words on every machine.")
@click.option(
    "--records", "spans", multiple=True, metavar="START-STOP",
    help="With --hash-only: hash the records of these bytes, too; several times.",
)  # fmt: skip
@click.option("--compare", "together", is_flag=True, help="STORES are files of --hash-only.")
@click.option("--master", default=None, help="Spark master; local[*] unless submitted.")
def audit_command(
    stores: tuple[str, ...],
    up_to: int | None,
    page: str | None,
    hashes: str | None,
    seed: str | None,
    spans: tuple[str, ...],
    *,
    together: bool,
    master: str | None,
) -> None:
    """Compare the commit logs of STORES, replicas of one broker set.

    Up to the highest confirm offset that a checkpoint tells, or to where two logs reach. Machines
    that share nothing hash their own store (--hash-only FILE --seed WORDS), and the files are
    compared anywhere (--compare FILE FILE); neither needs Spark.
    """
    with usage_errors():
        _refuse_mixed(hashes, seed, spans, up_to, page, together)
        if hashes is not None:
            _hash(stores, hashes, seed or "", spans, up_to)
        elif together:
            _compare(stores)
        else:
            _audit(stores, up_to, page, master)


def _refuse_mixed(
    hashes: str | None,
    seed: str | None,
    spans: tuple[str, ...],
    up_to: int | None,
    page: str | None,
    together: bool,
) -> None:
    """See that options are given together that belong together.

    Raises:
        ConfigInvalid: they are not.
    """
    if hashes is None and (seed is not None or spans):
        raise ConfigInvalid(f"{'--seed' if seed is not None else '--records'} needs --hash-only")
    if hashes is not None and seed is None:
        raise ConfigInvalid("--hash-only needs --seed, the same on every machine")
    if hashes is not None and (together or page is not None):
        raise ConfigInvalid(f"--hash-only and {'--compare' if together else '--report'} are apart")
    if together and (up_to is not None or page is not None):
        raise ConfigInvalid(f"--compare takes no {'--report' if up_to is None else '--up-to'}")


def _hash(
    stores: Sequence[str], target: str, seed: str, spans: Iterable[str], up_to: int | None
) -> None:
    from rmqha.pipeline.commitlog.hashed_store import encode, hash_store
    from rmqha.pipeline.commitlog.store_folder import open_store

    if len(stores) != 1:
        raise ConfigInvalid("--hash-only takes one store")
    _check_folder(target)
    by_record = [_span(one) for one in spans]
    found = hash_store(open_store(stores[0]), seed, up_to=up_to, by_record=by_record)
    Path(target).write_bytes(encode(found))
    low, high = (found.ranges[0].start, found.ranges[-1].stop) if found.ranges else (0, 0)
    print(f"{found.store}: bytes {low} to {high}: {len(found.ranges)} ranges hashed into {target}")


def _span(text: str) -> tuple[int, int]:
    found = SPAN.fullmatch(text)
    start, stop = map(int, found.groups()) if found else (0, 0)
    if start >= stop:
        raise ConfigInvalid(f"--records {text}: must be two offsets like 0-16777216")
    return start, stop


def _compare(paths: Sequence[str]) -> None:
    from rmqha.pipeline.commitlog.distinct import refuse_twice
    from rmqha.pipeline.commitlog.hashed_store import compare

    stores = _hashed(paths)
    refuse_twice(paths)
    found = compare(stores)
    _tell(found.differences)
    for start, stop in found.unnamed:
        print(f"bytes {start} to {stop} differ: hash all with --records {start}-{stop}")
    _tell_nameless(found.nameless)
    for start, stop in found.left_out:
        print(f"bytes {start} to {stop} were not compared: not all stores were hashed so far")
    print(f"{found.ranges} ranges compared, {len(found.different)} differ")
    if found.different:
        sys.exit(EXIT_FOUND)
    if not found.ranges:
        raise ConfigInvalid("nothing was compared: the stores have no bytes in common")
    _refuse_alone([stores[index].store for index in found.alone])


def _hashed(paths: Sequence[str]) -> list[HashedStore]:
    """Those of one name with their files: each machine may call its store ``store``."""
    from rmqha.pipeline.commitlog.hashed_store import decode

    found = [decode(_file(path), path) for path in paths]
    names = [one.store for one in found]
    return [
        replace(one, store=f"{one.store} ({path})") if names.count(one.store) > 1 else one
        for one, path in zip(found, paths, strict=True)
    ]


def _tell_nameless(spans: Iterable[tuple[int, int]]) -> None:
    for start, stop in spans:
        print(f"bytes {start} to {stop} differ, and no message in them was found that does")


def _refuse_alone(names: Sequence[str]) -> None:
    """See that something of every store was compared.

    Raises:
        ConfigInvalid: nothing of one was; the others agree.
    """
    if names:
        raise ConfigInvalid(
            f"nothing of {', '.join(names)} was compared: no other store has bytes of its ranges."
            " The others are equal"
        )


def _file(path: str) -> bytes:
    try:
        return Path(path).read_bytes()
    except OSError as error:
        raise ConfigInvalid(f"{path}: {error.strerror}") from error


def _audit(stores: Sequence[str], up_to: int | None, page: str | None, master: str | None) -> None:
    from rmqha.pipeline.jobs import audit
    from rmqha.pipeline.spark.progress import log_bytes, shown

    opened = audit.opened(stores)
    if page is not None:
        _check_folder(page)
    spark = session("rmqha replica-audit", master=master)
    with shown(spark, "replica-audit", log_bytes(opened), unit="ranges"):
        found = audit.run(spark, stores, up_to=up_to)
    _tell(found.differences)
    _tell_nameless(found.nameless)
    different = len(found.ranges_different)
    low, high = found.plan.low, found.plan.high
    if found.plan.end > high:
        print(
            f"bytes {high} to {found.plan.end} were not compared: they are not known to be confirmed"
        )
    print(f"bytes {low} to {high}: {found.ranges_compared} ranges compared, {different} differ")
    # Behind what it tells: a page that cannot be written hides no difference.
    if page is not None:
        Path(page).write_text(audit.report(stores, found), encoding="utf-8")
    if different:
        sys.exit(EXIT_FOUND)
    if not found.ranges_compared:
        raise ConfigInvalid(
            "nothing was compared: no two stores have bytes in common"
            + ("" if found.plan.confirm_offset is None else f" before {found.plan.confirm_offset}")
        )
    _refuse_alone(found.alone)


def _check_folder(path: str) -> None:
    """See that a file can be made, before hours are spent on what it is to hold.

    Raises:
        ConfigInvalid: its folder is not there, or it is a folder itself.
    """
    folder = Path(path).absolute().parent
    if not folder.is_dir():
        raise ConfigInvalid(f"{path}: there is no folder {folder}")
    if Path(path).is_dir():
        raise ConfigInvalid(f"{path} is a folder, and is to be a file")


def _tell(found: Iterable[Difference]) -> None:
    for one in found:
        queue = "" if one.queue_id is None else f" queue {one.queue_id} offset {one.queue_offset}"
        epochs = ", ".join(map(str, one.epochs)) or "unknown"
        print(f"{one.physical_offset}: {one.topic or '?'}{queue} epoch {epochs}: {one.what}")
