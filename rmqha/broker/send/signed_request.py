"""The check of the request that nearly every message comes with, where authentication is on.

As in ``plain_request``, its header is read in one go, here with all that is signed. A header with
any other member is read as all are, and checked as all are.

Source: SendMessageRequestHeaderV2 and AclClientRPCHook of RocketMQ 4.9.8 to 5.5.
"""

from __future__ import annotations

from rmqha.auth.accounts import Account
from rmqha.auth.addresses import ip_of
from rmqha.auth.check import KNOWN_MAX, Check, Find, by_policies
from rmqha.auth.contexts import send_context
from rmqha.auth.decide import check_allowed
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.settings import AuthSettings
from rmqha.broker.send.plain_request import PlainSend, SendFields, message_decoder
from rmqha.remoting.codes import RequestCode
from rmqha.remoting.command import RemotingCommand

_SEND_MESSAGE_V2 = int(RequestCode.SEND_MESSAGE_V2)
_NOT_OF_A_MESSAGE = ("access_key", "signature", "security_token", "n")


class SignedFields(
    SendFields, gc=False, forbid_unknown_fields=True, kw_only=True,
    rename={"access_key": "AccessKey", "signature": "Signature", "security_token": "SecurityToken"},
):  # fmt: skip
    """All fields of a signed message. What may be absent is then empty, and adds nothing."""

    access_key: str
    signature: str
    security_token: str = ""
    j: str
    k: str
    m: str
    n: str = ""

    def content(self, body: bytes) -> bytes:
        """What is signed: the values in the order of their names, and the body."""
        text = (
            f"{self.access_key}{self.security_token}{self.a}{self.b}{self.c}{self.d}{self.e}{self.f}"
            f"{self.g}{self.h}{self.i}{self.j}{self.k}{self.l or ''}{self.lo or ''}{self.m}{self.n}"
            f"{self.rmqhaForwarded or ''}"
        )
        return text.encode() + body

    def members(self) -> dict[str, str]:
        """Those of the message; who sent it has been looked at."""
        named = super().members()
        for name in _NOT_OF_A_MESSAGE:
            del named[name]
        return named


decode_signed_message = message_decoder(SignedFields)


class BrokerCheck(Check):
    """The check of a broker's requests.

    Args:
        cluster: brokerClusterName, the resource of what no topic or group is named in.
    """

    def __init__(self, settings: AuthSettings, find: Find, cluster: str) -> None:
        super().__init__(settings, find, by_policies(cluster))
        # What was allowed, by user, topic and peer, with the account that it was allowed to.
        self._allowed: dict[tuple[str, str, str], Account] = {}
        self._authorizes_messages = (
            settings.authorization and _SEND_MESSAGE_V2 not in settings.authorization_free
        )
        self._looks_at_messages = (
            self._authorizes_messages or _SEND_MESSAGE_V2 not in settings.authentication_free
        )

    def __call__(self, request: RemotingCommand, peer: str) -> None:
        """Let a request pass, or not; raises Refused."""
        if type(request) is not PlainSend:
            super().__call__(request, peer)
            return
        sent = request.sent
        if not self._looks_at_messages:
            return
        if not isinstance(sent, SignedFields):
            raise Refused(Reason.UNSIGNED, "authentication field is null.")
        account, key = self.key_of(sent.access_key)
        if not key.fits(sent.content(request.body), sent.signature):
            raise Refused(Reason.WRONG_SIGNATURE, "check signature failed.")
        if not self._authorizes_messages:
            return
        asked = sent.access_key, sent.b, peer
        if self._allowed.get(asked) is not account:
            resource, actions = send_context(sent.b)
            check_allowed(account, resource, actions, ip_of(peer))
            if len(self._allowed) >= KNOWN_MAX:
                self._allowed.clear()
            self._allowed[asked] = account
