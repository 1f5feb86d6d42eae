"""When a broker's topic table changed last: what name servers judge registrations by.

Source: DataVersion, RocketMQ remoting.
"""

from __future__ import annotations

from msgspec import Struct

from rmqha.base.errors import RemoteProtocolError


class DataVersion(Struct, frozen=True):
    """When a table changed last.

    Attributes:
        state_version: the master epoch; a name server believes the larger one.
    """

    state_version: int = 0
    timestamp: int = 0
    counter: int = 0

    def members(self) -> dict[str, int]:
        """The JSON members."""
        return {
            "counter": self.counter,
            "stateVersion": self.state_version,
            "timestamp": self.timestamp,
        }

    @classmethod
    def of(cls, value: object) -> DataVersion:
        """Read the JSON members; 4.x writes no stateVersion.

        Raises:
            RemoteProtocolError: not such an object.
        """
        if not isinstance(value, dict):
            raise RemoteProtocolError("a data version is no object")
        numbers = [value.get(name, 0) for name in ("stateVersion", "timestamp", "counter")]
        if not all(isinstance(number, int) for number in numbers):
            raise RemoteProtocolError("a data version holds other than numbers")
        return cls(*numbers)

    def next(self, wall_ms: int, state_version: int) -> DataVersion:
        """The version after a change."""
        return DataVersion(state_version, wall_ms, self.counter + 1)
