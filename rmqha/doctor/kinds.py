"""Which kind of file a path is, by the names that brokers and controllers give."""

from __future__ import annotations

import re
from enum import Enum
from pathlib import PurePath

from rmqha.base.errors import ConfigInvalid

_OF_A_LOG = re.compile(r"[0-9]{20}")
_OF_AN_INDEX = re.compile(r"[0-9]{17}")


class Kind(Enum):
    """Files that can be shown; the values are what ``--as`` takes."""

    COMMIT_LOG = "commit-log"
    CONSUME_QUEUE = "consume-queue"
    BATCH_CONSUME_QUEUE = "batch-consume-queue"
    INDEX = "index"
    CHECKPOINT = "checkpoint"
    EPOCHS = "epochs"
    IDENTITY = "identity"
    CONFIG = "config"
    CONTROLLER = "controller"
    FRAMES = "frames"


def kind_of(path: str) -> Kind:
    """The kind of a file by its name, and by the folders it lies in.

    Raises:
        ConfigInvalid: no name of a broker or a controller is like this one.
    """
    place = PurePath(path)
    name, folders = place.name, place.parts[:-1]
    if _OF_A_LOG.fullmatch(name):
        if "consumequeue" in folders:
            return Kind.CONSUME_QUEUE
        if place.suffix == "":
            return Kind.COMMIT_LOG
    if _OF_AN_INDEX.fullmatch(name):
        return Kind.INDEX
    for beginning, kind in (
        ("epochFileCheckpoint", Kind.EPOCHS),
        ("brokerIdentity", Kind.IDENTITY),
        ("checkpoint", Kind.CHECKPOINT),
    ):
        if name.startswith(beginning):
            return kind
    if name.endswith((".json", ".json.bak")):
        return Kind.CONFIG
    if name.endswith((".wal", ".snapshot")):
        return Kind.CONTROLLER
    raise ConfigInvalid(
        f"{path}: no file of a broker or a controller has such a name; say what it is by"
        f" --as {'|'.join(kind.value for kind in Kind)}"
    )
