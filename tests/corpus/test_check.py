"""Faults are planted in clean corpora: the check reports the planted lines, and hardly any clean line."""

import gzip
import itertools
import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from nmt.corpus.check import Report, check
from nmt.corpus.findings import guess_encoding
from nmt.corpus.kinds import KINDS
from nmt.corpus.pairing import Run
from nmt.corpus.reading import CorpusFiles
from nmt.errors import DataError

ROOT = Path(__file__).parents[2]
SHARED = ROOT.parent / "shared" / "data"
N_PLANTED = 25  # lines of each kind
FOUND, ACCUSED = 0.95, 0.01  # least share of planted lines, and greatest share of clean lines, reported
Texts = tuple[str, str]
Plant = Callable[[str, str, random.Random], Texts]

FRENCH = ("Le {} de ma sœur est dans la maison avec une {} rouge.", ["chat", "chien", "livre"], ["table", "lampe"])
RUSSIAN = ("Вчера {} купил в магазине новую {}.", ["Иван", "мой брат", "учитель"], ["книгу", "машину", "лампу"])


def sentence(template: tuple[str, list[str], list[str]], rng: random.Random) -> str:
    text, first, second = template
    return text.format(rng.choice(first), rng.choice(second))


def half(text: str) -> str:
    words = text.split()
    return " ".join(words[: len(words) // 2]).rstrip(".,?!")


def inside(text: str, sign: str) -> str:
    middle = text.find(" ", len(text) // 3)
    return f"{text[:middle]}{sign}{text[middle:]}"


PLANTS: dict[str, Plant] = {
    "exchanged": lambda s, t, _: (t, s),
    "copy": lambda s, t, _: (s, s) if " " in s else (t, t),
    "language": lambda s, _t, rng: (s, sentence(rng.choice([FRENCH, RUSSIAN]), rng)),
    "ratio": lambda s, t, _: (s, " ".join([t] * 3)),
    "truncated": lambda s, t, _: (s, half(t)),
    "blank": lambda s, _t, rng: (s, rng.choice(["", "  ", "\u3000"])),
    "no-words": lambda s, _t, rng: (s, f"--- {rng.randrange(99)} / {rng.randrange(99)} ==="),
    "long": lambda s, t, _: (" ".join([s] * 60), " ".join([t] * 60)),
    "numbers": lambda s, t, _: (f"2015: {s}", f"2051: {t}"),
    "placeholders": lambda s, t, rng: (s + rng.choice([" {0}", " %s", " <x/>", " https://example.org/a"]), t),
    "repetition": lambda s, t, rng: (s, inside(t, rng.choice([" the the the", " in the in the in the", " aaaaaaa"]))),
    "mojibake": lambda s, t, rng: (s, inside(t, rng.choice([" – café", " it’s", " 中文"]).encode().decode("cp1252"))),
    "replaced": lambda s, t, _: (s, inside(t, " caf\ufffd")),
    "markup": lambda s, t, rng: (s, rng.choice([f"<b>{t}</b>", inside(t, " &amp; so"), f"{t}<br/>"])),
    "control": lambda s, t, rng: (s, inside(t, rng.choice(["\u200b", "\x07", "\xad", "\ufeff", "\u2028"]))),
    "homoglyphs": lambda s, t, _: (s, t.replace("e", "\u0435", 1)),
    "spacing": lambda s, t, rng: rng.choice([(s, f"{t} "), (f" {s}", t), (s, inside(t, " ")), (s, inside(t, "\t"))]),
    "unicode": lambda s, t, _: (s, inside(t, " cafe\u0301")),
    "full-width": lambda s, t, _: (f"{s} \uff34\uff4f\uff4d", t),
    "tokenized": lambda s, t, _: (s, f"{t[:-1]} ."),
}


def clean_pairs(name: str) -> list[Texts]:
    if name == "grammar":
        sides = [(ROOT / "data" / "zh-en" / f"train.{lang}").read_text("utf-8") for lang in ("zh", "en")]
    else:
        folder = SHARED / "tatoeba-deu-eng"
        if not folder.is_dir():
            pytest.skip("no Tatoeba in ../shared/data")
        sides = [gzip.decompress((folder / f"train.{lang}.gz").read_bytes()).decode() for lang in ("de", "en")]
    pairs = list(zip(*(side.split("\n")[:-1] for side in sides), strict=True))
    return [pair for pair in pairs if len(pair[1].split()) >= 8 and pair[1][-1] in ".?"][:4_000]


def write(folder: Path, name: str, pairs: list[Texts], langs: tuple[str, str]) -> CorpusFiles:
    paths = [folder / f"{name}.{lang}" for lang in langs]
    for side, path in enumerate(paths):
        path.write_bytes("".join(f"{pair[side]}\n" for pair in pairs).encode())
    return CorpusFiles(name, [paths[0]], [paths[1]])


@pytest.mark.parametrize(("name", "langs"), [("grammar", ("zh", "en")), ("tatoeba", ("de", "en"))])
def test_planted_faults_are_found_and_clean_lines_are_not_accused(
    tmp_path: Path, name: str, langs: tuple[str, str]
) -> None:
    clean = clean_pairs(name)
    rng, pairs = random.Random(1), list(clean)
    kinds = [*PLANTS, "untranslated", "duplicate", "encoding"]  # the last three need other lines or bytes
    chosen = rng.sample([i for i in range(10, len(clean)) if len(clean[i][1].split()) >= 10], N_PLANTED * len(kinds))
    lines = {kind: sorted(chosen[n * N_PLANTED :][:N_PLANTED]) for n, kind in enumerate(kinds)}
    for kind, plant in PLANTS.items():
        for line in lines[kind]:
            pairs[line] = plant(*pairs[line], rng)
    for line in lines["untranslated"]:
        pairs[line] = (pairs[line][0], clean[(line + len(clean) // 2) % len(clean)][0])
    for line in lines["duplicate"]:
        pairs[line] = clean[0]
    files = write(tmp_path, "train", pairs, langs)
    for path in (*files.source, *files.target):
        raw = path.read_bytes().split(b"\n")
        for line in lines["encoding"]:
            raw[line] = b"caf\xe9 " + raw[line]
        path.write_bytes(b"\n".join(raw))
    all_found = findings_by_kind(check([files], langs))
    planted = {kind: {i + 1 for i in of_kind} for kind, of_kind in lines.items()}
    dirty = set().union(*planted.values())
    n_clean = len(pairs) - len(dirty)
    for kind, of_kind in planted.items():
        found = all_found.get(kind, set())
        missed, accused = of_kind - found, found - dirty
        assert len(missed) <= (1 - FOUND) * N_PLANTED, (kind, sorted(missed))
        assert len(accused) <= ACCUSED * n_clean, (kind, sorted(accused)[:20])
    assert len(set().union(*all_found.values()) - dirty) <= 2 * ACCUSED * n_clean


@pytest.fixture(scope="module", params=["grammar", "tatoeba"])
def clean(request: pytest.FixtureRequest) -> list[Texts]:
    return clean_pairs(request.param)


def findings_by_kind(report: Report) -> dict[str, set[int]]:
    return {finding.kind.name: set(finding.lines) for finding in report.findings}


def test_blocks_that_are_not_paired_with_their_translations_are_found(clean: list[Texts], tmp_path: Path) -> None:
    targets = [target for _, target in clean]
    targets[1000:1200] = targets[1003:1200] + targets[1000:1003]
    shuffled = targets[3000:3100]
    random.Random(1).shuffle(shuffled)
    targets[3000:3100] = shuffled
    pairs = [(source, target) for (source, _), target in zip(clean, targets, strict=True)]
    found = findings_by_kind(check([write(tmp_path, "train", pairs, ("a", "b"))]))
    planted = {"shifted": {*range(1004, 1201)}, "shuffled": {*range(1001, 1004), *range(3001, 3101)}}
    for kind, lines in planted.items():
        assert len(lines & found[kind]) >= FOUND * len(lines)
        assert len(found[kind] - lines) <= 5


def test_some_single_pairs_that_do_not_belong_together_are_found(clean: list[Texts], tmp_path: Path) -> None:
    lines = range(7, len(clean), len(clean) // 30)
    pairs = list(clean)
    for line in lines:
        pairs[line] = (clean[line][0], clean[line - 500][1])
    found = findings_by_kind(check([write(tmp_path, "train", pairs, ("a", "b"))]))["mismatch"]
    planted = {line + 1 for line in lines}
    assert len(planted & found) >= 0.3 * len(planted)
    assert len(found - planted) <= ACCUSED * len(clean)


@pytest.mark.parametrize("longer", [0, 1])
def test_missing_lines_are_located(clean: list[Texts], tmp_path: Path, longer: int) -> None:
    """One side lacks lines 2500 and 3200."""
    files = write(tmp_path, "train", clean, ("a", "b"))
    (shorter,) = files.sides[1 - longer]
    lines = shorter.read_bytes().split(b"\n")
    shorter.write_bytes(b"\n".join(lines[:2499] + lines[2500:3199] + lines[3200:]))
    report = check([files])
    by_kind = {finding.kind.name: finding for finding in report.findings}
    assert by_kind["counts"].severity == by_kind["shifted"].severity == "error"
    assert report.findings[0].severity == "error"
    before, between, after = report.runs["train"]
    if longer == 0:
        assert [before.end, between.start, between.end, after.start, after.end] == [2499, 2500, 3199, 3200, len(clean)]
        assert [before.offset, between.offset, after.offset] == [0, -1, -2]
        where = "1 line above", "2 lines above"
    else:
        assert [before.end, between.start, between.end, after.start, after.end] == [
            2499,
            2499,
            3198,
            3198,
            len(clean) - 2,
        ]
        assert [before.offset, between.offset, after.offset] == [0, 1, 2]
        where = "1 line below", "2 lines below"
    assert f"part at about line {before.end + 1:,} and {between.end + 1:,}" in by_kind["counts"].detail
    assert by_kind["shifted"].detail == (
        f"lines {between.start + 1}-{between.end}: the translation is {where[0]}; "
        f"lines {after.start + 1}-{after.end}: the translation is {where[1]}"
    )


def test_a_line_too_many_at_the_end_moves_nothing(clean: list[Texts], tmp_path: Path) -> None:
    files = write(tmp_path, "train", clean[:1000], ("a", "b"))
    files.target[0].write_bytes(files.target[0].read_bytes() + b"One more.\n")
    report = check([files])
    assert set(findings_by_kind(report)) >= {"counts"}
    assert report.runs["train"] == [Run(0, 1000)]


def test_sides_that_have_nothing_to_do_with_each_other(clean: list[Texts], tmp_path: Path) -> None:
    targets = [target for _, target in clean]
    random.Random(1).shuffle(targets)
    pairs = [(source, target) for (source, _), target in zip(clean, targets, strict=True)]
    assert "unrelated" in findings_by_kind(check([write(tmp_path, "train", pairs, ("a", "b"))]))


def test_dev_with_its_sides_exchanged_and_leaks(clean: list[Texts], tmp_path: Path) -> None:
    train, held_out = clean[:-600], clean[-600:]
    exchanged = [(target, source) for source, target in held_out[:300]]
    test = held_out[300:]
    test[:20] = train[100:120]
    test[30:50] = [
        (source, target.upper().replace(".", "!"))
        for (source, _), (_, target) in zip(test[30:50], train[200:220], strict=True)
    ]
    parts = {"train": train, "dev": exchanged, "test": test}
    corpora = [write(tmp_path, name, pairs, ("a", "b")) for name, pairs in parts.items()]
    report = check(corpora)
    found = {(finding.corpus, finding.kind.name): finding for finding in report.findings}
    assert found["dev", "swapped"].severity == "error"
    assert len(found["dev", "exchanged"].lines) >= FOUND * len(exchanged)
    assert ("test", "swapped") not in found
    sides = [{pair[side] for pair in train} for side in (0, 1)]
    leaks = [i for i, (source, target) in enumerate(test, 1) if source in sides[0] or target in sides[1]]
    assert found["test", "leak"].lines == leaks
    assert leaks[:20] == list(range(1, 21))
    near_leaks = found["test", "near-leak"].lines
    assert set(range(31, 51)) - set(leaks) <= set(near_leaks)
    assert len(near_leaks) <= 20 + 0.05 * len(test)


def test_a_side_in_another_language_than_its_name_says(clean: list[Texts], tmp_path: Path) -> None:
    files = write(tmp_path, "train", clean[:500], ("a", "b"))
    assert "declared" not in findings_by_kind(check([files], ("", "en")))
    assert "declared" not in findings_by_kind(check([files], ("xx", "eng")))
    found = check([files], ("en", "fr"))
    (finding,) = [one for one in found.findings if one.kind.name == "declared"]
    assert "the target is said to be fr, but it looks like en" in finding.detail


def fijian_pairs() -> list[Texts]:
    """Sentences in Fijian, which py3langid does not know."""
    people = {
        "Na gone": "The child",
        "Na turaga": "The chief",
        "Na tinaqu": "My mother",
        "Na qasenivuli": "The teacher",
    }
    actions = {"e volia": "buys", "e kunea": "finds", "e vakayagataka": "uses", "e taura": "takes"}
    things = {"na waqa": "the boat", "na madrai": "the bread", "na ivola": "the book", "na niu": "the coconut"}
    times = {"nikua": "today", "ena veisiga": "every day", "ena mataka": "tomorrow", "ena koro": "in the village"}
    pairs = []
    for who, what, which, when in itertools.product(people, actions, things, times):
        english = f"{people[who]} {actions[what]} {things[which]} {times[when]}."
        pairs.append((f"{who} {what} {which} {when}.", english))
    return pairs


def test_a_language_that_cannot_be_identified_is_no_third_language(tmp_path: Path) -> None:
    report = check([write(tmp_path, "train", fijian_pairs(), ("fj", "en"))], ("fj", "en"))
    assert {finding.kind.name for finding in report.findings} <= {"unchecked", "mismatch"}
    assert report.languages == ("", "en")


def test_a_third_language_is_found_beside_a_language_that_cannot_be_identified(tmp_path: Path) -> None:
    pairs, rng = fijian_pairs(), random.Random(1)
    lines = range(5, len(pairs), 25)
    for line in lines:
        pairs[line] = (sentence(rng.choice([FRENCH, RUSSIAN]), rng), pairs[line][1])
    found = findings_by_kind(check([write(tmp_path, "train", pairs, ("fj", "en"))], ("fj", "en")))["language"]
    assert found == {line + 1 for line in lines}


@pytest.mark.parametrize("are_exchanged", [False, True])
def test_prices_say_nothing_about_the_language_but_words_do(tmp_path: Path, are_exchanged: bool) -> None:
    pairs = []
    for n in range(1, 300):
        german, english = [("Schrauben", "screws"), ("Lampen", "lamps"), ("Bretter", "boards")][n % 3]
        source = f"{n} {german} kosten {7 * n}.{n % 900 + 100},50 Euro."
        pairs.append((source, f"{n} {english} are {7 * n},{n % 900 + 100}.50 euros."))
    langs = ("en", "de") if are_exchanged else ("de", "en")
    found = findings_by_kind(check([write(tmp_path, "train", pairs, langs)], langs))
    assert ("declared" in found) == are_exchanged
    assert not found.keys() & {"language", "numbers"}


@pytest.mark.parametrize(("n_faulty", "severity"), [(2, "warning"), (3, "error")])
def test_few_faulty_lines_of_a_small_corpus_are_no_error(
    clean: list[Texts], tmp_path: Path, n_faulty: int, severity: str
) -> None:
    faulty = [(f"{source} \ufffd", target) for source, target in clean[:n_faulty]]
    report = check([write(tmp_path, "train", [*faulty, *clean[n_faulty:50]], ("a", "b"))])
    (finding,) = [finding for finding in report.findings if finding.kind.name == "replaced"]
    assert finding.severity == severity


def test_small_corpora_are_not_judged_by_what_they_cannot_show(tmp_path: Path) -> None:
    pairs = [("ein Hund", "a dog"), ("zwei Katzen", "two cats"), ("drei Vögel", "three birds")]
    assert set(findings_by_kind(check([write(tmp_path, "train", pairs, ("de", "en"))]))) == {"unchecked"}
    assert check([write(tmp_path, "train", [("a", "")], ("de", "en"))]).findings[0].kind.name == "blank"


def test_utf_16_is_refused(tmp_path: Path) -> None:
    files = write(tmp_path, "train", [("a", "b")], ("de", "en"))
    files.target[0].write_bytes("b\n".encode("utf-16"))
    with pytest.raises(DataError, match="perhaps utf-16"):
        check([files])


def test_the_page_lists_every_kind_with_its_severity() -> None:
    page = (ROOT / "nmt" / "corpus" / "README.md").read_text("utf-8")
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in page.splitlines() if line.startswith("| `")]
    listed = {row[0].strip("`"): row[2:4] for row in rows if len(row) == 5}
    shares = {0: "always", math.inf: "never"}
    assert listed == {
        kind.name: [kind.severity, shares.get(kind.error_from, f"{100 * kind.error_from:g} %")]
        for kind in KINDS.values()
    }
    assert all(kind.advice for kind in KINDS.values())


TEXTS = {
    "Windows-1252": ["Der Hund läuft über die Straße.", "où est-il allé?", "„l’été“"],
    "Windows-1251": ["Собака бежит по улице.", "я не знаю", "Привет, мир!"],
    "GB18030": ["我昨天买了一本书。", "今天天气很好，我们去公园吧", "朱镕基 and 㐀"],
    "Big5": ["我昨天買了一本書。"],
}


@pytest.mark.parametrize("encoding", TEXTS)
@pytest.mark.parametrize("n_lines", [1, 3])
def test_an_encoding_is_guessed(encoding: str, n_lines: int) -> None:
    assert guess_encoding([text.encode(encoding) for text in TEXTS[encoding][:n_lines]]) == encoding
