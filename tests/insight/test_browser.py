"""The pages in a browser: no network requests, no errors, all sections, keyboard control, and accessibility."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from conftest import ARABIC, SCREENS, SOURCE, TARGET, FiveRun, check_accessible, opened_text, run_nmt, write_five
from models import RNNS, TRANSFORMERS, name, translator_without_bytes

from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.render import as_plain
from nmt.evaluate import Difference, PairedScore, ScoreSettings, SystemScore, choose_settings
from nmt.insight import compare, growth, pages, report
from nmt.insight.compare import EvaluationSet
from nmt.insight.explain import Choice, Explanation, Token, as_page, explain
from nmt.insight.report import evaluated, read_report
from nmt.run.directory import RunDirectory
from nmt.translate.loading import load

pytest.importorskip("playwright.sync_api", reason="no playwright: make browser")  # before runs are trained for it

ZH_EN = Path(__file__).parents[2] / "data" / "zh-en"
SECTIONS = ["map", "words", "attention", "search", "reference", "one-pass", "masks", "stages"]


def percent(log_prob: float) -> str:
    """A probability as the pages write it."""
    value = 100 * math.exp(log_prob)
    return f"{value:.{0 if value >= 99.95 else 1}f}\N{NO-BREAK SPACE}%"


@pytest.fixture(scope="module")
def explained(five_run: FiveRun) -> Explanation:
    return explain(load(five_run.run), SOURCE[0], reference=TARGET[1])


@pytest.fixture
def opened(browser: Any, explained: Explanation, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page of an explanation."""
    with opened_text(browser, tmp_path, as_page(explained), **getattr(request, "param", {})) as page:
        yield page


def sections_of(page: Any) -> list[str]:
    return [one.get_attribute("id") for one in page.locator("main section").all() if one.is_visible()]


@pytest.mark.parametrize("screen", SCREENS)
def test_the_report_is_accessible(browser: Any, five_run: FiveRun, tmp_path: Path, screen: dict[str, Any]) -> None:
    config = RunDirectory(five_run.run).read_config()
    evaluation = evaluated("test", SOURCE, TARGET, [TARGET[0], "a b a b a b", *TARGET[2:]], config)
    text = report.as_page([read_report(five_run.run, evaluation), read_report(five_run.run)])
    with opened_text(browser, tmp_path, text, **screen) as page:
        assert [one for one in sections_of(page) if one != "warnings"] == ["curves", "samples", "scores", "settings"]
        assert page.locator("#charts svg").count() == 9
        page.get_by_role("button", name="By minutes").click()
        page.locator("#charts svg").first.press("ArrowRight")
        assert page.locator("#charts output").first.inner_text().startswith("minute ")
        check_accessible(page)


def test_values_that_would_flatten_a_curve_are_cut_off(browser: Any, five_run: FiveRun, tmp_path: Path) -> None:
    """A model that diverges has a perplexity of 44 digits; a clock that jumps gives an endless speed."""
    found = read_report(five_run.run)
    found["curves"]["tokens_per_s"][0] = 1e9
    first = found["validations"][0]
    found["validations"] = [{**first, "step": step, "dev_perplexity": 5.0} for step in range(1, 9)]
    found["validations"] += [{**first, "step": 9, "dev_perplexity": math.exp(100)}]
    with opened_text(browser, tmp_path, report.as_page([found])) as page:
        notes = dict(
            zip(page.locator("#charts h3").all_inner_texts(), page.locator("#charts output").all(), strict=True)
        )
        assert notes["Dev perplexity"].inner_text() == "1 is perfect; highest value, above the chart: 2.7e43"
        assert notes["Speed"].inner_text().endswith("highest value, above the chart: 1.0e9")
        page.locator("summary").first.click()
        assert "2.688e+43" in page.locator("details table").first.inner_text()


def verdict_of(browser: Any, tmp_path: Path, systems: list[list[str]], references: list[str]) -> str:
    settings = choose_settings("", [references])
    found = compare.compare(["a", "b"], systems, EvaluationSet("x", None, [references], settings), n_trials=200)
    with opened_text(browser, tmp_path, compare.as_page(found)) as page:
        text: str = page.locator("#verdict").inner_text()
    return text


def test_equal_systems_are_not_called_worse(browser: Any, tmp_path: Path) -> None:
    lines = [f"the number {n} is one of many numbers" for n in range(40)]
    text = verdict_of(browser, tmp_path, [lines, [line.upper() for line in lines]], lines)
    assert "BLEU: B is worse than A by 99.65" in text
    assert "TER: no difference between B and A." in text


def test_a_small_difference_is_not_called_0(browser: Any, tmp_path: Path) -> None:
    found = compare.compare(["a", "b"], [TARGET, TARGET], EvaluationSet("x", None, [TARGET], ScoreSettings()))
    difference = Difference(value=0.004, low=0.001, high=0.006, p_value=0.01)
    systems = [SystemScore(40.0, None), SystemScore(40.004, difference)]
    scores = [PairedScore("BLEU", "signature", systems)]
    with opened_text(browser, tmp_path, compare.as_page(replace(found, scores=scores))) as page:
        assert page.locator("#verdict").inner_text() == "BLEU: B is better than A by less than 0.01 (p = 0.010)."


def test_the_page_says_that_ter_is_left_out(browser: Any, tmp_path: Path) -> None:
    lines = ["รถไฟออกเก้าโมง", "เธอมีสุนัขสองตัว"]
    assert "TER is left out: it counts words" in verdict_of(browser, tmp_path, [lines, lines], lines)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_comparison_is_drawn_and_accessible(browser: Any, tmp_path: Path, screen: dict[str, Any]) -> None:
    lines = EvaluationSet("the five pairs", SOURCE, [TARGET], ScoreSettings())
    systems = [[*TARGET[:4], "4"], ["I read <b>books</b> yesterday .", *TARGET[1:]], TARGET[::-1]]
    text = compare.as_page(compare.compare(["runs/a", "b", "c"], systems, lines, n_trials=50))
    with opened_text(browser, tmp_path, text, **screen) as page:
        assert sections_of(page) == ["scores", "groups", "lines"]
        assert page.locator("#score-table tbody tr").count() == 3 * 3
        assert "BLEU: " in page.locator("#verdict").inner_text()
        for summary in page.locator("summary").all():
            summary.click()
        page.locator("details table").wait_for()  # the toggle event, which draws it, is asynchronous
        assert page.locator("main svg").count() == 1 + 2, "groups have one for each system but the baseline"
        assert page.locator("details table").count() == 1
        assert "read" in page.locator(".sides u").all_inner_texts()
        assert page.locator("#lines b").first.inner_text() == SOURCE[4], "it differs most"
        check_accessible(page)


@pytest.mark.parametrize("screen", SCREENS)
def test_the_page_of_a_check_shows_all_findings(browser: Any, tmp_path: Path, screen: dict[str, Any]) -> None:
    sides = [(ZH_EN / f"train.{lang}").read_text("utf-8").splitlines(keepends=True)[:1000] for lang in ("zh", "en")]
    del sides[1][500]
    sides[1][20] = "<script>document.title = 'bad'</script> &amp;\n"
    paths = [tmp_path / "train.zh", tmp_path / "train.en"]
    for path, lines in zip(paths, sides, strict=True):
        path.write_text("".join(lines), encoding="utf-8")
    report = check([CorpusFiles("train", [paths[0]], [paths[1]])], ("zh", "en"))
    with opened_text(browser, tmp_path, pages.page("check", "nmt check", as_plain(report)), **screen) as page:
        assert page.title() == "nmt check"
        assert sections_of(page) == ["overview", "errors", "warnings", "notes", "files"]
        assert page.locator("#finding-table tbody tr").count() == len(report.findings)
        assert page.locator(".finding").count() == len(report.findings)
        assert "different numbers of lines" in page.locator("#error-list").inner_text()
        assert "<script>" in page.locator("#warning-list").inner_text()
        check_accessible(page)


def test_every_section_is_there(opened: Any) -> None:
    assert opened.locator("#translation").inner_text() == TARGET[0]
    assert sections_of(opened) == SECTIONS
    for section in SECTIONS:
        assert opened.locator(f"#{section} svg, #{section} table").count() > 0, section
    assert opened.locator("#one-pass-table tbody tr").count() == opened.locator(".token").count()
    assert opened.locator(".stage svg").count() == opened.locator(".stage").count() > 30
    second = opened.locator(".token").nth(1)
    second.click()
    assert second.get_attribute("aria-pressed") == "true"
    assert "(written)" in opened.locator("#choices tbody").inner_text()


@pytest.mark.parametrize("opened", SCREENS, indirect=True)
@pytest.mark.parametrize("part", ["Decoder to source", "Within the source", "Within the translation"])
def test_no_head_of_the_overview_is_cut_off(opened: Any, part: str) -> None:
    opened.get_by_role("button", name=part).click()
    overview = opened.locator("#overview")
    assert overview.get_by_role("button").count() == 1 + 2 * 4
    assert overview.evaluate("box => box.scrollWidth <= box.clientWidth")


def test_heads_are_chosen_by_mouse_and_read_by_keyboard(opened: Any) -> None:
    opened.get_by_role("button", name="Within the translation").click()
    opened.get_by_role("button", name="Layer 2, head 3").click()
    assert opened.locator("#head-name").inner_text() == "Layer 2, head 3"
    assert opened.get_by_role("button", name="Layer 2, head 3").get_attribute("aria-pressed") == "true"
    assert "entropy" in opened.locator("#head-figures").inner_text()
    opened.locator("#head-figure svg").press("ArrowRight")
    told = opened.locator("#head-figure output").inner_text()
    assert "looks at" in told
    assert told.endswith("with weight 0.00"), "the start sign cannot see what comes after it"
    opened.locator("#head-figure summary").click()
    rows = opened.locator("#head-figure tbody tr")
    rows.first.wait_for()
    for row in rows.all():
        cells = [float(cell) for cell in row.locator("td.number").all_inner_texts()]
        assert sum(cells) == pytest.approx(1, abs=0.06), "rounded to two digits"
    opened.get_by_role("button", name="Lines").click()
    opened.locator("#head-figure svg").press("ArrowDown")
    assert "looks at" in opened.locator("#head-figure output").inner_text()


def test_the_search_is_stepped_through_by_keyboard(opened: Any) -> None:
    slider = opened.get_by_role("slider", name="Step of the search")
    last = int(slider.get_attribute("max"))
    slider.focus()
    for step in range(2, last + 1):
        opened.keyboard.press("ArrowRight")
        assert opened.locator("#step-name").inner_text() == f"{step} of {last}"
    assert "finished" in opened.locator("#step-table").inner_text()
    assert TARGET[0] in opened.locator("#hypotheses tbody tr").first.inner_text()


@pytest.mark.parametrize("opened", SCREENS, indirect=True)
def test_accessibility_and_width(opened: Any) -> None:
    check_accessible(opened)
    for box in ("decoder cross-attention", "output probabilities"):
        opened.locator(f"[data-box='{box}']").click()
        opened.locator("#box summary").click()
        check_accessible(opened, "#map")
        opened.get_by_role("button", name="Back to the step").click()  # a sheet over the map of a narrow window
    opened.locator("#ways").get_by_role("button", name="One pass").click()
    check_accessible(opened, "#map")


def opacities(locator: Any) -> list[float]:
    found: list[float] = locator.evaluate_all("all => all.map(one => Number(one.style.opacity))")
    return found


def check_distribution(lane: Any, token: Token) -> None:
    """A lane shows the model's distribution, and the token that is read next in bold."""
    expected = [*token.alternatives]
    if token.rank > len(expected):
        expected.append(Choice(token.piece, token.token, token.log_prob))
    rows = lane.locator(".choice:not(.absent)")
    assert rows.locator(".piece").all_inner_texts() == [one.piece for one in expected]
    assert rows.locator(".value").all_inner_texts() == [percent(one.log_prob) for one in expected]
    bars = rows.locator(".fall").evaluate_all("all => all.map(bar => new DOMMatrix(bar.style.transform).a)")
    assert bars == pytest.approx([math.exp(one.log_prob) for one in expected], abs=1e-5)
    assert lane.locator(".choice.written .piece").inner_text() == token.piece


@pytest.mark.parametrize("opened", [{"reduced_motion": "reduce"}, {}], indirect=True)
def test_each_step_shows_what_was_computed(opened: Any, explained: Explanation, request: pytest.FixtureRequest) -> None:
    tokens, (shapes, _) = explained.translation.tokens, explained.cache
    cross = explained.attention.cross.mean((0, 1, 2))  # (T, S)
    captions = opened.locator("#step figcaption")
    rows, columns = (opened.locator(".pair svg").nth(i).locator(".grows") for i in (0, 1))
    for t, token in enumerate(tokens):
        assert opened.locator("#player-step").inner_text() == f"Step {t + 1} of {len(tokens)}"
        check_distribution(opened.locator("#step .lane"), token)
        chips = opacities(opened.locator("#map-figure .chip"))[cross.size(1) :]
        assert sum(chips) == 2 * (t + 1), "tokens read and predicted"
        heat = opacities(opened.locator(".chip .heat"))[: cross.size(1)]
        assert heat == pytest.approx((0.6 * cross[t] / cross[t].max()).tolist(), abs=0.02), "weights have 8 bits"
        assert captions.nth(0).inner_text().endswith("1" if t == 0 else f"positions 1 to {t + 1}")
        assert opacities(rows) == [1.0] * (t + 1) + [0.0] * (len(tokens) - t - 1)
        assert "×".join(map(str, shapes[t])) in captions.nth(1).inner_text()
        assert shapes[t][3] == sum(opacities(columns)) == t + 1
        live = [node for node in explained.tree if node.position == t + 1 and node.status != "pruned"]
        scores = sorted((node.score for node in live), reverse=True)[:5]
        assert opened.locator(".picked td.number").all_inner_texts() == [f"{score:.3f}" for score in scores]
        found = [node for node in explained.tree if node.position <= t + 1 or t + 1 == len(tokens)]
        assert opened.locator("#map-tree .node:visible").count() == len(found)
        opened.get_by_role("button", name="Forward", exact=True).press("Enter")
        is_moving = opened.evaluate("document.getAnimations().length") > 0
        assert is_moving != bool(request.node.callspec.params["opened"]) or t + 1 == len(tokens)


def test_another_piece_shows_how_far_the_search_followed_it(opened: Any, explained: Explanation) -> None:
    best = next(node for node in explained.tree if node.is_best)
    siblings = {node.token: node for node in explained.tree if node.parent == best.index}
    opened.get_by_role("button", name="Forward", exact=True).click()
    for i, choice in enumerate(explained.translation.tokens[1].alternatives):
        opened.locator(".choice").nth(i).click()
        told, node = opened.locator(".picked").inner_text(), siblings.get(choice.token)
        assert ("not among the candidates" in told) == (node is None)
        if node:
            continued = {node.index}
            for other in explained.tree:
                continued |= {other.index} if other.parent in continued else set()
            opacity = opened.locator("#map-tree .node").evaluate_all("all => all.map(x => x.getAttribute('opacity'))")
            assert {i for i, one in enumerate(opacity) if one != "0.15"} == continued | {best.index}


def test_two_ways_stand_beside_each_other(opened: Any, explained: Explanation) -> None:
    assert explained.reference
    forced, free = explained.reference.tokens, explained.greedy.tokens
    once, stepwise = explained.one_pass.tokens, explained.translation.tokens
    for way, *lanes in ("Teacher forcing", forced, free), ("One pass", once, stepwise):
        opened.locator("#ways").get_by_role("button", name=way).click()
        for pair in zip(*lanes, strict=False):
            for i, token in enumerate(pair):
                check_distribution(opened.locator("#step .lane").nth(i), token)
            opened.get_by_role("button", name="Forward", exact=True).click()


@pytest.mark.parametrize("opened", SCREENS, indirect=True)
def test_boxes_open_by_keyboard_and_layers_unfold(opened: Any, explained: Explanation) -> None:
    opened.get_by_role("button", name="decoder: fold Layer 1").press("Enter")
    assert opened.locator("[data-box='decoder self-attention']").count() == 0
    opened.get_by_role("button", name="Decoder: Layer 1").press("Enter")
    stages = defaultdict(list)
    for stage in explained.stages:
        stages[f"{stage.part} {stage.box}"].append("×".join(map(str, stage.shape)))
    boxes = opened.locator("[data-box]").all()
    names = [box.get_attribute("data-box") for box in boxes]
    assert sorted(names) == sorted([*stages, "encoder layer", "decoder layer"])
    for key, box, shown in zip(["Enter", " "] * len(boxes), boxes, names, strict=False):
        shapes = stages[shown]
        box.press(key)
        assert [text.split(" = ")[1] for text in opened.locator("#box h4 code").all_inner_texts()] == shapes
        n_heads = {"encoder layer": 4, "decoder layer": 2 * 4}
        assert opened.locator("#box svg").count() == (len(shapes) or n_heads[shown])
        assert opened.locator("#box pre").count() > 0
        opened.keyboard.press("Escape")
        assert box.evaluate("box => box === document.activeElement")


@pytest.mark.parametrize(
    "choices", [TRANSFORMERS[-1], {"positions": "rotary", "n_decoder_layers": 3}, RNNS[0], RNNS[2]], ids=name
)
def test_the_map_is_that_of_the_model(browser: Any, tmp_path: Path, choices: dict[str, Any]) -> None:
    found = explain(translator_without_bytes(**choices), "a cat sleeps", beam=2)
    with opened_text(browser, tmp_path, as_page(found)) as page:
        s, is_recurrent = found.settings, found.settings.architecture == "rnn"
        readers = page.locator(".map .arrow.memory").count()
        assert readers == (2 if not is_recurrent else int(s.attention != "none"))
        if s.n_decoder_layers == 3:
            page.get_by_role("button", name="Decoder: Layers 2–3").press("Enter")
            assert page.locator(".map .arrow.memory").count() == 3
        text = page.locator("svg.map").evaluate("map => map.textContent")
        expected = {"Add & norm": 5 if s.norm == "post" else 0, "learned positions": 2 * (s.positions == "learned")}
        for part, n in (expected | {"both directions": 0} if not is_recurrent else {"both directions": 2}).items():
            assert text.count(part) == n
        page.locator("[data-box='output logits']").press("Enter")
        whole = page.locator("body").inner_text() + (page.locator("svg.map").get_attribute("aria-label") or "")
        for words in ("figure 1", "Vaswani", "section", "of the paper"):
            assert (words in whole) != is_recurrent
        absent = {"reference", *(["masks"] if is_recurrent else []), *(["attention"] if s.attention == "none" else [])}
        assert sections_of(page) == [one for one in SECTIONS if one not in absent]
        check_accessible(page)


def test_printed_pages_fit_the_paper_and_show_pieces_and_heads(browser: Any, five_run: FiveRun, tmp_path: Path) -> None:
    evaluation = evaluated("test", SOURCE, TARGET, [TARGET[0], *SOURCE[1:]], RunDirectory(five_run.run).read_config())
    paper = {"width": 718, "height": 1000}  # A4 without margins
    explanation = explain(load(five_run.run), SOURCE[0])
    for text in (report.as_page([read_report(five_run.run, evaluation)]), as_page(explanation)):
        with opened_text(browser, tmp_path, text, viewport=paper) as page:
            page.emulate_media(media="print")
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
            assert page.locator(".token").count() == page.locator(".token:visible").count()
            assert page.locator(".overview-row svg").count() == page.locator(".overview-row svg:visible").count()
            assert page.locator("input:visible, output:visible").count() == 0


def test_a_translation_from_right_to_left(browser: Any, arabic_run: FiveRun, tmp_path: Path) -> None:
    text = as_page(explain(load(arabic_run.run), SOURCE[1], reference=ARABIC[1]))
    for screen in SCREENS:
        with opened_text(browser, tmp_path, text, **screen) as page:
            first, second = (page.locator(".token").nth(i).bounding_box() for i in (0, 1))
            assert first["x"] >= second["x"] + second["width"] - 1, "the first piece stands on the right"
            check_accessible(page, "#words")


@pytest.fixture(scope="module")
def grown(arabic_run: FiveRun) -> growth.Growth:
    """A sentence along a training that learns Arabic."""
    return growth.growth(arabic_run.run, SOURCE[0], reference=ARABIC[0])


@pytest.mark.parametrize("screen", [*SCREENS, {"reduced_motion": "reduce"}], ids=str)
def test_growth_is_stepped_through(browser: Any, grown: growth.Growth, tmp_path: Path, screen: dict[str, Any]) -> None:
    with opened_text(browser, tmp_path, growth.as_page([grown]), **screen) as page:
        assert sections_of(page) == ["curves", "pieces", "attention", "words", "heads"]
        page.get_by_role("button", name="Layer 1, head 2").press("Enter")
        slider = page.get_by_role("slider", name="Snapshot")
        slider.press("Home")
        for n, one in enumerate(grown.snapshots):
            place = f"Training step {one.step} ({n + 1} of {len(grown.snapshots)})"
            assert page.locator("#player output").inner_text() == place
            assert page.locator("#now").inner_text().startswith(one.translation or "(nothing)")
            assert str(one.step) in page.locator("#translations tr.now").inner_text()
            shown = page.locator(".piece .value").all_inner_texts()
            assert shown == [percent(math.log(p)) for p in one.probabilities]
            page.locator("#head-figure svg").press("ArrowRight")
            weight = float(grown.cross[n, 0, 1, 0, 1])
            told = page.locator("#head-figure output").inner_text()
            assert float(told.split()[-1]) == pytest.approx(weight, abs=0.01), "weights have 8 bits"
            # The words stand where their embeddings are, up to one scale and a shift.
            find = "all => all.map(one => { const m = new DOMMatrix(one.style.transform); return [m.e, m.f]; })"
            places, expected = page.locator(".word").evaluate_all(find), grown.positions[n].tolist()
            spread = [[max(side) - min(side) for side in zip(*points, strict=True)] for points in (places, expected)]
            assert spread[0][0] / spread[0][1] == pytest.approx(spread[1][0] / spread[1][1], rel=1e-3)
            slider.press("ArrowRight")
        for role in ("Previous piece", "Alignment", "End"):
            page.get_by_role("button", name=role).press("Enter")
            check_role(page, grown, role.split()[0].lower())
        check_accessible(page)
        page.get_by_role("button", name="Play").press("Enter")
        assert page.locator("#player output").inner_text().startswith("Training step 1 ")
        page.get_by_role("button", name="Pause").press("Enter")


def test_runs_are_compared_and_chosen_at_the_same_step(browser: Any, grown: growth.Growth, tmp_path: Path) -> None:
    corpus = write_five(tmp_path, "ar", ARABIC)
    settings = ["model.architecture=rnn", "model.attention=none", "train.max_steps=60", "train.snapshots=4"]
    done = run_nmt("train", corpus.config, *settings, cwd=corpus.home)
    assert done.returncode == 0, done.stderr.decode()
    other = growth.growth(corpus.run, SOURCE[0], reference=ARABIC[0])
    with opened_text(browser, tmp_path, growth.as_page([grown, other])) as page:
        without_attention = ["together", "curves", "pieces", "words"]
        with_attention = ["together", "curves", "pieces", "attention", "words", "heads"]
        for i, run, sections in ((1, other, without_attention), (0, grown, with_attention)):
            page.locator("#runs button").nth(i).press("Enter")
            assert sections_of(page) == sections
            for n, snapshot in enumerate(run.snapshots):
                page.get_by_role("slider", name="Snapshot").fill(str(n))
                rows = page.locator("#together-table tbody tr").all_inner_texts()
                for row, one in zip(rows, (grown, other), strict=True):
                    present = [each for each in one.snapshots if each.step <= snapshot.step][-1]
                    mean = math.fsum(map(math.log, present.probabilities)) / len(present.probabilities)
                    assert (present.translation or "(nothing)") in row
                    assert percent(mean) in row
        page.get_by_role("slider", name="Snapshot").fill("1")
        page.locator("#runs button").nth(1).press("Enter")
        assert page.locator("#player output").inner_text().startswith(f"Training step {other.snapshots[1].step} ")
        check_accessible(page)


def test_words_found_and_in_order_are_counted(browser: Any, grown: growth.Growth, tmp_path: Path) -> None:
    with opened_text(browser, tmp_path, growth.as_page([grown])) as page:
        for translation, reference, n_found, in_order in (
            ("a dog runs", "a dog runs", 1, 1),
            ("runs dog a", "a dog runs", 1, 1 / 3),
            ("The cat. A dog!", "a dog and the dog", 1 / 5, None),
            ("the the the", "the cat the", 2 / 3, 1),
            ("我买书", "我买一本书", 3 / 5, 1),
            ("", "a b", 0, None),
        ):
            found = page.evaluate("([a, b]) => wordShares(a, b)", [translation, reference])
            assert found == [pytest.approx(n_found), in_order and pytest.approx(in_order)]


def check_role(page: Any, grown: growth.Growth, role: str) -> None:
    """The table lists the heads that keep at least half of a role to the end, and since when."""
    steps, expected = [one.step for one in grown.snapshots], []
    for head in (one for one in grown.heads if one.role == role):
        n_kept = next((i for i, share in enumerate(reversed(head.shares)) if share < 0.5), len(steps))
        if n_kept:
            name = f"{head.part} {head.layer}, head {head.head}"
            expected.append([name, str(steps[-n_kept]), f"{head.shares[-1]:.2f}"])
    rows = [row.locator("td").all_inner_texts() for row in page.locator("#role-table tbody tr").all()]
    assert sorted(rows) == sorted(expected)
