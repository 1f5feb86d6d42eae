"""Every request's check: who sends it, and whether that user may. Pure, but for what it remembers.

What came out for a request that comes again and again is kept: its fields are then one and the same
dict (``remoting.repeats.HeaderCache``), so its signature need not be computed again. Nothing of it
counts any more once the user's account is another object.
"""

from __future__ import annotations

from collections.abc import Callable

from rmqha.auth.accounts import USERNAME_LENGTH_MAX, Account
from rmqha.auth.addresses import ip_of
from rmqha.auth.contexts import contexts_of
from rmqha.auth.decide import check_allowed
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.resources import Action, Resource
from rmqha.auth.settings import AuthSettings
from rmqha.auth.signature import ACCESS_KEY, Key
from rmqha.remoting.command import RemotingCommand

KNOWN_MAX = 4096

Find = Callable[[str], Account | None]
Authorize = Callable[[Account, RemotingCommand, str], None]
"""User, request, and the peer's ``host:port``; raises Refused."""


class Check:
    """Of one server.

    Args:
        settings: what is looked at.
        find: a user by name, or None.
        authorize: whether a user may do what a request asks for.
    """

    def __init__(self, settings: AuthSettings, find: Find, authorize: Authorize) -> None:
        self.settings = settings
        self._find = find
        self._authorize = authorize
        # What has passed: requests without a body, by their fields' dict and their peer. The dict
        # itself is kept with its id, so that no other one can have it.
        self._passed: dict[tuple[int, str], tuple[dict[str, str], int, Account]] = {}
        self._keys: dict[str, tuple[Account, Key]] = {}

    def __call__(self, request: RemotingCommand, peer: str) -> None:
        """Let a request pass, or not; raises Refused."""
        fields, code = request.ext_fields, request.code
        asked = id(fields), peer
        known = self._passed.get(asked)
        if known is not None and known[1] == code and not request.body:
            account = known[2]
            if self._find(account.name) is account:
                return
        settings = self.settings
        is_authorized = settings.authorization and code not in settings.authorization_free
        if code in settings.authentication_free and not is_authorized:
            return
        account = self.user_of(request)
        if is_authorized:
            self._authorize(account, request, peer)
        if fields and not request.body:
            if len(self._passed) >= KNOWN_MAX:
                self._passed.clear()
            self._passed[asked] = (fields, code, account)

    def user_of(self, request: RemotingCommand) -> Account:
        """Who has signed a request; raises Refused, in Java's words."""
        fields = request.ext_fields
        if not fields:
            raise Refused(Reason.UNSIGNED, "authentication field is null.")
        account, key = self.key_of(fields.get(ACCESS_KEY))
        if not key.has_signed(request):
            raise Refused(Reason.WRONG_SIGNATURE, "check signature failed.")
        return account

    def require(
        self, request: RemotingCommand, peer: str, resource: Resource, actions: tuple[Action, ...]
    ) -> None:
        """Ask for one thing more than a request names; raises Refused."""
        settings, code = self.settings, request.code
        if not settings.authorization or code in settings.authorization_free:
            return
        check_allowed(self.user_of(request), resource, actions, ip_of(peer))

    def allows(
        self, name: str, code: int, source_ip: str, resource: Resource, actions: tuple[Action, ...]
    ) -> bool:
        """Whether a user may now do what follows from a request that he signed a while ago.

        Args:
            code: of that request.
        """
        settings = self.settings
        if not settings.authorization or code in settings.authorization_free:
            return True
        account = self._find(name)
        if account is None or not account.is_enabled:
            return False
        try:
            check_allowed(account, resource, actions, source_ip)
        except Refused:
            return False
        return True

    def key_of(self, name: str | None) -> tuple[Account, Key]:
        """The user of a name, who may sign, and the key to that; raises Refused."""
        if not name:
            raise Refused(Reason.UNSIGNED, "username cannot be null.")
        account, known = self._find(name), self._keys.get(name)
        if known is not None and known[0] is account:
            return known
        if account is None:
            raise Refused(Reason.UNKNOWN_USER, f"User:{name[:USERNAME_LENGTH_MAX]} is not found.")
        if not account.is_enabled:
            raise Refused(Reason.DISABLED_USER, f"User:{name} is disabled.")
        if len(self._keys) >= KNOWN_MAX:
            self._keys.clear()
        found = self._keys[name] = account, Key(account.password)
        return found


def by_policies(cluster: str) -> Authorize:
    """The rule of a broker: what the user's policies say about each thing that is asked for."""

    def authorize(account: Account, request: RemotingCommand, peer: str) -> None:
        if account.is_super:
            return
        source_ip = ip_of(peer)
        for resource, actions in contexts_of(request, cluster):
            check_allowed(account, resource, actions, source_ip)

    return authorize
