"""Where the nodes of ``rmqha up`` live and what is asked of them: pure, from what its folder remembers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import msgspec

from rmqha.base.errors import ConfigInvalid
from rmqha.broker.common.settings import DEFAULTS
from rmqha.testing.settings import Place, Plan

CONTROLLERS_FROM, PAGES_FROM, BROKERS_FROM = 2, 12, 1035
"""Behind the name server's port: with 9876 these are 9878, 9888 and 10911, as RocketMQ has them."""
BROKER_STEP = 10
CONTROLLERS_MAX = PAGES_FROM - CONTROLLERS_FROM
PORT_MAX = 65_535
FAST_PORT, HA_PORT = -2, 1
REPLICAS_MAX = 9


class Shape(msgspec.Struct, frozen=True):
    """What a folder remembers of its cluster.

    Attributes:
        port: of the name server; all others follow from it.
        host: the address that every node listens at, and that clients are told.
        sets: properties of all brokers: their stores may not be readable with others.
    """

    controllers: int = 3
    replicas: int = 3
    port: int = 9876
    host: str = "127.0.0.1"
    sets: Mapping[str, str] = {}

    def checked(self) -> Shape:
        """Return this shape when it can be.

        Raises:
            ConfigInvalid: a number that cannot be.
        """
        if not 1 <= self.controllers <= CONTROLLERS_MAX:
            raise ConfigInvalid(f"{self.controllers} controllers; 1 to {CONTROLLERS_MAX} can be")
        if not 1 <= self.replicas <= REPLICAS_MAX:
            raise ConfigInvalid(f"{self.replicas} replicas; 1 to {REPLICAS_MAX} can be")
        last = self.port + BROKERS_FROM + BROKER_STEP * self.replicas
        if self.port < 1 or last > PORT_MAX:
            raise ConfigInvalid(f"port {self.port}: ports up to {last} are needed")
        return self


def decided(
    remembered: Shape | None, given: Mapping[str, int | str], sets: Mapping[str, str]
) -> Shape:
    """The shape of this run.

    Args:
        remembered: the folder's; None when it holds no cluster yet.
        given: members that the user asked for by name.
        sets: properties of brokers that he asked for, in addition to those of the former run.

    Raises:
        ConfigInvalid: what cannot be, or what the stores of a folder would refuse.
    """
    before = remembered or Shape()
    wanted = msgspec.structs.replace(before, **given, sets={**before.sets, **sets}).checked()
    if remembered is None:
        return wanted
    for name in ("controllers", "port", "host"):
        was, now = getattr(remembered, name), getattr(wanted, name)
        if was != now:
            raise ConfigInvalid(
                f"the folder holds a cluster with {name} {was}, not {now}: its stores know each"
                " other by that; leave the option out, or give another --folder"
            )
    return wanted


class UpPlan(Plan, frozen=True):
    """The places of a shape, with production's Raft periods and a status page for each controller."""

    def properties(self, place: Place) -> dict[str, str]:
        """The whole configuration file of a node."""
        found = super().properties(place)
        if place.kind == "controller":
            found["statusPagePort"] = str(page_port(place))
        elif place.kind == "broker":
            # RocketMQ's own default, not that of tests.
            found["brokerClusterName"] = str(
                self.broker_settings.get("brokerClusterName", DEFAULTS["brokerClusterName"])
            )
        return found


def page_port(controller: Place) -> int:
    """Where a controller shows what it knows."""
    return controller.port + PAGES_FROM - CONTROLLERS_FROM


def plan_of(folder: Path, shape: Shape) -> UpPlan:
    """All nodes of a cluster; each has a folder of its own below ``folder``."""

    def place(kind: str, number: int, port: int, *more: int) -> Place:
        name = f"{kind}-{number}"
        return Place(name, kind, folder / name, port, (port, *more), shape.host)

    controllers = (
        place("controller", at, shape.port + CONTROLLERS_FROM + at)
        for at in range(shape.controllers)
    )
    brokers = (shape.port + BROKERS_FROM + BROKER_STEP * at for at in range(shape.replicas))
    return UpPlan(
        controllers=tuple(controllers),
        name_servers=(place("namesrv", 0, shape.port),),
        brokers=tuple(
            place("broker", at, port, port + FAST_PORT, port + HA_PORT)
            for at, port in enumerate(brokers)
        ),
        broker_settings=shape.sets,
        steady=True,
    )


def all_ports(plan: UpPlan) -> dict[int, str]:
    """Every port that will be listened on, and whose it is."""
    found = {port: place.name for place in plan.places for port in place.ports}
    pages = {page_port(one): f"the status page of {one.name}" for one in plan.controllers}
    return found | pages
