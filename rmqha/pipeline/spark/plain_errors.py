"""Errors of the sources as users of Spark see them: one line, which names what they wrote.

Spark shows what a worker raised with all of its frames. It leaves them out where its own variable
says so, and a worker that has raised something ends: so the variable is set for just those errors
that tell a user what is wrong, and all frames of a mistake of ours stay.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rmqha.base.errors import RmqhaError

_HIDE = "SPARK_HIDE_TRACEBACK"
"""Spark's name; its setting is ``spark.sql.execution.pyspark.udf.hideTraceback.enabled``."""
_IN_WORKER = "PYTHON_WORKER_FACTORY_SECRET", "PYTHON_WORKER_FACTORY_SOCK_PATH"
_RAISED = re.compile(
    r"^(?:.*?: )?(?:rmqha(?:\.\w+)+|\w*Error: \[Errno \d+\]|java\.(?:io|net|nio\.file)\.\w+"
    r"|org\.apache\.hadoop\.fs\.Unsupported\w+):? (.+)$",
    re.MULTILINE,
)


@contextmanager
def one_line() -> Iterator[None]:
    """Let Spark show errors that are meant for users without their frames."""
    try:
        yield
    except (RmqhaError, OSError):
        if any(name in os.environ for name in _IN_WORKER):
            os.environ[_HIDE] = "1"
        raise


def line_of(error: BaseException) -> str | None:
    """What an error tells a user in one line; None where it is a mistake of ours."""
    if isinstance(error, BrokenPipeError):
        return None
    if isinstance(error, RmqhaError | OSError):
        return str(error)
    if not _is_of_java(error):
        return None
    found = _RAISED.search(str(error))
    return None if found is None else found[1].strip()


def java_line(error: BaseException) -> str | None:
    """The first line of what Java said, frames left out; None where it is an error of Python's."""
    if not _is_of_java(error):
        return None
    java = getattr(error, "java_exception", None)
    text = None if java is None else java.getMessage()
    return str(text or error).strip().partition("\n")[0]


def _is_of_java(error: BaseException) -> bool:
    return type(error).__module__.startswith(("pyspark.", "py4j."))


def no_option(format_name: str, key: str, names: Iterable[str]) -> str:
    """That a format has no such option, what may have been meant, and what there is.

    Spark hands names over in lower case.
    """
    by_key = {name.lower(): name for name in names}
    near = difflib.get_close_matches(key.lower(), by_key, n=1, cutoff=0.8)
    hint = f"did you mean {by_key[near[0]]}? " if near else ""
    return f"{format_name} has no option {key}; {hint}It has {', '.join(by_key.values())}"
