"""The stream of static topics on a Java broker set beside one of ours, and on Java's alone.

``RMQHA_INTEROP_JAVA_BROKER=1`` adds the second.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from rmqha.testing.real.java import NameServer
from tests.interop import required
from tests.interop.alone import AloneBroker, JavaAlone
from tests.interop.test_static_topics import SHOWN
from tests.pipeline.static import NAMES, StaticTopics
from tests.pipeline.test_live_static import Stream

PATIENT = {"failoverTimeoutMs": "60000"}
"""A Java leader looks only now and then where other broker sets are."""
MAKERS = {"mixed": (JavaAlone, AloneBroker), "java": (JavaAlone, JavaAlone)}


@pytest.fixture(scope="module", params=[one for one in SHOWN if one in MAKERS])
def sets(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[StaticTopics]:
    """Two broker sets and Java's name server."""
    required.require_classpath()
    folder = tmp_path_factory.mktemp("static")
    with StaticTopics.opened(folder, NameServer, MAKERS[request.param]) as made:
        yield made


@pytest.mark.parametrize("expression", ["*", "TagA"])
def test_stream_when_queues_move_to_and_from_java_then_each_message_once(
    sets: StaticTopics, expression: str
) -> None:
    """Java's leader answers nothing at the end of a segment, but tells where the next one is."""
    topic = f"There{len(expression)}"
    sets.create(topic)
    more = {"subExpression": expression, **PATIENT}
    stream = Stream(sets, topic, pullBatchSize="3", **more)
    assert stream.read() == {}
    sent = sets.fill(topic, range(6))
    assert stream.read() == sent
    sent = sets.fill(topic, range(6, 10))
    sets.remap(topic, NAMES[1])
    assert stream.read() == sent
    sent = sets.fill(topic, range(10, 15))
    sets.remap(topic, NAMES[0])
    sent |= sets.fill(topic, range(15, 20))
    assert stream.read() == sent
    whole = Stream(sets, topic, **more).read()
    assert whole.keys() == {b"%s %d" % (topic.encode(), one) for one in range(20)}
