"""A reader's memory, pages of mapped files among it, is bounded whatever is read of a large part."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.pipeline.synthetic import SyntheticStore

pytestmark = pytest.mark.slow

LOG_MB = 128
BODY_BYTES = 4096
READ = """
import json, sys
from pathlib import Path
import pyarrow as pa
from rmqha.pipeline.commitlog.batches import Wanted, read_part
from rmqha.pipeline.commitlog.store_folder import open_replica
from rmqha.pipeline.commitlog.splits import plan

def kib(name):
    status = Path("/proc/self/status").read_text()
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith(name))

root, columns, topic, use_queues = json.loads(sys.argv[1])
topics = None if topic is None else frozenset([topic])
wanted = Wanted(tuple(columns), topics=topics, use_queues=use_queues)
parts = plan(open_replica(root))
next(read_part(parts[0], Wanted(("topic",), topics=frozenset(["none"]))), None)
Path("/proc/self/clear_refs").write_text("5")
before, rows = kib("VmRSS"), 0
for part in parts:
    for batch in read_part(part, wanted):
        rows += batch.num_rows
print(json.dumps([rows, (kib("VmHWM") - before) / 1024]))
"""


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One file, ten topics, all in one part."""
    root = tmp_path_factory.mktemp("memory") / "store"
    made = SyntheticStore(root, (LOG_MB + 8) << 20)
    body = bytes(BODY_BYTES)
    for number in range(LOG_MB * (1 << 20) // (BODY_BYTES + 220)):
        made.add(f"topic{number % 10}", number // 10 % 4, body)
    made.close()
    return root


@pytest.mark.parametrize(
    ("columns", "topic", "use_queues", "limit_mb"),
    [
        (["topic", "queueOffset"], None, True, 64),
        (["topic", "queueOffset"], None, False, 64),
        (["topic", "queueOffset"], "topic3", True, 100),
        (["topic", "body"], None, True, 90),
    ],
    ids=["by claims", "by headers", "one topic", "bodies"],
)
def test_part_when_read_then_its_pages_do_not_stay(
    store: Path, columns: list[str], topic: str | None, use_queues: bool, limit_mb: int
) -> None:
    """A part's pages alone are 128 MB; those of 16384 records 70."""
    asked = json.dumps([str(store), columns, topic, use_queues])
    done = subprocess.run(
        [sys.executable, "-c", READ, asked], capture_output=True, text=True, timeout=120, check=True
    )
    rows, most_mb = json.loads(done.stdout)
    assert rows >= (3000 if topic else 30_000)
    assert most_mb < limit_mb
