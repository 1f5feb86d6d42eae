"""Who waits for a connection is found without looking at everybody else."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from rmqha.controller.metadata.lanes import Lanes, Work
from rmqha.controller.metadata.messages import RequestReceived

NAMES, CONNECTIONS = ("a", "b"), (1, 2)
WAITING_MAX = 4


def work_of(name: str, connection: int | None) -> Work:
    request = None if connection is None else RequestReceived(1, connection, 1001, {})
    return Work(name, request, "", 0)


class Plain:
    """Lanes that look at all work each time."""

    def __init__(self) -> None:
        self.lanes: dict[str, list[Work]] = {}

    def abandoned(self, connection: int) -> tuple[list[Work], list[Work]]:
        """What was dropped, and what stays in flight for nobody."""
        dropped, marked = [], []
        for name, (first, *waiting) in self.lanes.items():
            marked += [first] if is_from(first, connection) else []
            dropped += [one for one in waiting if is_from(one, connection)]
            self.lanes[name] = [first, *(one for one in waiting if not is_from(one, connection))]
        return dropped, marked


def is_from(work: Work, connection: int) -> bool:
    return work.request is not None and work.request.connection == connection


STEPS = st.lists(
    st.tuples(
        st.sampled_from(["come", "come", "come", "end", "end", "close", "clear"]),
        st.sampled_from(NAMES),
        st.sampled_from([*CONNECTIONS, None]),
        st.booleans(),
    ),
    min_size=20,
    max_size=60,
)


@given(STEPS)
def test_lanes_when_connections_close_then_they_drop_what_a_look_at_all_work_would(
    steps: list[tuple[str, str, int | None, bool]],
) -> None:
    lanes, plain = Lanes(), Plain()
    for what, name, connection, starts in steps:
        match what:
            case "come":
                work = work_of(name, connection)
                assert lanes.busy(name) == (name in plain.lanes)
                if not lanes.busy(name):
                    lanes.start(work)
                    plain.lanes[name] = [work]
                elif lanes.wait(work, WAITING_MAX):
                    plain.lanes[name].append(work)
                else:
                    assert len(plain.lanes[name]) == 1 + WAITING_MAX
            case "end":
                if name in plain.lanes:
                    end(lanes, plain, name, starts=starts)
            case "close" if connection is not None:
                dropped, marked = plain.abandoned(connection)
                assert set(map(id, lanes.abandon(connection))) == set(map(id, dropped))
                assert all(one.abandoned for one in marked)
            case "clear":
                assert list(map(id, lanes.clear())) == [
                    id(one) for works in plain.lanes.values() for one in works
                ]
                plain.lanes.clear()
        assert lanes.size() == sum(map(len, plain.lanes.values()))
        kept = {id(one) for works in lanes._of_connection.values() for one in works}
        assert kept <= {id(one) for works in plain.lanes.values() for one in works}


def end(lanes: Lanes, plain: Plain, name: str, *, starts: bool) -> None:
    """What is in flight ends; what follows is in flight, or is answered at once."""
    following = lanes.next(name)
    plain.lanes[name].pop(0)
    while following is not None:
        assert following is plain.lanes[name][0]
        if starts:
            lanes.start(following)
            return
        plain.lanes[name].pop(0)
        following = lanes.next(name)
    assert not plain.lanes[name]
    del plain.lanes[name]


class Counted(dict[str, Work]):
    """Counts the looks at all."""

    looks = 0

    def items(self):  # type: ignore[no-untyped-def]  # as dict's
        Counted.looks += 1
        return super().items()


def test_lanes_when_a_connection_closes_then_nobody_looks_at_the_others() -> None:
    """10,000 closed connections each looked at 10,000 lanes: 55 s."""
    lanes = Lanes()
    lanes._in_flight = Counted()
    for number in range(100):
        lanes.start(work_of(f"s{number}", number))
        assert lanes.wait(work_of(f"s{number}", number + 1), WAITING_MAX)
    Counted.looks = 0
    assert [len(lanes.abandon(number)) for number in range(101)] == [0] + [1] * 100
    assert Counted.looks == 0
    assert all(one.abandoned for one in lanes.clear())
