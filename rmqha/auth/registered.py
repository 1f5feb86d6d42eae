"""Addresses that brokers register: which can be one, and which have proved that they are a server's own.

Controllers (1008, 906, 26) and name servers (905) send to these addresses what others have said. A
signature covers no names and no request code, so one over a stranger's text is good for any request
that the stranger makes of it. It is put there only where the address was named in a request that was
signed with the very same credentials: whoever did that learns nothing from another signature.

Source: our own; Java's controller and name server sign nothing that they send there.
"""

from __future__ import annotations

import re

from rmqha.auth.signature import Credentials
from rmqha.base.errors import ConfigInvalid
from rmqha.remoting.address import parse_address
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

PROVEN_MAX = 65_536
"""Addresses of all connections together; those beyond are sent what is not signed."""
_ADDRESS_FIELDS: dict[int, str] = {
    RequestCode.REGISTER_BROKER: "brokerAddr",
    RequestCode.BROKER_HEARTBEAT: "brokerAddr",
    RequestCode.CONTROLLER_REGISTER_BROKER: "brokerAddress",
}
_CHARACTERS = re.compile(r"[\w.:%\[\]-]+")


def address_trouble(text: str, name: str) -> str | None:
    """Why a broker cannot be reached at an address, in words; None when it can.

    Args:
        name: of the field that has it.
    """
    try:
        if _CHARACTERS.fullmatch(text):
            parse_address(text)
            return None
    except ConfigInvalid:
        pass
    return f"{name} is not host:port with a port of 1 to 65535"


class ProvenAddresses:
    """Those of one server, for as long as the connection that proved them is open.

    Args:
        credentials: what the server signs with; without, it signs nothing and looks at nothing.
    """

    def __init__(self, credentials: Credentials | None) -> None:
        self._credentials = credentials
        self._by_connection: dict[int, set[str]] = {}
        self._connections: dict[str, int] = {}
        self._size = 0

    def hear(self, connection: int, requests: list[RemotingCommand]) -> None:
        """Take what has come on a connection; a signature is computed once for each address."""
        if self._credentials is not None:
            for request in requests:
                self._hear(self._credentials, connection, request)

    def _hear(self, credentials: Credentials, connection: int, request: RemotingCommand) -> None:
        field, fields = _ADDRESS_FIELDS.get(request.code), request.ext_fields
        if field is None or not fields:
            return
        address, known = fields.get(field), self._by_connection.get(connection)
        if not address or (known is not None and address in known) or self._size >= PROVEN_MAX:
            return
        if credentials.have_signed(request) and address_trouble(address, field) is None:
            self._by_connection.setdefault(connection, set()).add(address)
            self._connections[address] = self._connections.get(address, 0) + 1
            self._size += 1

    def closed(self, connection: int) -> None:
        """The connection has ended: what it alone has proved is forgotten."""
        for address in self._by_connection.pop(connection, ()):
            self._size -= 1
            self._connections[address] -= 1
            if not self._connections[address]:
                del self._connections[address]

    def sign(self, address: str, command: RemotingCommand) -> None:
        """Sign what goes to an address, or because of what was heard there, if it is proven."""
        if self._credentials is not None and address in self._connections:
            self._credentials.sign(command)
