"""The package as ``spark-submit`` ships it: one zip of sources, and the script that it runs.

The zip holds this project's sources only. What they import (numpy, pyarrow, msgspec and so on) has
to be installed on every machine of the cluster.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

import rmqha

ZIP_NAME = "rmqha.zip"
SCRIPT_NAME = "pipeline.py"
SUFFIXES = (".py", ".html", ".typed")
_SCRIPT = '''"""Given to spark-submit together with rmqha.zip: see docs/pipeline.md."""

from rmqha.cli.pipeline import main

main(prog_name="pipeline")
'''
_MOMENT = (1980, 1, 1, 0, 0, 0)


def write_package(folder: Path) -> tuple[Path, Path]:
    """Write zip and script into a directory, which is made; the same sources give the same bytes.

    Returns:
        Their paths.

    Raises:
        OSError: they cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    zip_path, script_path = folder / ZIP_NAME, folder / SCRIPT_NAME
    making = folder / f"{ZIP_NAME}.{os.getpid()}"
    root = Path(str(rmqha.__file__)).parent
    with zipfile.ZipFile(making, "w", zipfile.ZIP_DEFLATED) as package:
        for path in _sources(root):
            name = f"rmqha/{path.relative_to(root).as_posix()}"
            info = zipfile.ZipInfo(name, _MOMENT)
            info.compress_type = zipfile.ZIP_DEFLATED
            info.external_attr = 0o644 << 16
            package.writestr(info, path.read_bytes())
    making.replace(zip_path)
    script_path.write_text(_SCRIPT)
    return zip_path, script_path


def _sources(root: Path) -> Iterator[Path]:
    for path in sorted(root.rglob("*")):
        if path.suffix in SUFFIXES and path.is_file() and "__pycache__" not in path.parts:
            yield path
