"""Whether a user may do something: which entry decides, and that no order of entries matters."""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rmqha.auth.accounts import (
    Account,
    Decision,
    Entry,
    Policy,
    PolicyType,
    UserType,
)
from rmqha.auth.decide import check_allowed, deciding_entry
from rmqha.auth.refused import Reason, Refused
from rmqha.auth.resources import Action, Pattern, Resource, ResourceType, parse_resource

IP = "10.1.2.3"
ORDERS = Resource(ResourceType.TOPIC, "orders")

NAMES = st.text("abo", min_size=1, max_size=4)
RESOURCES = st.one_of(
    st.just(Resource(ResourceType.ANY, "", Pattern.ANY)),
    st.builds(lambda kind: Resource(kind, "", Pattern.ANY), st.sampled_from(["Topic", "Group"]).map(ResourceType)),
    st.builds(
        Resource, st.sampled_from(["Topic", "Group"]).map(ResourceType), NAMES,
        st.sampled_from([Pattern.LITERAL, Pattern.PREFIXED]),
    ),
)  # fmt: skip
ACTIONS = st.lists(
    st.sampled_from([Action.PUB, Action.SUB, Action.GET, Action.ALL]), min_size=1, unique=True
)
ENTRIES = st.builds(
    Entry, RESOURCES, ACTIONS.map(tuple), st.sampled_from(Decision),
    st.sampled_from([(), ("10.0.0.0/8",), ("192.168.1.1",)]),
)  # fmt: skip
ASKED = st.builds(Resource, st.sampled_from(["Topic", "Group"]).map(ResourceType), NAMES)


def entry(key: str, actions: str, decision: str = "Allow", *ips: str) -> Entry:
    """As people write one."""
    resource = parse_resource(key)
    assert resource is not None
    return Entry(resource, tuple(map(Action, actions.split(","))), Decision(decision), ips)


def user(*entries: Entry, default: tuple[Entry, ...] = ()) -> Account:
    """A normal user with a custom and a default policy."""
    policies = [Policy(PolicyType.CUSTOM, entries), Policy(PolicyType.DEFAULT, default)]
    return Account("ann", "secret", policies=tuple(one for one in policies if one.entries))


def allowed(account: Account, resource: Resource, action: Action, ip: str = IP) -> bool:
    """Whether a request passes."""
    try:
        check_allowed(account, resource, (action,), ip)
    except Refused:
        return False
    return True


def test_policy_when_nothing_matches_then_java_s_words() -> None:
    """Operators search for them."""
    with pytest.raises(Refused) as caught:
        check_allowed(user(), ORDERS, (Action.PUB,), IP)
    assert str(caught.value) == (
        "User:ann has no permission to access Topic:orders from 10.1.2.3, no matched policies."
    )
    assert caught.value.reason is Reason.NO_POLICY
    denied = user(entry("Topic:orders", "Pub", "Deny"))
    with pytest.raises(Refused, match=r"the decision is deny\.$") as caught:
        check_allowed(denied, ORDERS, (Action.PUB,), IP)
    assert caught.value.reason is Reason.DENIED


@pytest.mark.parametrize(
    ("entries", "may"),
    [
        ([entry("Topic:orders", "Pub"), entry("Topic:*", "All", "Deny")], True),
        ([entry("Topic:ord*", "Pub", "Deny"), entry("Topic:orde*", "Pub")], True),
        ([entry("Topic:ord*", "Pub"), entry("Topic:orde*", "Pub", "Deny")], False),
        ([entry("*", "All"), entry("Topic:*", "Pub", "Deny")], False),
        ([entry("*", "All", "Deny"), entry("Topic:*", "Pub")], True),
        ([entry("Topic:orders", "Sub")], False),
        ([entry("Topic:orders", "Sub,Pub")], True),
        ([entry("Group:orders", "All")], False),
        ([entry("Topic:orders", "Pub", "Allow", "10.0.0.0/8")], True),
        ([entry("Topic:orders", "Pub", "Allow", "10.99.3.4/8")], True),
        ([entry("Topic:orders", "Pub", "Allow", "10.1.2.4")], False),
        ([entry("Topic:orders", "Pub", "Deny", "10.1.2.4"), entry("Topic:ord*", "Pub")], True),
        # Java takes the one that allows.
        ([entry("Topic:orders", "Pub"), entry("Topic:orders", "All", "Deny")], False),
    ],
)
def test_entries_when_several_match_then_the_most_exact_counts(
    entries: list[Entry], may: bool
) -> None:
    """Literal, longest prefix, any name of the kind, any kind; in whatever order they stand."""
    for order in (entries, entries[::-1]):
        assert allowed(user(*order), ORDERS, Action.PUB) is may


def test_default_policy_when_a_custom_one_says_something_then_it_is_silent() -> None:
    """However exact the default is."""
    default = (entry("Topic:orders", "All", "Deny"),)
    assert allowed(user(entry("Topic:*", "Pub"), default=default), ORDERS, Action.PUB)
    assert not allowed(user(entry("Topic:other", "Pub"), default=default), ORDERS, Action.PUB)


def test_super_user_when_policies_deny_then_it_may_all_the_same() -> None:
    """As in Java: policies bind normal users."""
    deny = Policy(PolicyType.CUSTOM, (entry("*", "All", "Deny"),))
    assert allowed(Account("root", "p", UserType.SUPER, policies=(deny,)), ORDERS, Action.PUB)


@pytest.mark.costly
@given(st.lists(ENTRIES, max_size=6), ASKED, ACTIONS, st.randoms(use_true_random=False))
def test_entries_when_reordered_then_the_decision_stays(
    entries: list[Entry], asked: Resource, actions: list[Action], rng: random.Random
) -> None:
    """An operator cannot see the order that entries were made in."""
    found = deciding_entry([Policy(PolicyType.CUSTOM, tuple(entries))], asked, actions, IP)
    shuffled = entries[:]
    rng.shuffle(shuffled)
    again = deciding_entry([Policy(PolicyType.CUSTOM, tuple(shuffled))], asked, actions, IP)
    assert (found is None) == (again is None)
    if found is not None and again is not None:
        assert found.decision is again.decision
        assert found.matches(asked, actions, IP)
        for other in entries:
            if other.matches(asked, actions, IP):
                assert found.resource.rank <= other.resource.rank
                same = found.resource.rank == other.resource.rank
                assert not (
                    same and other.decision is Decision.DENY and found.decision is Decision.ALLOW
                )


@given(RESOURCES)
def test_resource_when_written_and_read_then_it_is_the_same(resource: Resource) -> None:
    """Keys are what files, records and bodies hold."""
    assert parse_resource(resource.key) == resource


@given(RESOURCES, ASKED)
def test_more_exact_resource_when_it_matches_then_so_does_its_wider_one(
    resource: Resource, asked: Resource
) -> None:
    """``Topic:*`` matches all that any entry of topics does, and ``*`` all."""
    if resource.matches(asked):
        assert Resource(asked.kind, "", Pattern.ANY).matches(asked)
        assert Resource(ResourceType.ANY, "", Pattern.ANY).matches(asked)
    assert resource.matches(asked) == (
        resource.kind is ResourceType.ANY
        or (resource.kind is asked.kind and (
            resource.pattern is Pattern.ANY
            or asked.name == resource.name
            or (resource.pattern is Pattern.PREFIXED and asked.name[: len(resource.name)] == resource.name)
        ))
    )  # fmt: skip
