"""Faults are planted in clean corpora: the check reports the planted lines, and hardly any clean line."""

import itertools
import math
import random
import re
from pathlib import Path
from typing import NamedTuple

import pytest
from parallel_text import PairText, grammar_pairs, shuffled, write_pairs, write_sides

from nmt.corpus.check import CheckReport, check
from nmt.corpus.findings import guess_encoding
from nmt.corpus.kinds import KINDS, Finding
from nmt.corpus.pairing import Run
from nmt.errors import DataError
from nmt.text.lines import iter_pairs

ROOT = Path(__file__).parents[2]
TATOEBA = ROOT.parent / "shared" / "data" / "tatoeba-deu-eng"
N_PLANTED = 25  # lines of each kind
FOUND, ACCUSED = 0.95, 0.01  # least share of planted lines, and greatest share of clean lines, reported

THIRD_LANGUAGES = [
    "Le chat de ma sœur est dans la maison avec une table rouge.",
    "Le chien de ma sœur est dans la maison avec une lampe rouge.",
    "Вчера Иван купил в магазине новую книгу.",
    "Вчера мой брат купил в магазине новую машину.",
]
INSIDE = {  # what is put into the target
    "repetition": [" the the the", " in the in the in the", " aaaaaaa"],
    "mojibake": [" â€“ cafÃ©", " itâ€™s", " ä¸­æ–‡"],
    "replaced": [" caf\ufffd"],
    "control": ["\u200b", "\x07", "\xad", "\ufeff", "\u2028"],
    "unicode": [" cafe\u0301"],
}
AROUND = {  # what is put before or after the target
    "markup": [("<b>", "</b>"), ("It &amp; ", ""), ("", "<br/>")],
    "spacing": [("", " "), (" ", ""), ("a  ", ""), ("a\t", "")],
    "full-width": [("", " \uff34\uff4f\uff4d")],
    "placeholders": [("", " {0}"), ("", " %s"), ("", " <x/>"), ("", " https://example.org/a")],
    "tokenized": [("Well , ", " .")],
}
INSTEAD = {  # what takes the place of the target
    "blank": ["", "  ", "\u3000"],
    "no-words": ["--- 12 / 7 ===", "*** 3 / 81 ***"],
}


def inside(text: str, sign: str) -> str:
    middle = text.find(" ", len(text) // 3)
    return text[:middle] + sign + text[middle:]


def half(text: str) -> str:
    words = text.split()
    n_kept = len(words) // 2
    return " ".join(words[:n_kept]).rstrip(".,?!")


def plant(kind: str, source: str, target: str, rng: random.Random) -> PairText:
    """The pair with a fault."""
    if kind in INSIDE:
        return source, inside(target, rng.choice(INSIDE[kind]))
    if kind in AROUND:
        before, after = rng.choice(AROUND[kind])
        return source, before + target + after
    if kind in INSTEAD:
        return source, rng.choice(INSTEAD[kind])
    match kind:
        case "exchanged":
            return target, source
        case "copy":
            text = source if " " in source else target
            return text, text
        case "language":
            return source, rng.choice(THIRD_LANGUAGES)
        case "ratio":
            return source, " ".join([target] * 3)
        case "truncated":
            return source, half(target)
        case "long":
            return " ".join([source] * 60), " ".join([target] * 60)
        case "numbers":
            return f"2015: {source}", f"2051: {target}"
        case "encoding":
            return f"caf\udce9 {source}", f"caf\udce9 {target}"
    raise ValueError(kind)


OF_THE_PAIR = ["exchanged", "copy", "language", "ratio", "truncated", "long", "numbers", "encoding"]
OF_OTHER_PAIRS = ["untranslated", "duplicate"]
PLANTED_KINDS = [*INSIDE, *AROUND, *INSTEAD, *OF_THE_PAIR, *OF_OTHER_PAIRS]


@pytest.fixture(scope="module", params=["grammar", "tatoeba"])
def clean(request: pytest.FixtureRequest) -> list[PairText]:
    """Up to 4000 pairs of sentences of eight words or more."""
    if request.param == "grammar":
        pairs = grammar_pairs()
    elif TATOEBA.is_dir():
        corpus = iter_pairs([TATOEBA / "train.de.gz"], [TATOEBA / "train.en.gz"])
        pairs = [(pair.source, pair.target) for pair in corpus]
    else:
        pytest.skip("no Tatoeba in ../shared/data")
    long = [pair for pair in pairs if n_words(pair) >= 8]
    sentences = [pair for pair in long if pair[1][-1] in ".?"]
    return sentences[:4000]


def n_words(pair: PairText) -> int:
    return len(pair[1].split())


def check_pairs(folder: Path, pairs: list[PairText], declared: tuple[str, str] = ("", "")) -> CheckReport:
    return check([write_pairs(folder, "train", pairs)], declared)


def check_sides(folder: Path, source: list[str], target: list[str]) -> CheckReport:
    return check([write_sides(folder, "train", source, target)])


def findings_of(report: CheckReport, corpus: str = "train") -> dict[str, Finding]:
    findings = [finding for finding in report.findings if finding.corpus == corpus]
    return {finding.kind.name: finding for finding in findings}


class Planted(NamedTuple):
    """A corpus with planted faults: line numbers by kind, as planted and as found."""

    planted: dict[str, set[int]]
    found: dict[str, set[int]]
    dirty: set[int]
    n_clean: int


@pytest.fixture(scope="module")
def planted(clean: list[PairText], tmp_path_factory: pytest.TempPathFactory) -> Planted:
    rng = random.Random(1)
    pairs = list(clean)
    long = []
    for line in range(10, len(clean)):
        if n_words(clean[line]) >= 10:
            long.append(line)
    chosen = rng.sample(long, N_PLANTED * len(PLANTED_KINDS))
    planted = {}
    for kind in PLANTED_KINDS:
        # Each kind gets lines of its own, counted from 1.
        lines = sorted(chosen[:N_PLANTED])
        del chosen[:N_PLANTED]
        planted[kind] = {line + 1 for line in lines}
        for line in lines:
            source, target = clean[line]
            match kind:
                case "untranslated":
                    another, _ = clean[line - len(clean) // 2]
                    pairs[line] = (source, another)
                case "duplicate":
                    pairs[line] = clean[0]
                case _:
                    pairs[line] = plant(kind, source, target, rng)
    report = check_pairs(tmp_path_factory.mktemp("planted"), pairs)
    findings = findings_of(report)
    found = {kind: set(finding.lines) for kind, finding in findings.items()}
    dirty = set().union(*planted.values())
    n_clean = len(pairs) - len(dirty)
    return Planted(planted, found, dirty, n_clean)


@pytest.mark.parametrize("kind", PLANTED_KINDS)
def test_planted_faults_are_found(planted: Planted, kind: str) -> None:
    missed = planted.planted[kind] - planted.found[kind]
    assert len(missed) <= (1 - FOUND) * N_PLANTED


@pytest.mark.parametrize("kind", PLANTED_KINDS)
def test_clean_lines_are_not_accused_of_a_fault(planted: Planted, kind: str) -> None:
    accused = planted.found[kind] - planted.dirty
    assert len(accused) <= ACCUSED * planted.n_clean


def test_clean_lines_are_not_accused(planted: Planted) -> None:
    found = set().union(*planted.found.values())
    accused = found - planted.dirty
    assert len(accused) <= 2 * ACCUSED * planted.n_clean


@pytest.fixture
def sides(clean: list[PairText]) -> tuple[list[str], list[str]]:
    """The texts of the clean corpus, to be changed."""
    source = [source for source, _ in clean]
    target = [target for _, target in clean]
    return source, target


Sides = tuple[list[str], list[str]]


def assert_lines(finding: Finding, lines: set[int]) -> None:
    """Nearly all of these lines are found, and hardly any others."""
    found = set(finding.lines)
    assert len(lines & found) >= FOUND * len(lines)
    assert len(found - lines) <= 5


def test_blocks_that_are_not_paired_with_their_translations_are_found(sides: Sides, tmp_path: Path) -> None:
    source, target = sides
    # Three translations come two hundred lines too late, and a hundred lines are shuffled.
    late = target[1000:1003]
    target[1000:1200] = target[1003:1200] + late
    target[3000:3100] = shuffled(target[3000:3100])
    findings = findings_of(check_sides(tmp_path, source, target))
    assert_lines(findings["shifted"], {*range(1004, 1201)})
    assert_lines(findings["shuffled"], {*range(1001, 1004), *range(3001, 3101)})


def test_some_single_pairs_that_do_not_belong_together_are_found(clean: list[PairText], tmp_path: Path) -> None:
    pairs = list(clean)
    # Some targets are those of other lines.
    planted = set()
    for line in range(7, len(clean), len(clean) // 30):
        source, _ = clean[line]
        _, another = clean[line - 500]
        pairs[line] = (source, another)
        planted.add(line + 1)
    findings = findings_of(check_pairs(tmp_path, pairs))
    found = set(findings["mismatch"].lines)
    assert len(planted & found) >= 0.3 * len(planted)
    assert len(found - planted) <= ACCUSED * len(clean)


def test_missing_target_lines_are_located(sides: Sides, tmp_path: Path) -> None:
    source, target = sides
    del target[3199], target[2499]
    report = check_sides(tmp_path, source, target)
    last = Run(3200, len(source), -2)
    first, second = Run(0, 2499), Run(2500, 3199, -1)
    assert report.runs["train"] == [first, second, last]
    assert report.findings[0].severity == "error", "errors come first"
    findings = findings_of(report)
    assert findings["counts"].severity == findings["shifted"].severity == "error"
    assert findings["shifted"].detail == (
        "lines 2501-3199: the translations are lines 2500-3198; "
        f"lines 3201-{len(source)}: the translations are lines 3199-{len(target)}"
    )


def test_missing_source_lines_are_located(sides: Sides, tmp_path: Path) -> None:
    source, target = sides
    del source[3199], source[2499]
    report = check_sides(tmp_path, source, target)
    last = Run(3198, len(source), 2)
    first, second = Run(0, 2499), Run(2499, 3198, 1)
    assert report.runs["train"] == [first, second, last]


def test_a_line_too_many_at_the_end_moves_nothing(sides: Sides, tmp_path: Path) -> None:
    source, target = sides
    target[1000:] = ["One more."]
    report = check_sides(tmp_path, source[:1000], target)
    assert "counts" in findings_of(report)
    assert report.runs["train"] == [Run(0, 1000)]


def test_sides_that_have_nothing_to_do_with_each_other(sides: Sides, tmp_path: Path) -> None:
    source, target = sides
    report = check_sides(tmp_path, source, shuffled(target))
    assert "unrelated" in findings_of(report)


def test_a_dev_set_with_its_sides_exchanged(clean: list[PairText], tmp_path: Path) -> None:
    # Only dev has the source language in its target file.
    exchanged = [(target, source) for source, target in clean[-300:]]
    train = write_pairs(tmp_path, "train", clean[:-300])
    dev = write_pairs(tmp_path, "dev", exchanged)
    findings = findings_of(check([train, dev]), "dev")
    assert findings["swapped"].severity == "error"
    result = len(findings["exchanged"].lines)
    assert result >= FOUND * 300


@pytest.fixture(scope="module")
def leaking(clean: list[PairText], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Finding]:
    """Findings in a test set of 300 lines; 1 to 20 are in train, and 31 to 50 nearly."""
    train, test = clean[:-300], clean[-300:]
    test[:20] = train[100:120]
    for line in range(30, 50):
        source, _ = test[line]
        _, target = train[line]
        test[line] = (source, target.upper().replace(".", "!"))
    folder = tmp_path_factory.mktemp("leaking")
    corpora = [write_pairs(folder, "train", train), write_pairs(folder, "test", test)]
    return findings_of(check(corpora), "test")


def test_lines_of_test_that_are_in_train_are_found(leaking: dict[str, Finding]) -> None:
    result = leaking["leak"].lines[:20]
    assert result == [*range(1, 21)]
    assert "swapped" not in leaking


def test_lines_of_test_that_are_nearly_in_train_are_found(leaking: dict[str, Finding]) -> None:
    leaks = set(leaking["leak"].lines)
    near_leaks = set(leaking["near-leak"].lines)
    assert {*range(31, 51)} <= leaks | near_leaks
    assert len(near_leaks) <= 20 + 0.05 * 300


@pytest.mark.parametrize("declared", [("", "en"), ("xx", "eng")])
def test_the_declared_language_is_right_or_unknown(
    clean: list[PairText], tmp_path: Path, declared: tuple[str, str]
) -> None:
    assert "declared" not in findings_of(check_pairs(tmp_path, clean[:500], declared))


def test_a_side_in_another_language_than_its_name_says(clean: list[PairText], tmp_path: Path) -> None:
    findings = findings_of(check_pairs(tmp_path, clean[:500], ("en", "fr")))
    assert "the target is said to be fr, but it looks like en" in findings["declared"].detail


PEOPLE = {"Na gone": "The child", "Na turaga": "The chief", "Na tinaqu": "My mother", "Na qasenivuli": "The teacher"}
ACTIONS = {"e volia": "buys", "e kunea": "finds", "e vakayagataka": "uses", "e taura": "takes"}
THINGS = {"na waqa": "the boat", "na madrai": "the bread", "na ivola": "the book", "na niu": "the coconut"}
TIMES = {"nikua": "today", "ena veisiga": "every day", "ena mataka": "tomorrow", "ena koro": "in the village"}


def fijian_pairs() -> list[PairText]:
    """Sentences in Fijian, which py3langid does not know."""
    english = PEOPLE | ACTIONS | THINGS | TIMES
    pairs = []
    for source in itertools.product(PEOPLE, ACTIONS, THINGS, TIMES):
        target = [english[phrase] for phrase in source]
        pairs.append((" ".join(source) + ".", " ".join(target) + "."))
    return pairs


def test_a_language_that_cannot_be_identified_is_no_third_language(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, fijian_pairs(), ("fj", "en"))
    assert findings_of(report).keys() <= {"unchecked", "mismatch"}


@pytest.fixture(scope="module")
def prices() -> list[PairText]:
    goods = [("Schrauben", "screws"), ("Lampen", "lamps"), ("Bretter", "boards")]
    pairs = []
    for n in range(1, 300):
        german, english = goods[n % 3]
        thousands, rest = 7 * n, n % 900 + 100
        source = f"{n} {german} kosten {thousands}.{rest},50 Euro."
        target = f"{n} {english} are {thousands},{rest}.50 euros."
        pairs.append((source, target))
    return pairs


def test_prices_say_nothing_about_the_language(prices: list[PairText], tmp_path: Path) -> None:
    findings = findings_of(check_pairs(tmp_path, prices, ("de", "en")))
    assert not findings.keys() & {"declared", "language", "numbers"}


def test_words_beside_prices_say_that_the_languages_are_exchanged(prices: list[PairText], tmp_path: Path) -> None:
    findings = findings_of(check_pairs(tmp_path, prices, ("en", "de")))
    assert "declared" in findings
    assert not findings.keys() & {"language", "numbers"}


@pytest.mark.parametrize(("n_faulty", "severity"), [(2, "warning"), (3, "error")])
def test_few_faulty_lines_of_a_small_corpus_are_no_error(
    clean: list[PairText], tmp_path: Path, n_faulty: int, severity: str
) -> None:
    pairs = clean[:50]
    for line in range(n_faulty):
        source, target = pairs[line]
        pairs[line] = (f"{source} \ufffd", target)
    findings = findings_of(check_pairs(tmp_path, pairs))
    assert findings["replaced"].severity == severity


def test_small_corpora_are_not_judged_by_what_they_cannot_show(tmp_path: Path) -> None:
    # Three pairs teach no words.
    pairs = [("ein Hund", "a dog"), ("zwei Katzen", "two cats"), ("drei Vögel", "three birds")]
    findings = findings_of(check_pairs(tmp_path, pairs))
    assert findings.keys() == {"unchecked"}


def test_a_corpus_of_one_blank_line(tmp_path: Path) -> None:
    report = check_pairs(tmp_path, [("a", "")])
    assert report.findings[0].kind.name == "blank"


def test_utf_16_is_refused(tmp_path: Path) -> None:
    files = write_pairs(tmp_path, "train", [("a", "b")])
    # Every second byte is 0.
    files.target[0].write_bytes("b\n".encode("utf-16"))
    with pytest.raises(DataError, match="is in UTF-16"):
        check([files])


def test_the_page_lists_every_kind_with_its_severity() -> None:
    page = (ROOT / "nmt/corpus/README.md").read_text("utf-8")
    shares = {0: "always", math.inf: "never"}
    for kind in KINDS.values():
        share = shares.get(kind.error_from, f"{100 * kind.error_from:g} %")
        row = rf"^\| `{kind.name}` \| .* \| {kind.severity} \| {share} \| "
        assert re.search(row, page, re.MULTILINE)
    rows = re.findall("^[|] `", page, re.MULTILINE)
    result = len(rows)
    assert result == len(KINDS)


TEXTS = {
    "Windows-1252": ["Der Hund läuft über die Straße.", "où est-il allé?", "„l’été“"],
    "Windows-1251": ["Собака бежит по улице.", "я не знаю", "Привет, мир!"],
    "GB18030": ["我昨天买了一本书。", "今天天气很好，我们去公园吧", "朱镕基 and 㐀"],
    "Big5": ["我昨天買了一本書。"],
}


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("n_lines", [1, 3])
def test_an_encoding_is_guessed(encoding: str, n_lines: int) -> None:
    texts = TEXTS[encoding][:n_lines]
    lines = [text.encode(encoding) for text in texts]
    assert guess_encoding(lines) == encoding
