"""Answers that hold until something changes, so that a question asked again costs nothing.

The table says what has changed; here is what that makes wrong, and how much may be kept.

Source: our own; Java makes each answer anew.
"""

from __future__ import annotations

from collections import OrderedDict

KEPT_BYTES_MAX = 64 << 20
"""Of all answers together, with what each costs besides; who was asked for longest ago goes first."""

ENTRY_BYTES = 500
"""What an answer costs besides its bytes: its key, which others give, and its places in two tables."""

AnswerKey = tuple[str, ...]
"""Its kind first; then the topic if it is about one, and what else it depends on."""

TOPICS: AnswerKey = ("topics",)
CLUSTERS: AnswerKey = ("clusters",)
TOPICS_OF_CLUSTER = "topics of"
"""The kind of the answers that list the topics of one cluster."""
ABOUT_A_TOPIC = 2
"""An answer about a topic has a key that is longer than this."""


class KeptAnswers:
    """Answers by what they are about.

    Attributes:
        made: how many were put here; what was kept before is not made anew.
        size: bytes that all of them cost.
    """

    def __init__(self, bytes_max: int = KEPT_BYTES_MAX) -> None:
        self._bytes_max = bytes_max
        self._answers: OrderedDict[AnswerKey, bytes] = OrderedDict()
        self._of_topic: dict[str, set[AnswerKey]] = {}
        self._lists: dict[AnswerKey, None] = {}
        self.made = self.size = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: AnswerKey) -> bytes | None:
        """An answer that still holds; None where it has to be made."""
        found = self._answers.get(key)
        if found is not None:
            self._answers.move_to_end(key)
        return found

    def put(self, key: AnswerKey, answer: bytes) -> bytes:
        """Keep an answer, and let go of the oldest; returns it."""
        self.made += 1
        self._drop(key)
        self._answers[key] = answer
        self.size += _cost(key, answer)
        if key[0] == TOPICS_OF_CLUSTER:
            self._lists[key] = None
        elif len(key) > ABOUT_A_TOPIC:
            self._of_topic.setdefault(key[1], set()).add(key)
        while self.size > self._bytes_max:
            self._drop(next(iter(self._answers)))
        return answer

    def forget_topic(self, topic: str) -> None:
        """What a topic's route shows has changed."""
        if topic in self._of_topic:
            for key in sorted(self._of_topic[topic]):
                self._drop(key)

    def forget_topic_lists(self, *, of_clusters_only: bool = False) -> None:
        """There is a topic more or less, somewhere or in a cluster only."""
        for key in list(self._lists):
            self._drop(key)
        if not of_clusters_only:
            self._drop(TOPICS)

    def clear(self) -> None:
        """Something changed that any answer may show."""
        self._answers.clear()
        self._of_topic.clear()
        self._lists.clear()
        self.size = 0

    def _drop(self, key: AnswerKey) -> None:
        answer = self._answers.pop(key, None)
        if answer is None:
            return
        self.size -= _cost(key, answer)
        self._lists.pop(key, None)
        keys = self._of_topic.get(key[1]) if len(key) > ABOUT_A_TOPIC else None
        if keys is not None:
            keys.discard(key)
            if not keys:
                del self._of_topic[key[1]]


def _cost(key: AnswerKey, answer: bytes) -> int:
    return ENTRY_BYTES + len(answer) + sum(map(len, key))
