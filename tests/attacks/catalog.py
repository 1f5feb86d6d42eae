"""All attacks by name, with the rows they stand for and the rate at which a siege has them."""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from tests.attacks import crowding, deciding, messages
from tests.attacks.attacker import Run


class Attack(Struct, frozen=True):
    """One way to do harm.

    Attributes:
        rows: of the threats.
        siege_per_s: shots a second in a siege, beside all others.
        alone_per_s: when it is alone; 0 for as fast as it goes.
        has_user: it is worth more with a user's leave: a siege has it twice.
        needs: targets without which there is nothing to attack.
    """

    rows: str
    do: Callable[[Run], None]
    siege_per_s: float
    alone_per_s: float
    has_user: bool = False
    needs: str = "controllers"


ATTACKS: dict[str, Attack] = {
    "forged-roles": Attack("X1", deciding.forged_roles, 20, 50),
    "raft": Attack("X2", deciding.raft, 100, 300),
    "system-records": Attack("X3, X4", messages.system_records, 40, 200, True),
    "lying-client": Attack("X5", messages.lying_client, 1, 4, True),
    "many-groups": Attack("X6", messages.many_groups, 1, 6, True),
    "selectors": Attack("X7", messages.selectors, 2, 10, True),
    "stand-in-slave": Attack("X8", deciding.stand_in_slave, 20, 100, needs="ha"),
    "routes": Attack("X9", deciding.routes, 40, 200),
    "brokers-names": Attack("X10", deciding.brokers_names, 100, 300),
    "floods": Attack("X20", crowding.floods, 250, 0),
    "idle-slaves": Attack("X21", crowding.idle_slaves, 60, 400, needs="ha"),
    "unfinished-frames": Attack("X22", crowding.unfinished_frames, 100, 3000),
    "unread-pulls": Attack("X22", crowding.unread_pulls, 20, 400, True),
    "ghosts": Attack("X23", crowding.ghosts, 150, 2000),
    "growing-bodies": Attack("X24", messages.growing_bodies, 2, 40, True),
    "deep-json": Attack("X25", messages.deep_json, 10, 100),
    "slow-readers": Attack("X26", crowding.slow_readers, 60, 500, needs="http"),
    "configuration": Attack("X27", deciding.configuration, 20, 100),
}
