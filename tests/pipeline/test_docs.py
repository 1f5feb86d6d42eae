"""The Python examples of docs/pipeline.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.pipeline.stores import TOPICS, messages, written

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.filterwarnings("ignore")]
PAGE = Path(__file__).parents[2] / "docs" / "pipeline.md"
EXAMPLES = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)


async def test_examples_when_run_then_they_show_what_is_stored(
    spark: SparkSession,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """In one go, as a reader would: later ones use what earlier ones made."""
    records = await written(tmp_path / "store", messages(40))
    assert len(EXAMPLES) == 2
    scope: dict[str, object] = {}
    for example in EXAMPLES:
        # Spark's own working directory is where its JVM was started.
        exec(example.replace('"store"', f'"{tmp_path / "store"}"'), scope)
    shown = capsys.readouterr().out
    for topic in TOPICS:
        assert topic in shown
    orders = sum(one.topic == "orders" for one in records)
    assert shown.strip().splitlines()[-1] == str(orders)
