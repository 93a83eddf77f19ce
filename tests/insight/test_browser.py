"""The pages in a browser: no network requests, no errors, all sections, keyboard control, and accessibility."""

import contextlib
import math
from collections import defaultdict
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import ARABIC, SCREENS, SOURCE, TARGET, FiveRun, check_accessible, opened_text
from models import RNNS, TRANSFORMERS, name, translator_without_bytes

from nmt.corpus.check import check
from nmt.corpus.reading import CorpusFiles
from nmt.corpus.render import as_plain
from nmt.evaluate import ScoreSettings, choose_settings
from nmt.insight import compare, pages, report
from nmt.insight.compare import EvaluationSet
from nmt.insight.explain import Choice, Explanation, Token, as_page, explain
from nmt.insight.report import read_report
from nmt.translate.loading import load

pytest.importorskip("playwright.sync_api", reason="no playwright: make browser")  # before runs are trained for it

Show = Callable[..., contextlib.AbstractContextManager[Any]]

ZH_EN = Path(__file__).parents[2] / "data" / "zh-en"
SECTIONS = ["map", "words", "attention", "search", "reference", "one-pass", "stages"]
PAPER = {"width": 718, "height": 1000}  # A4 without margins
STILL = {"reduced_motion": "reduce"}

each_screen = pytest.mark.parametrize("screen", SCREENS)
opened_on_each_screen = pytest.mark.parametrize("opened", SCREENS, indirect=True)
opened_still = pytest.mark.parametrize("opened", [STILL], indirect=True)


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Show:
    """Open a page, given its text, in the browser."""
    return partial(opened_text, browser, tmp_path)


def text_of(page: Any, selector: str) -> str:
    text: str = page.locator(selector).inner_text()
    return text


def texts_of(page: Any, selector: str) -> list[str]:
    texts: list[str] = page.locator(selector).all_inner_texts()
    return texts


def count(page: Any, selector: str) -> int:
    n: int = page.locator(selector).count()
    return n


def press(page: Any, button: str) -> None:
    """Press a button by the keyboard, given its name or a part of it."""
    page.get_by_role("button", name=button).press("Enter")


def step_forward(page: Any) -> None:
    page.get_by_role("button", name="Forward", exact=True).press("Enter")


def percent(log_prob: float) -> str:
    """A probability as the pages write it."""
    value = 100 * math.exp(log_prob)
    n_digits = 0 if value >= 99.95 else 1
    return f"{value:.{n_digits}f}\N{NO-BREAK SPACE}%"


def sections_of(page: Any) -> list[str]:
    """The ids of the sections that are shown, in order."""
    sections = page.locator("main section:visible").all()
    return [section.get_attribute("id") for section in sections]


# --- reports ------------------------------------------------------------------------------------------------


@each_screen
def test_the_report_is_accessible(show: Show, five_run: FiveRun, screen: dict[str, Any]) -> None:
    text = report.as_page([read_report(five_run.run)] * 2)
    with show(text, **screen) as page:
        sections = [section for section in sections_of(page) if section != "warnings"]
        assert sections == ["curves", "samples", "settings"]
        assert count(page, "#charts svg") == 8
        # Minutes are the x axis instead of steps.
        press(page, "By minutes")
        page.locator("#charts svg").first.press("ArrowRight")
        assert texts_of(page, "#charts output")[0].startswith("minute ")
        check_accessible(page)


def test_values_that_would_flatten_a_curve_are_cut_off(show: Show, five_run: FiveRun) -> None:
    """A model that diverges has a perplexity of 44 digits; a clock that jumps gives an endless speed."""
    found = read_report(five_run.run)
    found["curves"]["tokens_per_s"][0] = 1e9
    # Eight validations as usual, and one that diverges.
    first = found["validations"][0]
    perplexities = [5.0] * 8 + [math.exp(100)]
    found["validations"] = []
    for step, perplexity in enumerate(perplexities, 1):
        found["validations"].append({**first, "step": step, "dev_perplexity": perplexity})
    with show(report.as_page([found])) as page:
        titles = texts_of(page, "#charts h3")
        notes = dict(zip(titles, texts_of(page, "#charts output"), strict=True))
        assert notes["Dev perplexity"] == "1 is perfect; highest value, above the chart: 2.7e43"
        assert notes["Speed"].endswith("highest value, above the chart: 1.0e9")
        page.locator("summary").first.click()
        assert "2.688e+43" in page.locator("details table").first.inner_text()


# --- comparisons --------------------------------------------------------------------------------------------


def comparison_of(systems: list[list[str]], references: list[str]) -> compare.Comparison:
    settings = choose_settings("", [references])
    test_set = EvaluationSet("x", [], [references], settings)
    return compare.compare(["a", "b"], systems, test_set, n_trials=200)


def verdict_of(show: Show, comparison: compare.Comparison) -> str:
    with show(compare.as_page(comparison)) as page:
        return text_of(page, "#verdict")


def test_equal_systems_are_not_called_worse(show: Show) -> None:
    lines = [f"the number {n} is one of many numbers" for n in range(40)]
    upper = [line.upper() for line in lines]
    verdict = verdict_of(show, comparison_of([lines, upper], lines))
    assert "BLEU: B is worse than A by 99.65" in verdict
    assert "TER: no difference between B and A." in verdict


@each_screen
def test_the_comparison_is_drawn_and_accessible(show: Show, screen: dict[str, Any]) -> None:
    test_set = EvaluationSet("the five pairs", SOURCE, [TARGET], ScoreSettings())
    # One line differs, one has markup, and all are in another order.
    baseline = [*TARGET[:4], "4"]
    with_markup = ["I read <b>books</b> yesterday .", *TARGET[1:]]
    systems = [baseline, with_markup, TARGET[::-1]]
    comparison = compare.compare(["runs/a", "b", "c"], systems, test_set, n_trials=50)
    with show(compare.as_page(comparison), **screen) as page:
        assert sections_of(page) == ["scores", "lines"]
        assert count(page, "#score-table tbody tr") == 3 * 3
        assert "BLEU: " in text_of(page, "#verdict")
        assert count(page, "main svg") == 1
        assert "read" in texts_of(page, ".sides u")
        assert texts_of(page, "#lines b")[0] == SOURCE[4], "it differs most"
        check_accessible(page)


# --- checks -------------------------------------------------------------------------------------------------


@each_screen
def test_the_page_of_a_check_shows_all_findings(show: Show, tmp_path: Path, screen: dict[str, Any]) -> None:
    source = (ZH_EN / "train.zh").read_text("utf-8").splitlines()[:1000]
    target = (ZH_EN / "train.en").read_text("utf-8").splitlines()[:1000]
    # A line less on one side, and one that tries to be code.
    del target[500]
    target[20] = "<script>document.title = 'bad'</script> &amp;"
    files = CorpusFiles("train", [tmp_path / "train.zh"], [tmp_path / "train.en"])
    files.source[0].write_text("\n".join(source), encoding="utf-8")
    files.target[0].write_text("\n".join(target), encoding="utf-8")
    findings = check([files], ("zh", "en"))
    text = pages.page("check", "nmt check", as_plain(findings))
    with show(text, **screen) as page:
        assert page.title() == "nmt check"
        assert sections_of(page) == ["overview", "errors", "warnings", "notes", "files"]
        assert count(page, "#finding-table tbody tr") == len(findings.findings)
        assert count(page, ".finding") == len(findings.findings)
        assert "different numbers of lines" in text_of(page, "#error-list")
        assert "<script>" in text_of(page, "#warning-list")
        check_accessible(page)


# --- explanations -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def explained(five_run: FiveRun) -> Explanation:
    translator = load(five_run.run)
    return explain(translator, SOURCE[0], reference=TARGET[1])


@pytest.fixture
def opened(show: Show, explained: Explanation, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page of an explanation."""
    options = getattr(request, "param", {})
    with show(as_page(explained), **options) as page:
        yield page


def test_every_section_is_there(opened: Any) -> None:
    assert text_of(opened, "#translation") == TARGET[0]
    assert sections_of(opened) == SECTIONS
    for section in SECTIONS:
        assert count(opened, f"#{section} svg, #{section} table") > 0, section
    result = count(opened, "#one-pass-table tbody tr")
    assert result == count(opened, ".token")
    assert count(opened, ".stage svg") == count(opened, ".stage") > 30


def test_a_piece_shows_its_alternatives(opened: Any) -> None:
    second = opened.locator(".token").nth(1)
    second.click()
    assert second.get_attribute("aria-pressed") == "true"
    assert "(written)" in text_of(opened, "#choices tbody")


@opened_on_each_screen
@pytest.mark.parametrize("part", ["Decoder to source", "Within the source", "Within the translation"])
def test_no_head_of_the_overview_is_cut_off(opened: Any, part: str) -> None:
    press(opened, part)
    overview = opened.locator("#overview")
    n_heads = 2 * 4
    result = overview.get_by_role("button").count()
    assert result == 1 + n_heads
    assert overview.evaluate("box => box.scrollWidth <= box.clientWidth")


@pytest.fixture
def head(opened: Any) -> Any:
    """The page with a head of the decoder's self-attention."""
    opened.get_by_role("button", name="Within the translation").click()
    opened.get_by_role("button", name="Layer 2, head 3").click()
    return opened


def test_a_head_is_chosen_by_mouse(head: Any) -> None:
    assert text_of(head, "#head-name") == "Layer 2, head 3"
    result = head.get_by_role("button", name="Layer 2, head 3").get_attribute("aria-pressed")
    assert result == "true"


def test_weights_of_a_head_are_read_by_keyboard(head: Any) -> None:
    head.locator("#head-figure svg").press("ArrowRight")
    told = text_of(head, "#head-figure output")
    assert "looks at" in told
    assert told.endswith("with weight 0.00"), "the start sign cannot see what comes after it"


def test_lines_of_a_head_are_read_by_keyboard(head: Any) -> None:
    press(head, "Lines")
    head.locator("#head-figure svg").press("ArrowDown")
    assert "looks at" in text_of(head, "#head-figure output")


def test_the_table_of_a_head_has_weights_that_sum_to_1(head: Any) -> None:
    head.locator("#head-figure summary").click()
    rows = head.locator("#head-figure tbody tr")
    rows.first.wait_for()
    for row in rows.all():
        weights = map(float, texts_of(row, "td.number"))
        assert sum(weights) == pytest.approx(1, abs=0.06), "rounded to two digits"


def test_the_search_is_stepped_through_by_keyboard(opened: Any) -> None:
    slider = opened.get_by_role("slider", name="Step of the search")
    last = int(slider.get_attribute("max"))
    for step in range(2, last + 1):
        slider.press("ArrowRight")
        assert text_of(opened, "#step-name") == f"{step} of {last}"
    assert "finished" in text_of(opened, "#step-table")
    assert TARGET[0] in texts_of(opened, "#hypotheses tbody tr")[0]


@opened_on_each_screen
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
    # The token that was written is shown, too, if it is not among the alternatives.
    expected = list(token.alternatives)
    if token.rank > len(expected):
        expected.append(Choice(token.piece, token.token, token.log_prob))
    rows = lane.locator(".choice:not(.absent)")
    result = texts_of(rows, ".piece")
    assert result == [choice.piece for choice in expected]
    values = [percent(choice.log_prob) for choice in expected]
    assert texts_of(rows, ".value") == values
    bars = rows.locator(".fall").evaluate_all("all => all.map(bar => new DOMMatrix(bar.style.transform).a)")
    probabilities = [math.exp(choice.log_prob) for choice in expected]
    assert bars == pytest.approx(probabilities, abs=1e-5)
    assert text_of(lane, ".choice.written .piece") == token.piece


def test_each_step_shows_the_distribution(opened: Any, explained: Explanation) -> None:
    tokens = explained.translation.tokens
    for t, token in enumerate(tokens, 1):
        assert text_of(opened, "#player-step") == f"Step {t} of {len(tokens)}"
        check_distribution(opened.locator("#step .lane"), token)
        step_forward(opened)


@opened_still
def test_each_step_shows_the_cross_attention(opened: Any, explained: Explanation) -> None:
    cross = explained.attention.cross.mean((0, 1, 2))  # (T, S)
    n_source = cross.size(1)
    for t, weights in enumerate(cross, 1):
        chips = opacities(opened.locator("#map-figure .chip"))
        assert sum(chips[n_source:]) == 2 * t, "tokens read and predicted"
        heat = opacities(opened.locator(".chip .heat"))
        expected = 0.6 * weights / weights.max()
        assert heat[:n_source] == pytest.approx(expected.tolist(), abs=0.02), "weights have 8 bits"
        step_forward(opened)


@opened_still
def test_each_step_shows_the_cache_grow(opened: Any, explained: Explanation) -> None:
    shapes, _ = explained.cache
    figures = opened.locator(".pair svg")
    for t, shape in enumerate(shapes, 1):
        positions, sizes = texts_of(opened, "#step figcaption")[:2]
        assert positions.endswith("1" if t == 1 else f"positions 1 to {t}")
        assert "×".join(map(str, shape)) in sizes
        # Rows of attention weights, and columns of keys.
        rows = opacities(figures.nth(0).locator(".grows"))
        assert rows == sorted(rows, reverse=True)
        columns = opacities(figures.nth(1).locator(".grows"))
        assert sum(rows) == sum(columns) == shape[3] == t
        step_forward(opened)


@opened_still
def test_each_step_shows_the_search(opened: Any, explained: Explanation) -> None:
    n_steps = len(explained.translation.tokens)
    for t in range(1, n_steps + 1):
        at_step = [node for node in explained.tree if node.position == t]
        live = [node for node in at_step if node.status != "pruned"]
        scores = sorted((node.score for node in live), reverse=True)
        best = [f"{score:.3f}" for score in scores[:5]]
        assert texts_of(opened, ".picked td.number") == best
        # The last step shows the whole tree.
        shown = [node for node in explained.tree if node.position <= t or t == n_steps]
        assert count(opened, "#map-tree .node:visible") == len(shown)
        step_forward(opened)


def test_a_step_moves(opened: Any) -> None:
    step_forward(opened)
    assert opened.evaluate("document.getAnimations().length") > 0


@opened_still
def test_a_step_does_not_move_if_motion_is_reduced(opened: Any) -> None:
    step_forward(opened)
    assert opened.evaluate("document.getAnimations().length") == 0


def test_another_piece_shows_how_far_the_search_followed_it(opened: Any, explained: Explanation) -> None:
    best = next(node for node in explained.tree if node.is_best)
    after_best = [node for node in explained.tree if node.parent == best.index]
    siblings = {node.token for node in after_best}
    step_forward(opened)
    for i, choice in enumerate(explained.translation.tokens[1].alternatives):
        opened.locator(".choice").nth(i).click()
        is_absent = "not among the candidates" in text_of(opened, ".picked")
        assert is_absent == (choice.token not in siblings)


@pytest.mark.parametrize("way", ["Teacher forcing", "One pass"])
def test_two_ways_stand_beside_each_other(opened: Any, explained: Explanation, way: str) -> None:
    assert explained.reference
    left, right = explained.reference.tokens, explained.greedy.tokens
    if way == "One pass":
        left, right = explained.one_pass.tokens, explained.translation.tokens
    opened.locator("#ways").get_by_role("button", name=way).click()
    lanes = opened.locator("#step .lane")
    for left_token, right_token in zip(left, right, strict=False):
        check_distribution(lanes.nth(0), left_token)
        check_distribution(lanes.nth(1), right_token)
        step_forward(opened)


def test_layers_fold_and_unfold(opened: Any) -> None:
    press(opened, "decoder: fold Layer 1")
    assert count(opened, "[data-box='decoder self-attention']") == 0
    press(opened, "Decoder: Layer 1")
    assert count(opened, "[data-box='decoder self-attention']") == 1


@pytest.mark.parametrize("key", ["Enter", " "])
@opened_on_each_screen
def test_boxes_open_by_keyboard(opened: Any, explained: Explanation, key: str) -> None:
    shapes = defaultdict(list)
    for stage in explained.stages:
        shape = "×".join(map(str, stage.shape))
        shapes[f"{stage.part} {stage.box}"].append(shape)
    # A box has a figure per tensor, that of a layer one per head.
    n_figures = {box: len(of_box) for box, of_box in shapes.items()}
    n_figures |= {"encoder layer": 4, "decoder layer": 2 * 4}
    all_boxes = opened.locator("[data-box]").all()
    boxes = {box.get_attribute("data-box"): box for box in all_boxes}
    assert sorted(boxes) == sorted(n_figures)
    for box_name, box in boxes.items():
        box.press(key)
        sizes = texts_of(opened, "#box h4 code")
        told = [text.split(" = ")[1] for text in sizes]
        assert told == shapes.get(box_name, [])
        assert count(opened, "#box svg") == n_figures[box_name]
        assert count(opened, "#box pre") > 0
        opened.keyboard.press("Escape")
        assert box.evaluate("box => box === document.activeElement")


@pytest.fixture
def map_of(show: Show, request: pytest.FixtureRequest) -> Iterator[Any]:
    """The page of an explanation by an untrained model of the given settings."""
    explanation = explain(translator_without_bytes(**request.param), "a cat sleeps", beam=2)
    with show(as_page(explanation)) as page:
        yield page


def labels_of(page: Any) -> str:
    labels: str = page.locator("svg.map").evaluate("map => map.textContent")
    return labels


@pytest.mark.parametrize("map_of", [TRANSFORMERS[-1]], indirect=True, ids=name)
def test_the_map_of_a_transformer_names_what_is_set(map_of: Any) -> None:
    labels = labels_of(map_of)
    assert labels.count("Add & norm") == 5
    assert labels.count("learned positions") == 2
    assert "both directions" not in labels
    assert count(map_of, ".map .arrow.memory") == 2
    map_of.locator("[data-box='output logits']").press("Enter")
    label = map_of.locator("svg.map").get_attribute("aria-label")
    page = f"{text_of(map_of, 'body')} {label}"
    for words in ("figure 1", "Vaswani", "section", "of the paper"):
        assert words in page
    result = sections_of(map_of)
    assert result == [section for section in SECTIONS if section != "reference"]
    check_accessible(map_of)


@pytest.mark.parametrize("map_of", [{"positions": "rotary", "n_decoder_layers": 3}], indirect=True, ids=name)
def test_each_layer_of_the_decoder_reads_the_memory(map_of: Any) -> None:
    assert count(map_of, ".map .arrow.memory") == 2, "layers 2 and 3 are one box"
    press(map_of, "Decoder: Layers 2–3")
    assert count(map_of, ".map .arrow.memory") == 3
    labels = labels_of(map_of)
    assert "Add & norm" not in labels, "pre-norm"
    assert "learned positions" not in labels
    check_accessible(map_of)


@pytest.mark.parametrize(("map_of", "n_arrows"), [(RNNS[0], 0), (RNNS[2], 1)], indirect=["map_of"], ids=str)
def test_the_map_of_a_recurrent_model_is_not_that_of_the_paper(map_of: Any, n_arrows: int) -> None:
    """Its decoder reads the memory if it has attention."""
    assert count(map_of, ".map .arrow.memory") == n_arrows
    absent = {"reference"} if n_arrows else {"attention", "reference"}
    result = sections_of(map_of)
    assert result == [section for section in SECTIONS if section not in absent]
    assert labels_of(map_of).count("both directions") == 2
    map_of.locator("[data-box='output logits']").press("Enter")
    label = map_of.locator("svg.map").get_attribute("aria-label")
    page = f"{text_of(map_of, 'body')} {label}"
    for words in ("figure 1", "Vaswani", "section", "of the paper"):
        assert words not in page
    check_accessible(map_of)


def check_printed(show: Show, text: str) -> None:
    """A printed page is not wider than the paper, and shows pieces and heads, but no controls."""
    with show(text, viewport=PAPER) as page:
        page.emulate_media(media="print")
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        assert count(page, ".token") == count(page, ".token:visible")
        assert count(page, ".overview-row svg") == count(page, ".overview-row svg:visible")
        assert count(page, "input:visible, output:visible") == 0


def test_a_report_can_be_printed(show: Show, five_run: FiveRun) -> None:
    check_printed(show, report.as_page([read_report(five_run.run)]))


def test_an_explanation_can_be_printed(show: Show, explained: Explanation) -> None:
    check_printed(show, as_page(explained))


@each_screen
def test_a_translation_from_right_to_left(show: Show, arabic_run: FiveRun, screen: dict[str, Any]) -> None:
    translator = load(arabic_run.run)
    explanation = explain(translator, SOURCE[1], reference=ARABIC[1])
    text = as_page(explanation)
    with show(text, **screen) as page:
        first = page.locator(".token").nth(0).bounding_box()
        second = page.locator(".token").nth(1).bounding_box()
        end_of_second = second["x"] + second["width"]
        assert first["x"] >= end_of_second - 1, "the first piece stands on the right"
        check_accessible(page, "#words")
