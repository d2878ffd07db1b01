"""Words that tell groups of texts apart, in languages with spaces between words and without."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt
from scipy.sparse import csr_array
from sklearn.feature_extraction.text import CountVectorizer

Vector = npt.NDArray[np.float64]

# Chinese characters, kana, Thai, Lao, Tibetan, Burmese, Khmer: words are not set apart
_UNSPACED = re.compile(
    "[\u3005\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"
    "\u0e00-\u0e7f\u0e80-\u0eff\u0f00-\u0fff\u1000-\u109f\u1780-\u17ff]+"
)
GRAMS = 2, 3, 4  # characters of a word where words are not set apart


class _Letters(dict[int, str]):
    """Maps characters for ``str.translate``: letters, digits, marks and apostrophes stay, all else is a space."""

    def __missing__(self, code: int) -> str:
        character = chr(code)
        stays = character.isalnum() or character == "'" or unicodedata.category(character)[0] == "M"
        self[code] = character if stays else " "
        return self[code]


_LETTERS = _Letters({ord("\u2019"): "'"})


def words_of(text: str) -> list[str]:
    """Return the words of a text in lower case; where words are not set apart, all runs of two to four characters.

    Example:
        >>> words_of("Don't panic!")
        ["don't", 'panic']
        >>> words_of("信用卡")
        ['信用', '用卡', '信用卡']
    """
    return list(_words(unicodedata.normalize("NFKC", text).lower().translate(_LETTERS)))


def _words(text: str) -> Iterator[str]:
    for run in _UNSPACED.findall(text):
        if len(run) == 1:
            yield run
        for size in GRAMS:
            yield from (run[start : start + size] for start in range(len(run) - size + 1))
    yield from filter(None, (word.strip("'") for word in _UNSPACED.sub(" ", text).split()))


def count_words(texts: Sequence[str]) -> tuple[csr_array, list[str]]:
    """Return how often each word occurs in each text (n, v), and the words."""
    counter = CountVectorizer(analyzer=words_of)
    try:
        counts = counter.fit_transform(texts)
    except ValueError:  # no word at all
        return csr_array((len(texts), 0)), []
    return csr_array(counts), counter.get_feature_names_out().tolist()


def telling_words(texts: Sequence[str], group: npt.ArrayLike, top: int = 5) -> list[tuple[str, ...]]:
    """Return for each group of texts the words that name it, by class-based TF-IDF.

    Its share of the group's words, times log(1 + words of an average group / how often it occurs in all): c-TF-IDF, as in
    BERTopic.

    Args:
        texts: n texts.
        group: The number of each text's group, (n,), from 0.
        top: How many words for each.

    Example:
        >>> telling_words(["red tea", "green tea", "a fast car"], [0, 0, 1], top=1)
        [('tea',), ('a',)]
    """
    numbers = np.asarray(group, dtype=np.int64)
    counts, words = count_words(texts)
    groups = int(numbers.max()) + 1
    members = csr_array((np.ones(len(numbers)), (numbers, np.arange(len(numbers)))), shape=(groups, len(numbers)))
    of_group = csr_array(members @ counts)
    total = np.asarray(of_group.sum(axis=0)).ravel()
    rarity = np.log1p(total.sum() / groups / np.maximum(total, 1)) * lengths_worth(words)
    found = []
    for number in range(groups):
        part = slice(of_group.indptr[number], of_group.indptr[number + 1])
        columns = of_group.indices[part]
        score = of_group.data[part] * rarity[columns]
        found.append(_without_overlap([words[column] for column in columns[np.lexsort((columns, -score))]], top))
    return found


def contrasting_words(one: Sequence[str], other: Sequence[str], top: int = 10) -> tuple[list[tuple[str, float]], ...]:
    """Return the words that each of two sets of texts has more of than the other, with their z-scores.

    Log-odds with an informative Dirichlet prior, the words of both (Monroe, Colaresi & Quinn, 2008).

    Args:
        one: n texts.
        other: m texts.
        top: How many words for each side; fewer where fewer differ by two standard deviations.
    """
    counts, words = count_words([*one, *other])
    if not words:
        return [], []
    left, right = (
        np.asarray(part.sum(axis=0), dtype=np.float64).ravel() for part in (counts[: len(one)], counts[len(one) :])
    )
    prior = (left + right) / max(1.0, (left + right).sum()) * min(left.sum(), right.sum(), 10.0 * len(words)) + 1e-2
    sides = [np.log((side + prior) / (side.sum() + prior.sum() - side - prior)) for side in (left, right)]
    z = (sides[0] - sides[1]) / np.sqrt(1 / (left + prior) + 1 / (right + prior))
    found = []
    for sign in (1, -1):
        order = [
            int(i) for i in np.lexsort((np.arange(len(words)), -sign * z * lengths_worth(words))) if sign * z[i] > 2
        ]
        by_word = {words[i]: abs(float(z[i])) for i in order}
        found.append([(word, by_word[word]) for word in _without_overlap(list(by_word), top)])
    return found[0], found[1]


def lengths_worth(words: Sequence[str]) -> Vector:
    """Return 1 for words that are set apart; of runs of characters that are as frequent, the longest is the word."""
    return np.array([0.6 + 0.2 * max(2, len(word)) if _UNSPACED.match(word) else 1.0 for word in words])


def _without_overlap(words: Sequence[str], top: int) -> tuple[str, ...]:
    """Return the first words, without those that lie within one that was taken, or around it."""
    taken: list[str] = []
    for word in words:
        if len(taken) == top:
            break
        if not any(word in one or one in word for one in taken):
            taken.append(word)
    return tuple(taken)
