"""BLEU of two baselines without grammar, which a trained model has to beat.

Run:  python data/zh_en_baselines.py --data data/zh-en

neighbour: the English of the nearest training sentence, by character n-grams (an F-score as in chrF) or by
           edit similarity (difflib); the higher of the two BLEU scores counts.
gloss:     every Chinese word replaced by its usual English word, in Chinese order.
"""

from __future__ import annotations

import argparse
from collections import Counter, defaultdict
from collections.abc import Sequence
from difflib import SequenceMatcher
from pathlib import Path

from sacrebleu.metrics.bleu import BLEU
from zh_en_lexicon import gloss

MAX_NGRAM = 3
SHORTLIST = 60  # edit similarity is slow: compute it only for the sentences with the best n-gram scores


def ngrams(text: str) -> Counter[str]:
    return Counter(text[i : i + n] for n in range(1, MAX_NGRAM + 1) for i in range(len(text) - n + 1))


def neighbours(train_zh: Sequence[str], train_en: Sequence[str], queries: Sequence[str]) -> dict[str, list[str]]:
    """Return the English of each query's nearest training sentence, by n-grams and by edit similarity."""
    index: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    sizes = []
    for number, sentence in enumerate(train_zh):
        grams = ngrams(sentence)
        sizes.append(sum(grams.values()))
        for gram, count in grams.items():
            index[gram].append((number, count))
    found: dict[str, list[str]] = {"n-gram": [], "edit": []}
    for query in queries:
        grams = ngrams(query)
        size, shared = sum(grams.values()), [0] * len(train_zh)
        for gram, count in grams.items():
            for number, other in index[gram]:
                shared[number] += min(count, other)
        score = [2 * both / (size + other) for both, other in zip(shared, sizes, strict=True)]
        best = sorted(range(len(train_zh)), key=lambda number: -score[number])[:SHORTLIST]
        matcher = SequenceMatcher(None, b=query, autojunk=False)
        ratios = []
        for number in best:
            matcher.set_seq1(train_zh[number])
            ratios.append(matcher.ratio())
        found["n-gram"].append(train_en[best[0]])
        found["edit"].append(train_en[best[ratios.index(max(ratios))]])
    return found


def bleu(hypotheses: Sequence[str], references: Sequence[str]) -> float:
    return float(BLEU().corpus_score(hypotheses, [references]).score)


def baselines(
    train_zh: Sequence[str], train_en: Sequence[str], test_zh: Sequence[str], test_en: Sequence[str]
) -> dict[str, float]:
    found = neighbours(train_zh, train_en, test_zh)
    return {
        "neighbour": max(bleu(english, test_en) for english in found.values()),
        "gloss": bleu([gloss(sentence) for sentence in test_zh], test_en),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path, default=Path("data/zh-en"))
    folder = parser.parse_args().data
    sides = [
        (folder / f"{part}.{side}").read_text(encoding="utf-8").splitlines()
        for part in ("train", "test")
        for side in ("zh", "en")
    ]
    metric = BLEU()
    metric.corpus_score(sides[3], [sides[3]])
    for name, score in baselines(*sides).items():
        print(f"{name} {score:.1f}")
    print(metric.get_signature())


if __name__ == "__main__":
    main()
