"""Which lists a broker looks up, read from its file, and what cannot be meant."""

from __future__ import annotations

import pytest

from rmqha.base.errors import ConfigInvalid
from rmqha.broker.admin.config_changes import ConfigRefused, read_update
from rmqha.broker.common.lookup_settings import LookupSettings, check_one_name
from rmqha.broker.common.settings import BrokerConfig, load_config

BASE = {"enableControllerMode": "true", "controllerAddr": "controllers:9878"}
BY_DNS = {"fetchNameSrvAddrByDnsLookup": "true", "namesrvAddr": "namesrv:9876"}
BY_SERVER = {"fetchNamesrvAddrByAddressServer": "true", "rmqAddressServerDomain": "env.example"}


def load(**keys: str) -> BrokerConfig:
    """A configuration with these keys beside the necessary ones."""
    return load_config({**BASE, **keys}, host_name="b", local_address="10.0.0.5", user_home="/h")


def test_lookups_when_nothing_is_said_then_nothing_is_looked_up() -> None:
    """A name in a list is one server, as before."""
    config = load(namesrvAddr="namesrv:9876")
    assert config.lookups == LookupSettings()
    assert not config.lookups.finds_name_servers
    assert config.replicas.controllers == ("controllers:9878",)


def test_lookups_when_by_dns_then_the_configured_name_stays_as_it_is_written() -> None:
    """getBrokerConfig and the boot line show the file; nobody is asked by the bare name."""
    config = load(
        **BY_DNS, fetchControllerAddrByDnsLookup="TRUE", updateNameServerAddrPeriod="7000"
    )
    assert config.lookups == LookupSettings(
        namesrv_by_dns=True, namesrv_period_ms=7_000, controllers_by_dns=True
    )
    assert config.values["namesrvAddr"] == "namesrv:9876"
    assert (config.controllers, config.replicas.controllers) == (("controllers:9878",), ())
    assert config.replicas.write_lease_ms > 0, "the lease waits for the controllers"
    assert config.unknown == ()


@pytest.mark.parametrize(
    ("domain", "group", "url"),
    [
        ("env.example", "", "http://env.example:8080/rocketmq/nsaddr"),
        ("env.example:80", "nsaddr-a?nofix=1", "http://env.example:80/rocketmq/nsaddr-a?nofix=1"),
        ("[::1]:90", "", "http://[::1]:90/rocketmq/nsaddr"),
    ],
)
def test_address_server_when_named_then_its_url_is_javas(domain: str, group: str, url: str) -> None:
    """MixAll.getWSAddr: port 8080 unless another is named."""
    config = load(**BY_SERVER | {"rmqAddressServerDomain": domain}, rmqAddressServerSubGroup=group)
    assert config.lookups.address_server == url
    assert config.lookups.namesrv_period_ms == 10_000


def test_address_server_when_name_servers_are_named_then_it_is_not_asked() -> None:
    """As in Java: namesrvAddr counts more, and needs no server."""
    config = load(fetchNamesrvAddrByAddressServer="true", namesrvAddr="a:1;b:2")
    assert config.lookups == LookupSettings()
    assert load(**BY_SERVER, **BY_DNS).lookups.namesrv_by_dns
    both = load(**BY_SERVER, fetchNameSrvAddrByDnsLookup="true")
    assert (both.lookups.namesrv_by_dns, both.lookups.finds_name_servers) == (False, True)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        (BY_DNS | {"namesrvAddr": "a:1;b:2"}, "namesrvAddr names 2: with fetchNameSrvAddrByDns"),
        (BY_DNS | {"namesrvAddr": ""}, "namesrvAddr names 0"),
        (BY_DNS | {"namesrvAddr": "namesrv"}, "namesrvAddr: address 'namesrv' is not host:port"),
        (BY_DNS | {"updateNameServerAddrPeriod": "0"},
         "updateNameServerAddrPeriod=0 must be at least 1000"),
        ({"updateControllerAddrPeriod": "999"}, "updateControllerAddrPeriod=999 must be at least"),
        ({"fetchNamesrvAddrInterval": "1"}, "fetchNamesrvAddrInterval=1 must be at least 1000"),
        ({"fetchNameSrvAddrByDnsLookup": "yes"}, "yes is neither true nor false"),
        ({"fetchControllerAddrByDnsLookup": "true", "controllerAddr": "a:1;b:1"},
         "controllerAddr names 2: with fetchControllerAddrByDnsLookup=true"),
        (BY_SERVER | {"rmqAddressServerDomain": ""}, "needs namesrvAddr, or in rmqAddressServerDom"),
        (BY_SERVER | {"rmqAddressServerDomain": "http://a"}, "rmqAddressServerDomain: address"),
        (BY_SERVER | {"rmqAddressServerSubGroup": "a b"}, "rmqAddressServerSubGroup='a b' is no part"),
    ],
)  # fmt: skip
def test_lookups_when_they_cannot_be_meant_then_the_error_says_which(
    keys: dict[str, str], says: str
) -> None:
    """At the start, not as a warning every two minutes."""
    with pytest.raises(ConfigInvalid) as refused:
        load(**keys)
    assert says in str(refused.value)


def test_controllers_when_a_broker_has_none_then_none_are_looked_up() -> None:
    """The file of a broker alone may name some all the same."""
    config = load(enableControllerMode="false", fetchControllerAddrByDnsLookup="true")
    assert not config.lookups.controllers_by_dns


def test_controllers_when_looked_up_then_a_running_broker_takes_one_name_only() -> None:
    """Two names would be looked up as one at the next start, which would refuse them."""
    known = load(fetchControllerAddrByDnsLookup="true").values
    found = read_update(b"controllerAddr=a:1;b:1", known)
    assert isinstance(found, ConfigRefused)
    assert "controllerAddr names 2" in found.remark
    assert read_update(b"controllerAddr=others:9878", known) == {"controllerAddr": "others:9878"}
    found = read_update(b"controllerAddr=others", known)
    assert isinstance(found, ConfigRefused)
    assert "controllerAddr: address 'others' is not host:port" in found.remark


@pytest.mark.parametrize("text", ["a", "a:port", "a:1:2"])
def test_name_when_it_has_no_port_then_it_is_refused_by_its_key(text: str) -> None:
    """All its addresses would be looked up, and none could be connected to."""
    with pytest.raises(ConfigInvalid, match="controllerAddr: address"):
        check_one_name("controllerAddr", text, "fetchControllerAddrByDnsLookup")
