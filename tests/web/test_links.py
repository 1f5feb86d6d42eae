"""Links between status pages: to where a peer says that its page listens, and nowhere else."""

from __future__ import annotations

import pytest

from rmqha.remoting.broker_figures import UNKNOWN, read_figures
from rmqha.web.links import page_link


@pytest.mark.parametrize(
    ("told", "address", "here", "link"),
    [
        ("10.0.0.7:8088", "10.0.0.7:10911", "10.0.0.9:9878", "http://10.0.0.7:8088/"),
        ("pages.example.org:80", "10.0.0.7:10911", "x:1", "http://pages.example.org:80/"),
        ("0.0.0.0:8088", "10.0.0.7:10911", "10.0.0.9:9878", "http://10.0.0.7:8088/"),
        ("[::]:8088", "[fd00::7]:10911", "[fd00::9]:9878", "http://[fd00::7]:8088/"),
        # On loopback: for who sits at that machine.
        ("127.0.0.1:8088", "10.0.0.7:10911", "10.0.0.9:9878", None),
        ("127.0.0.1:8088", "10.0.0.7:10911", "10.0.0.7:9878", "http://127.0.0.1:8088/"),
        ("127.0.0.1:8088", "127.0.0.1:10911", "0.0.0.0:9876", "http://127.0.0.1:8088/"),
        # A peer's words are a host and a port, or no link.
        (None, "10.0.0.7:10911", "x:1", None),
        ("", "10.0.0.7:10911", "x:1", None),
        ("10.0.0.7", "10.0.0.7:10911", "x:1", None),
        ("10.0.0.7:0", "10.0.0.7:10911", "x:1", None),
        ("10.0.0.7:65536", "10.0.0.7:10911", "x:1", None),
        ("javascript:alert(1)//:80", "10.0.0.7:10911", "x:1", None),
        ("user@evil.example:80", "10.0.0.7:10911", "x:1", None),
        ("evil.example/a?b:80", "10.0.0.7:10911", "x:1", None),
    ],
)
def test_link_when_a_peer_says_where_its_page_is_then_only_there(
    told: str | None, address: str, here: str, link: str | None
) -> None:
    """Whoever registers as a broker could have operators click on what he likes."""
    assert page_link(told, address, here) == link


def test_figures_when_a_broker_says_no_page_then_none_is_known() -> None:
    """Java's brokers have none."""
    assert read_figures(b'{"table":{"putTps":"1.0"}}').status_page is None
    assert read_figures(b'{"table":{"statusPage":7}}').status_page is None
    assert read_figures(b'{"table":{"statusPage":"h:1"}}').status_page == "h:1"
    assert UNKNOWN.status_page is None
