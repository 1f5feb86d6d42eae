"""The body of a registration as brokers write it, read in one go.

A broker with 26,000 topics sends all of them every 30 s: looked at one member at a time they take a
quarter of a second, in which nobody gets a route. What does not fit here is looked at that way.
"""

from __future__ import annotations

from typing import Annotated

from msgspec import Meta, MsgspecError, Raw, Struct
from msgspec.json import Decoder

from rmqha.remoting.headers import INT32_MAX, INT64_MAX

QUEUES_DEFAULT = 16
PERM_DEFAULT = 6
QUEUE_NUMS_MAX = 65_536
SCOPE_DEFAULT = "__global__"

_Perm = Annotated[int, Meta(ge=0, le=INT32_MAX)]
_Count = Annotated[int, Meta(ge=0, le=QUEUE_NUMS_MAX)]
_NULL = Raw(b"null")


class Topic(Struct, frozen=True, rename="camel", gc=False):
    """What routes are made of in a TopicConfig; what misses has Java's default."""

    topic_name: Annotated[str, Meta(min_length=1)]
    perm: _Perm = PERM_DEFAULT
    read_queue_nums: _Count = QUEUES_DEFAULT
    topic_sys_flag: _Perm = 0
    write_queue_nums: _Count = QUEUES_DEFAULT


class Info(Struct, frozen=True, rename="camel", gc=False):
    """A TopicQueueMappingInfo; of a static topic there is one in each broker set."""

    bname: Annotated[str, Meta(min_length=1)]
    topic: str | None = None
    scope: str | None = None
    total_queues: _Count = 0
    epoch: Annotated[int, Meta(ge=0, le=INT64_MAX)] = 0
    dirty: bool = False
    curr_id_map: dict[_Perm, _Perm] | None = None


class Wrapper(Struct, frozen=True, rename="camel"):
    """TopicConfigAndMappingSerializeWrapper; what is small is not read here."""

    topic_config_table: dict[str, Topic]
    data_version: Raw = _NULL
    topic_queue_mapping_info_map: dict[str, Info] | None = None


class UsualBody(Struct, frozen=True, rename="camel"):
    """A whole RegisterBrokerBody; its other members are passed over."""

    topic_config_serialize_wrapper: Wrapper
    filter_server_list: Raw = _NULL


_DECODER = Decoder(UsualBody)


def usual_body(body: bytes) -> UsualBody | None:
    """Read a body; None for one that is not as usual, whether or not it is right."""
    try:
        return _DECODER.decode(body)
    except (MsgspecError, UnicodeDecodeError, RecursionError):
        return None
