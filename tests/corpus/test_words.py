"""Telling words, with spaces between words and without."""

import numpy as np
import pytest

from bertflow.corpus import telling_words
from bertflow.corpus.words import contrasting_words, words_of


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Don’t STOP, it's 'quoted'!", ["don't", "stop", "it's", "quoted"]),
        ("ﬁne", ["fine"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("한국어 문장", ["한국어", "문장"]),
        ("我", ["我"]),
        ("日本 tea", ["日本", "tea"]),
        ("ไทย", ["ไท", "ทย", "ไทย"]),
        ("!!! …", []),
    ],
)
def test_words_of_many_languages(text, words):
    assert words_of(text) == words


def test_groups_are_named_by_what_is_theirs():
    texts = ["my card is lost", "the card was stolen", "a lost card", "the transfer is late", "my transfer failed"]
    assert [words[0] for words in telling_words(texts, [0, 0, 0, 1, 1], top=1)] == ["card", "transfer"]


def test_languages_without_spaces_get_whole_words():
    texts = ["我的信用卡丢了", "信用卡在哪里", "信用卡被偷了", "转账失败了", "我的转账很慢", "转账没有到"]
    names = telling_words(texts, [0, 0, 0, 1, 1, 1], top=2)
    assert names[0][0] == "信用卡"
    assert names[1][0] == "转账"
    assert all(a not in b for words in names for a in words for b in words if a != b)


def test_groups_without_any_word_have_no_names():
    assert telling_words(["!", "?", "..."], [0, 1, 1]) == [(), ()]


def test_words_that_two_sets_differ_in():
    rng = np.random.default_rng(0)
    common = ["the", "my", "a", "is", "how"]
    draw = lambda extra, n: [" ".join([*rng.choice(common, 4), *extra]) for _ in range(n)]  # noqa: E731
    old, new = draw(["branch"], 40) + draw([], 60), draw(["app"], 40) + draw([], 60)
    left, right = contrasting_words(old, new)
    assert left[0][0] == "branch"
    assert right[0][0] == "app"
    assert min(z for _, z in left + right) > 2
    assert contrasting_words(old, old) == ([], [])
    assert contrasting_words(["?"], ["!"]) == ([], [])
