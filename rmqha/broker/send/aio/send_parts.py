"""What takes messages, put together: sends, what producers say of them later, and handing over."""

from __future__ import annotations

from collections.abc import Callable

from rmqha.broker.common.aio.ports import Handlers
from rmqha.broker.common.unique_ids import UniqueIds
from rmqha.broker.deferred.aio.master_services import MasterServices
from rmqha.broker.groups.aio.ports import Broker
from rmqha.broker.logical.aio.forwarding import Forwarding
from rmqha.broker.naming.aio.other_sets import OtherSets
from rmqha.broker.send.aio.handovers import Handovers
from rmqha.broker.send.aio.producer_requests import ProducerProcessor
from rmqha.broker.send.aio.reply_requests import ReplyProcessor
from rmqha.broker.send.aio.send_requests import SendProcessor
from rmqha.broker.send.aio.stray_requests import StrayRequests
from rmqha.remoting.aio.client import RemotingClient
from rmqha.runtime.logs import Logger


class SendParts:
    """Of one broker.

    Args:
        sets: the masters of other broker sets.
        forwarding: passes requests on to the leader of a logical queue.
        followed: the service address of the master that this broker follows.
        elect: asks the controllers to elect a broker, for a planned switch.

    Attributes:
        sends: takes messages.
        handovers: holds them while the mastership moves.
    """

    def __init__(
        self, broker: Broker, services: MasterServices, unique_ids: UniqueIds, sets: OtherSets,
        forwarding: Forwarding, client: RemotingClient, followed: Callable[[], str | None],
        elect: Callable[[int], None], log: Logger,
    ) -> None:  # fmt: skip
        self._broker = broker
        self._services = services
        self._strays = StrayRequests(broker, sets)
        self.sends = SendProcessor(
            broker, services, unique_ids, forwarding, self._strays.halves,
            lambda send, unanswered, kept_max: Handovers(
                broker, client, followed, elect, log,
                send=send, unanswered=unanswered, kept_max=kept_max,
            ),
        )  # fmt: skip
        self.handovers = self.sends.handovers

    def handlers(self) -> Handlers:
        """By request code, all but those of a handover, which operators alone may ask for."""
        return {
            **self.sends.handlers(),
            **ProducerProcessor(
                self._broker, self._services, self._strays, self.sends.row
            ).handlers(),
            **ReplyProcessor(self._broker, self._services).handlers(),
        }
