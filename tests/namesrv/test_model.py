"""The route table against a much simpler model, whatever brokers do in whatever order."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from rmqha.remoting import fastjson
from tests.namesrv.node import CLUSTER, Node, broker_fields, mapping_info, topic

Word = tuple[int, bool]

NAMES = st.sampled_from(["b", "c"])
HOSTS = st.integers(1, 4)
IDS = st.integers(0, 3)
TOPICS = st.frozensets(st.sampled_from(["A", "B", "D"]), max_size=3)
WORDS = st.none() | st.tuples(st.integers(1, 3), st.booleans())
"""What a registration says of A's mapping: epoch and dirt, or nothing."""
TIMEOUT_MS = 10_000


@dataclass
class Broker:
    """What the model knows of one address."""

    name: str
    broker_id: int | None
    epoch: int
    counter: int
    connection: int
    heard_ms: int


@dataclass
class Model:
    """Brokers by address, topics by set; nothing is kept that can be worked out."""

    brokers: dict[str, Broker] = field(default_factory=dict)
    topics: dict[str, dict[str, int]] = field(default_factory=dict)
    words: dict[str, Word] = field(default_factory=dict)
    doubted: set[str] = field(default_factory=set)

    def ids(self, name: str) -> dict[int, str]:
        """Addresses by id."""
        return {
            one.broker_id: address
            for address, one in self.brokers.items()
            if one.name == name and one.broker_id is not None
        }

    def leave(self, address: str) -> None:
        """A broker is gone; with the last of its name go its topics."""
        one = self.brokers.pop(address, None)
        if one is not None and not self.ids(one.name):
            self.topics.pop(one.name, None)
            self.forget_mapping(one.name)

    def forget_mapping(self, name: str) -> None:
        """Nothing is known of A at a set."""
        self.words.pop(name, None)
        self.doubted.discard(name)

    def hear(
        self, name: str, word: Word | None, *, changed: bool, lists: bool, master: bool
    ) -> None:
        """A set's word about A, or its silence."""
        before = self.words.get(name)
        if word is not None:
            self.doubted.discard(name)
            if before is None:
                taken = changed or "A" in self.topics.get(name, {})
            elif changed:
                # The newer one; of one epoch the clean one, and of two equals the later one.
                taken = (word[0], not word[1]) >= (before[0], not before[1])
            else:
                taken = word[0] > before[0]
            if taken:
                self.words[name] = word
        elif before is not None and lists and master:
            if name in self.doubted:
                self.forget_mapping(name)
            else:
                self.doubted.add(name)


class NameServerMachine(RuleBasedStateMachine):
    """Registrations, closes, silence and operators."""

    def __init__(self) -> None:
        super().__init__()
        self.node = Node()
        self.model = Model()

    @rule(
        name=NAMES, host=HOSTS, broker_id=IDS, epoch=st.integers(0, 3),
        counter=st.integers(1, 3), topics=TOPICS, connection=st.integers(1, 3), word=WORDS,
    )  # fmt: skip
    def register(
        self,
        name: str,
        host: int,
        broker_id: int,
        epoch: int,
        counter: int,
        topics: frozenset[str],
        connection: int,
        word: Word | None,
    ) -> None:
        """A broker registers, for the first time or again, as the same or as another."""
        address, model = f"h{host}:1", self.model
        answer = self.node.register(
            [topic(one) for one in sorted(topics)], brokerName=name, brokerAddr=address,
            haServerAddr=f"h{host}:2", brokerId=broker_id, epoch=epoch, counter=counter,
            heartbeatTimeoutMillis=TIMEOUT_MS, connection=connection,
            mappings=None if word is None
            else {"A": mapping_info("A", name, word[0], dirty=word[1])},
        )  # fmt: skip
        known = model.ids(name)
        if broker_id not in known and len(topics) == 1:
            assert answer.code == 1
            return
        assert answer.code == 0
        if address in model.brokers and model.brokers[address].name != name:
            model.leave(address)
            known = model.ids(name)
        holder = known.get(broker_id)
        if holder not in (None, address) and model.brokers[holder].epoch > epoch:
            model.leave(address)
            assert {} == answer.ext_fields
            return
        before = model.brokers.pop(address, None)
        if holder not in (None, address):
            model.brokers[holder].broker_id = None
        model.brokers[address] = Broker(
            name, broker_id, epoch, counter, connection, self.node.now_ms
        )
        same = before is not None and (before.epoch, before.counter) == (epoch, counter)
        if broker_id == min(model.ids(name)):
            listed = model.topics.setdefault(name, {})
            for one in topics:
                if holder is None or not same or one not in listed:
                    listed[one] = 6
            model.hear(name, word, changed=holder is None or not same, lists="A" in topics,
                       master=broker_id == 0)  # fmt: skip
        master = model.ids(name).get(0)
        told = {} if broker_id == 0 or master is None else {"masterAddr": master}
        assert told.get("masterAddr") == (answer.ext_fields or {}).get("masterAddr")

    @rule(connection=st.integers(1, 3))
    def close(self, connection: int) -> None:
        """A connection ends."""
        self.node.close(connection)
        for address in [a for a, one in self.model.brokers.items() if one.connection == connection]:
            self.model.leave(address)

    @rule(name=NAMES, host=HOSTS, connection=st.integers(1, 3))
    def unregister(self, name: str, host: int, connection: int) -> None:
        """A broker leaves in order, or somebody says so of another, or its former process does."""
        address = f"h{host}:1"
        fields = broker_fields(brokerName=name, brokerAddr=address)
        self.node.ask(104, fields, connection=connection)
        one = self.model.brokers.get(address)
        if one is not None and one.name == name and one.connection == connection:
            self.model.leave(address)

    @rule(host=HOSTS, name=st.one_of(st.none(), NAMES), code=st.sampled_from([904, 322]))
    def heartbeat(self, host: int, name: str | None, code: int) -> None:
        """A sign of life, or somebody's word about the address of another set."""
        address = f"h{host}:1"
        self.node.ask(code, broker_fields(brokerName=name, brokerAddr=address))
        one = self.model.brokers.get(address)
        if one is not None and name in (None, one.name):
            one.heard_ms = self.node.now_ms

    @rule(after_ms=st.sampled_from([0, 4000, 6000, TIMEOUT_MS + 1]))
    def time_passes(self, after_ms: int) -> None:
        """Whoever was silent for longer than it said is gone."""
        self.node.tick(after_ms)
        late = [
            address
            for address, one in self.model.brokers.items()
            if one.heard_ms + TIMEOUT_MS < self.node.now_ms
        ]
        for address in late:
            self.model.leave(address)

    @rule(name=NAMES, writable=st.booleans())
    def change_perm(self, name: str, *, writable: bool) -> None:
        """An operator wipes or adds the write permission."""
        self.node.ask(327 if writable else 205, {"brokerName": name})
        for one in self.model.topics.get(name, {}):
            self.model.topics[name][one] = 6 if writable else 4

    @rule(name=st.sampled_from(["A", "B", "D"]))
    def delete_topic(self, name: str) -> None:
        """An operator deletes a topic."""
        self.node.ask(216, {"topic": name, "clusterName": CLUSTER})
        for broker_name, listed in self.model.topics.items():
            listed.pop(name, None)
            if name == "A":
                self.model.forget_mapping(broker_name)

    @invariant()
    def shows_what_the_model_has(self) -> None:
        """All answers, those that were kept included, are those of the model."""
        model, node = self.model, self.node
        names = {one.name for one in model.brokers.values() if one.broker_id is not None}
        info = fastjson.loads(node.ask(106).body)
        shown = {
            name: {int(key): address for key, address in one["brokerAddrs"].items()}
            for name, one in info["brokerAddrTable"].items()
        }
        assert {name: model.ids(name) for name in names} == shown
        assert ({CLUSTER: sorted(names)} if names else {}) == info["clusterAddrTable"]
        topics = {one for listed in model.topics.values() for one in listed}
        assert sorted(topics) == fastjson.loads(node.ask(206).body)["topicList"]
        for one in ("A", "B", "D"):
            route = node.route(one)
            perms = {queues["brokerName"]: queues["perm"] for queues in route.get("queueDatas", [])}
            expected = {name: listed[one] for name, listed in model.topics.items() if one in listed}
            assert expected == perms
            assert sorted(expected) == [data["brokerName"] for data in route.get("brokerDatas", [])]

    @invariant()
    def shows_the_newest_mapping_of_each_set(self) -> None:
        """New clients see what counts of each set, old ones a topic without queues."""
        shown = self.node.route("A").get("topicQueueMappingByBroker", {})
        known = {} if not self.node.route("A") else self.model.words
        assert known == {name: (one["epoch"], one["dirty"]) for name, one in shown.items()}
        old = self.node.route("A", version=317)
        assert "topicQueueMappingByBroker" not in old
        refused = [one["perm"] == 0 for one in old.get("queueDatas", [])]
        assert [bool(shown)] * len(refused) == refused

    @invariant()
    def keeps_nothing_that_is_not_needed(self) -> None:
        """No table may grow with what has gone."""
        table = self.node.machine.table
        assert {address for _, address in table.live} == set(self.model.brokers)
        assert table.route_count == sum(map(len, table.topics.values()))
        assert table.route_count == sum(map(len, table.topics_of.values()))
        assert table.mapping_count == sum(map(len, table.mappings.values()))
        assert set(self.model.words) == set(table.mappings.get("A", {}))
        assert {("A", name) for name in self.model.doubted} == table.doubts
        owned = {key for one in (1, 2, 3) for key in table.owned_by(one)}
        assert owned == set(table.live)


NameServerMachine.TestCase.settings = settings(max_examples=60, stateful_step_count=30)
TestModel = NameServerMachine.TestCase
