"""Make texts that have similar translations of a memory in their sources, and score what a model makes of them.

    python tests/benchmarks/fuzzy_repair.py texts OUT CATALOG...
    python tests/benchmarks/fuzzy_repair.py augment OUT SOURCE TARGET TEXT...
    python tests/benchmarks/fuzzy_repair.py score TEXT MATCHES REFERENCE HYPOTHESES...

After Bulte and Tezcan 2019, "Neural Fuzzy Repair". `augment` writes the pairs, then again each that has a match as
`source ⟦ translation`; TEXTs only once, and their matches. `texts` reads catalogs, `score` prints BLEU by similarity.
"""

import argparse
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from rapidfuzz.distance import Levenshtein
from rapidfuzz.process import extractOne
from sacrebleu.metrics.bleu import BLEU

from nmt.documents.memories import memory_pairs, sides_of
from nmt.text.directives import directive_faults
from nmt.text.lines import iter_lines
from nmt.text.placeholders import SPAN
from nmt.translate.matches import NEARLY, key_of

LEAST = 0.5  # the lowest similarity of a match in a source
TAKEN = 0.85  # the lowest similarity of a match that replaces a translation
MAX_CANDIDATES = 2_000  # of a text
BANDS = (0.0, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)  # the lowest similarities; 0 is no match, and 1 an equal source


def lines_of(path: Path) -> list[str]:
    return list(iter_lines([path]))


def write_lines(path: str | Path, lines: Iterable[str]) -> None:
    with Path(path).open("w") as file:
        file.writelines(f"{line}\n" for line in lines)


def matches_of(texts: Sequence[str], sources: Sequence[str], targets: Sequence[str]) -> Iterator[tuple[float, str]]:
    """Yield for each text the similarity and the translation of the most similar source that is not equal."""
    # 1. List the pairs under the words of their sources.
    keys = [key_of(source) for source in sources]
    lists: dict[str, list[int]] = defaultdict(list)
    for number, key in enumerate(keys):
        for word in set(key):
            lists[word].append(number)
    # 2. A match lacks at most half of a text's words, so it has one of any half of them and one more: the rarest.
    for text in texts:
        key = key_of(text)
        candidates: dict[str, int] = {}  # by key, the first pair
        for word in sorted(key, key=lambda word: len(lists[word]))[: len(key) // 2 + 1]:
            for number in lists[word]:
                if sources[number] != text:
                    candidates.setdefault(keys[number], number)
            if len(candidates) > MAX_CANDIDATES:
                break
        best = extractOne(key, list(candidates), scorer=Levenshtein.normalized_similarity, score_cutoff=LEAST)
        if best:
            yield min(best[1], NEARLY), targets[candidates[best[0]]]
        else:
            yield 0.0, ""


def augmented(text: str, match: tuple[float, str]) -> str:
    # Without the match's placeholders, because `nmt translate` keeps all of a source.
    similarity, translation = match
    words = SPAN.sub(" ", translation).split()
    return f"{text} ⟦ {' '.join(words)}" if similarity else text


def texts(out: Path, *catalogs: Path) -> None:
    sources = []
    targets = []
    for path in catalogs:
        names = sides_of(path, ["en", "de"])
        for _, (source, target) in memory_pairs(path, names):
            if source != "translator-credits":
                sources.append(source)
                targets.append(target)
    write_lines(f"{out}.source", sources)
    write_lines(f"{out}.target", targets)


def augment(out: Path, source: Path, target: Path, *others: Path) -> None:
    out.mkdir(exist_ok=True)
    sources, targets = lines_of(source), lines_of(target)
    equal = {text: (1.0, translation) for text, translation in zip(sources, targets, strict=True)}
    new = list(map(augmented, sources, matches_of(sources, sources, targets)))
    changed = [i for i, text in enumerate(sources) if new[i] != text]
    write_lines(out / source.name, sources + [new[i] for i in changed])
    write_lines(out / target.name, targets + [targets[i] for i in changed])
    for path in others:
        lines = lines_of(path)
        matches = list(map(equal.get, lines, matches_of(lines, sources, targets)))
        write_lines(out / path.name, map(augmented, lines, matches))
        rows = [f"{similarity}\t{text}" for similarity, text in matches]
        write_lines(out / f"{path.name}.matches", rows)


def score(text: Path, matches: Path, reference: Path, *files: Path) -> None:
    rows = [line.split("\t", 1) for line in lines_of(matches)]
    similarities = [float(row[0]) for row in rows]
    bands = [BANDS[bisect(BANDS, similarity) - 1] for similarity in similarities]
    memory = [row[1] for row in rows]
    # The systems: the memory alone, the files, and the same with matches. A match must have the directives.
    systems = {"memory alone": memory}
    taken = {}
    for i, source in enumerate(lines_of(text)):
        if similarities[i] >= TAKEN and not directive_faults(source, memory[i]):
            taken[i] = memory[i]
    for path in files:
        own = lines_of(path)
        systems[path.name] = own
        systems[f"{path.name}, matches"] = [taken.get(i, line) for i, line in enumerate(own)]
    references = lines_of(reference)
    for name, lines in systems.items():
        for chosen in (*BANDS, "all"):
            numbers = [i for i, band in enumerate(bands) if chosen in (band, "all")]
            hypotheses = [lines[i] for i in numbers]
            of_band = [references[i] for i in numbers]
            bleu = BLEU().corpus_score(hypotheses, [of_band])
            print(f"{name} | {chosen} | {len(numbers)} | {bleu.score:.2f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("command", choices=("texts", "augment", "score"))
    parser.add_argument("paths", type=Path, nargs="+")
    arguments = parser.parse_args()
    globals()[arguments.command](*arguments.paths)
