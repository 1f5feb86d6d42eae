"""The machine's resolver and HTTP, for lists of addresses that change."""

from __future__ import annotations

import asyncio
import functools
import socket
from importlib import import_module
from typing import Any

from rmqha.base.errors import LookupFailed

BODY_BYTES_MAX = 65_536
HTTP_OK = 200


class SystemNames:
    """Names port: the system's resolver, in its own threads, and aiohttp.

    Nothing can end a look-up of the system's: one that is late goes on, and whoever asks for the same
    name meanwhile waits for that one. So a resolver that hangs holds one thread for each name.
    What comes when nobody waits is forgotten: by the next question it may be hours old.
    """

    def __init__(self) -> None:
        self._asked: dict[str, asyncio.Task[list[str]]] = {}

    async def resolve(self, host: str, *, timeout_ms: int) -> list[str]:
        """All IP addresses of a name, of both kinds.

        Raises:
            LookupFailed: it has none, or the resolver did not say within ``timeout_ms``.
        """
        task = self._asked.get(host)
        if task is None:
            task = self._asked[host] = asyncio.create_task(_addresses(host), name=f"resolve {host}")
            task.add_done_callback(functools.partial(self._ended, host))
        done, _ = await asyncio.wait({task}, timeout=timeout_ms / 1000)
        if not done:
            raise LookupFailed(f"the resolver has not answered within {timeout_ms} ms")
        try:
            return task.result()
        # A part of a name that is too long cannot be encoded.
        except (OSError, UnicodeError) as error:
            raise LookupFailed(str(error)) from error

    def _ended(self, host: str, task: asyncio.Task[list[str]]) -> None:
        del self._asked[host]  # this very one: no other is begun while it is there
        if not task.cancelled():
            task.exception()  # taken note of, also where nobody waits any more

    async def get(self, url: str, *, timeout_ms: int) -> str:
        """What an HTTP server answers, ``BODY_BYTES_MAX`` at most.

        Raises:
            LookupFailed: no success, too much, or nothing within ``timeout_ms``.
        """
        # Few brokers ask anybody by HTTP, and it is slow to load: one that serves goes on meanwhile.
        await asyncio.to_thread(import_module, "aiohttp")
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=timeout_ms / 1000)
        try:
            async with (
                aiohttp.ClientSession(timeout=timeout) as session,
                session.get(url) as answer,
            ):
                if answer.status != HTTP_OK:
                    raise LookupFailed(f"the answer is {answer.status} {answer.reason}")
                return (await _read(answer.content)).decode()
        except TimeoutError as error:
            raise LookupFailed(f"no answer within {timeout_ms} ms") from error
        except UnicodeDecodeError as error:
            raise LookupFailed("the answer is no text") from error
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise LookupFailed(str(error) or type(error).__name__) from error


async def _addresses(host: str) -> list[str]:
    infos = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    return list(dict.fromkeys(str(address[0]) for *_, address in infos))


async def _read(content: Any) -> bytes:
    """A whole body; raises LookupFailed when it is too long."""
    body = bytearray()
    async for piece in content.iter_any():
        body += piece
        if len(body) > BODY_BYTES_MAX:
            raise LookupFailed(f"the answer has more than {BODY_BYTES_MAX} bytes")
    return bytes(body)
