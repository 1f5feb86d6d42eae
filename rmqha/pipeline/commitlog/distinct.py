"""Several stores that are given together: each once, and each under a name of its own."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable, Sequence
from urllib.parse import unquote, urlsplit

from rmqha.base.errors import ConfigInvalid
from rmqha.pipeline.commitlog.elsewhere import HADOOPS, base_name, has_scheme
from rmqha.pipeline.commitlog.store_folder import COMMIT_LOG

_HERE = "file"


def refuse_twice(roots: Iterable[str]) -> None:
    """See that no store is given twice, under whatever names and paths.

    Raises:
        ConfigInvalid: one is: its messages would count twice, or be compared with themselves.
    """
    seen: dict[str, str] = {}
    for root in roots:
        place = _place(root)
        if place in seen:
            same = "" if seen[place] == root else f", as {seen[place]} before"
            raise ConfigInvalid(f"{root} is given twice{same}: give each store once")
        seen[place] = root


def distinct(stores: Sequence[tuple[str, str]]) -> list[tuple[str, str]]:
    """Name and directory of each; a store without a name gets as much of its path as tells it apart.

    Args:
        stores: (name or empty, directory).

    Raises:
        ConfigInvalid: one is given twice, or two have one name.
    """
    refuse_twice(root for _, root in stores)
    parts = [(name,) if name else _parts(root) for name, root in stores]
    lengths = [1] * len(parts)
    while True:
        names = ["/".join(one[-length:]) for one, length in zip(parts, lengths, strict=True)]
        count = Counter(names)
        alike = [at for at, name in enumerate(names) if count[name] > 1]
        if not alike:
            return [(name, root) for name, (_, root) in zip(names, stores, strict=True)]
        longer = [at for at in alike if lengths[at] < len(parts[at])]
        if not longer:
            raise ConfigInvalid(
                f"two stores are called {names[alike[0]]}: name them, as in a={stores[0][1]}"
            )
        for at in longer:
            lengths[at] += 1


def _parts(root: str) -> tuple[str, ...]:
    is_url = has_scheme(root)
    path = root.partition("?")[0].partition("://")[2] if is_url else os.path.abspath(root)
    if is_url:
        # A name stands in tables and reports; abfss://container@account has no secret there.
        authority, slash, rest = path.partition("/")
        user, _, host = authority.rpartition("@")
        path = (host if ":" in user else authority) + slash + rest
    return tuple(one for one in path.split("/") if one) or (base_name(root),)


def _place(root: str) -> str:
    """Where the files of a log are, however that is said."""
    if has_scheme(root):
        told = urlsplit(root)
        if told.scheme != _HERE:
            path, question, asked = root.partition("?")
            if path.startswith(HADOOPS):
                path = "s3://" + path.removeprefix(HADOOPS)
            return path.rstrip("/").removesuffix(f"/{COMMIT_LOG}").rstrip("/") + question + asked
        root = unquote(told.path)
    folder = os.path.join(root, COMMIT_LOG)
    return os.path.realpath(folder if os.path.isdir(folder) else root)
