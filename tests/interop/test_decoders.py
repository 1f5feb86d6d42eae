"""The same bytes to our decoders and to Java's, in one JVM: headers, records, selectors.

Inputs are mutations of what both write, the same in every run; ``RMQHA_INTEROP_SEED`` is another
number for others, or ``any``. What only one of the two reads is counted by its reason, and every reason is listed in PARITY.md.
"""

from __future__ import annotations

import json
import os
import random
import re
import struct
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from rmqha.base.errors import HeaderMalformed
from rmqha.broker.pull.sql92 import SelectorIllegal, compile_selector
from rmqha.remoting import codec_binary, codec_json
from rmqha.remoting.codes import LANGUAGE_UNKNOWN
from rmqha.remoting.command import RemotingCommand
from rmqha.store.record import Head, check_record, decode, unpack_host
from tests.fuzz.mutations import mutated
from tests.fuzz.targets import by_name
from tests.interop import required
from tests.interop.client_peer import ClientPeer

SOURCE = Path(__file__).parent / "java" / "DecoderPeer.java"
ROUNDS = 2_500
PROPERTIES = {"a": "1", "b": "x", "c": "2.5", "d": "true"}
REFUSED = "refused"
BROKEN = ("not UTF-8", "is outside the header", "outside the field block", "within a key length")
"""Our words for a binary header that Java reads past its own lengths, or with other letters."""
HALF_PAIR = re.compile(rb"\\u[dD][89a-fA-F]")
KNOWN = {
    one.lower(): one
    for one in ("code", "opaque", "flag", "version", "language", "remark", "extFields")
}
UNREAD = re.compile("expected the end|begins nothing")
Reason = Callable[[bytes, str, str], str | None]


@pytest.fixture(scope="module")
def java(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ClientPeer]:
    """Java's decoders."""
    required.require_classpath("5.3.3")
    folder = tmp_path_factory.mktemp("decoders")
    with ClientPeer(folder, "5.3.3", "decoders", SOURCE) as peer:
        yield peer


def compare(
    java: ClientPeer, kind: str, corpus: list[bytes], ours: Callable[[bytes], str], why: Reason
) -> Counter[str]:
    """Give both the same inputs; how often they agreed, and how often not, by reason."""
    wanted = os.environ.get("RMQHA_INTEROP_SEED") or "1"
    seed = random.randrange(1 << 32) if wanted == "any" else int(wanted)
    print(f"RMQHA_INTEROP_SEED={seed}")
    rng, seen = random.Random(seed), Counter[str]()
    for number in range(ROUNDS):
        data = corpus[number] if number < len(corpus) else mutated(rng, corpus)
        theirs, mine = java.ask(f"{kind} x{data.hex()}"), ours(data)
        if theirs.partition(" ")[0] == REFUSED:
            theirs = REFUSED
        if theirs == mine:
            seen["refused by both" if mine == REFUSED else "read by both"] += 1
            continue
        reason = why(data, theirs, mine)
        assert reason is not None, f"{data!r}\n{data.hex()}\nJava: {theirs}\nours: {mine}"
        seen[reason] += 1
    print(dict(seen))
    return seen


def text(value: str | bytes | None) -> str:
    """A text as the peer writes it."""
    if value is None:
        return "null"
    return "x" + (value if isinstance(value, bytes) else value.encode()).hex()


def pairs(fields: Mapping[str, str | None]) -> str:
    """Fields as the peer writes them: in the order of UTF-16 units."""
    listed = sorted(fields.items(), key=lambda one: one[0].encode("utf-16-be"))
    return ",".join(f"{text(name)}:{text(value)}" for name, value in listed) or "-"


def header_words(decode_command: Callable[[bytes, bytes], RemotingCommand], data: bytes) -> str:
    """What a header says."""
    try:
        read = decode_command(data, b"")
    except HeaderMalformed:
        return REFUSED
    # Java has no constant for the language of somebody it does not know.
    language = "null" if read.language == LANGUAGE_UNKNOWN else read.language
    fields = "none" if read.ext_fields is None else pairs(read.ext_fields)
    return (
        f"{read.code} {read.opaque} {read.flag} {read.version} {language} "
        f"{text(read.remark)} {fields}"
    )


def json_reason(data: bytes, theirs: str, mine: str) -> str | None:
    """Why two readers of a JSON header do not agree."""
    if mine == REFUSED:
        return refused_reason(data)
    if theirs == REFUSED and is_utf8(data) and isinstance(json.loads(data).get("language"), int):
        return "a language by its place in a list"
    if not is_utf8(data):
        return "no UTF-8 in a member that nobody reads"
    names = member_names(data)
    plain = [name.lower().replace("_", "").replace("-", "") for name in names]
    if len(set(plain)) < len(plain):
        return "a member twice"
    if any(KNOWN.get(one, name) != name for name, one in zip(names, plain, strict=True)):
        return "a name in another case"
    told, found = without_nulls(theirs).split(" "), mine.split(" ")
    if len(told) != len(found):
        return None
    differing = {
        at for at, (one, other) in enumerate(zip(told, found, strict=True)) if one != other
    }
    if "opaque" not in names:
        differing.discard(1)
    if differing == {6} and not fields_are_texts(data):
        return "a field that is no text"
    if differing == {4} and found[4] == "null":
        return "a language in another case"
    return None if differing else "a field of null, or a header without an opaque"


def refused_reason(data: bytes) -> str | None:
    """Why a JSON header that Java reads is refused."""
    if not is_json(data):
        return "fastjson reads what is no JSON"
    if HALF_PAIR.search(data):
        return "half a surrogate pair"
    if not fields_are_texts(data):
        return "a field that is no text"
    with pytest.raises(HeaderMalformed) as refused:
        codec_json.decode_command(data, b"")
    return "a number of another kind" if "not a number" in str(refused.value) else None


def test_json_headers_when_mutated_then_both_read_the_same(java: ClientPeer) -> None:
    """Where both read a header they read the same."""
    corpus = [one for one in by_name("header_json").corpus() if len(one) < 700]

    seen = compare(
        java,
        "header 0",
        corpus,
        lambda data: header_words(codec_json.decode_command, data),
        json_reason,
    )
    assert seen["read by both"] > ROUNDS // 50


def test_binary_headers_when_mutated_then_both_read_the_same(java: ClientPeer) -> None:
    """Lengths, nulls and texts."""
    corpus = [one for one in by_name("header_binary").corpus() if len(one) < 700]

    def why(data: bytes, theirs: str, mine: str) -> str | None:
        if mine == REFUSED:
            with pytest.raises(HeaderMalformed) as refused:
                codec_binary.decode_command(data, b"")
            return next((one for one in BROKEN if one in str(refused.value)), None)
        (code,) = struct.unpack_from(">h", data)
        told, found = without_nulls(theirs).split(" "), mine.split(" ")
        if code < 0 and int(told[0]) == code:
            told[0] = found[0]
        if told[-1] == "-" and found[-1] == "none":
            told[-1] = found[-1]
        return "a code below zero, or a value of no length" if told == found else None

    seen = compare(
        java, "header 1", corpus, lambda data: header_words(codec_binary.decode_command, data), why
    )
    assert seen["read by both"] > ROUNDS // 50


def head_of(data: bytes) -> Head:
    """Whether it is a whole record, wherever it says that it stands."""
    return check_record(
        data, 0, len(data), int.from_bytes(data[28:36], signed=True), check_crc=True
    )


def record_words(data: bytes) -> str:
    """What a record says; its CRC is looked at, as the peer does."""
    size = int.from_bytes(data[:4], signed=True)
    head = head_of(data)
    if head.size <= 0:
        return REFUSED
    read = decode(memoryview(data), head)
    message = read.message()
    numbers = (
        message.queue_id, message.flag, read.queue_offset, read.physical_offset, message.sys_flag,
        message.born_timestamp, read.store_timestamp, message.reconsume_times,
        message.prepared_transaction_offset, size,
    )  # fmt: skip
    words = " ".join(map(str, numbers))
    return f"{text(message.topic)} {words} {text(message.body)} {pairs(read.property_map())}"


def test_records_when_mutated_then_both_read_the_same(java: ClientPeer) -> None:
    """What a consumer is sent."""

    def why(data: bytes, theirs: str, mine: str) -> str | None:
        if mine == REFUSED:
            return "a record that is not whole"
        if theirs == REFUSED:
            read = decode(memoryview(data), head_of(data)).message()
            ports = (unpack_host(one)[1] for one in (read.born_host, read.store_host))
            return None if all(0 <= port <= 65_535 for port in ports) else "a port that is none"
        squeezed = [re.sub("(efbfbd)+", "efbfbd", said) for said in (theirs, mine)]
        return "text that is no UTF-8" if squeezed[0] == squeezed[1] else None

    seen = compare(java, "record", by_name("record").corpus(), record_words, why)
    assert seen["read by both"] > ROUNDS // 20


def test_selectors_when_mutated_then_both_say_the_same(java: ClientPeer) -> None:
    """Any bytes as a selector; ``test_sql92.py`` makes them by the grammar."""

    def ours(data: bytes) -> str:
        try:
            selector = compile_selector(data.decode("utf-8", "replace"))
        except SelectorIllegal:
            return REFUSED
        return str(selector(PROPERTIES)).lower()

    def why(data: bytes, theirs: str, mine: str) -> str | None:
        if mine != REFUSED:
            return None
        with pytest.raises(SelectorIllegal) as refused:
            compile_selector(data.decode("utf-8", "replace"))
        said = str(refused.value)
        if "more than 100 levels" in said:
            return "deeper than is read here"
        return "Java leaves the rest unread" if UNREAD.search(said) else None

    seen = compare(java, "sql", by_name("sql92").corpus(), ours, why)
    assert seen["read by both"] > ROUNDS // 20


def without_nulls(said: str) -> str:
    """A header without the fields that Java has as null, which it never writes."""
    words = said.split(" ")
    words[-1] = ",".join(one for one in words[-1].split(",") if not one.endswith(":null")) or "-"
    return " ".join(words)


def member_names(data: bytes) -> list[str]:
    """The members of an object, as often as they stand there."""
    pairs_of: list[tuple[str, object]] = json.loads(data, object_pairs_hook=list)
    return [name for name, _ in pairs_of]


def fields_are_texts(data: bytes) -> bool:
    """Whether the fields are all texts, or there are none."""
    fields = json.loads(data).get("extFields")
    return not isinstance(fields, dict) or all(isinstance(one, str) for one in fields.values())


def is_utf8(data: bytes) -> bool:
    """Whether it is text."""
    try:
        data.decode()
    except UnicodeDecodeError:
        return False
    return True


def is_json(data: bytes) -> bool:
    """Whether it is JSON by the letter."""
    try:
        json.loads(data, parse_constant=_no_json)
    except (ValueError, RecursionError):
        return False
    return True


def _no_json(word: str) -> None:
    raise ValueError(word)
