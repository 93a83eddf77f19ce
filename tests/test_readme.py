"""README.md: its figure, its links, and the commands, settings and code that it shows."""

import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError
from pathlib import Path

import pytest
from conftest import FiveRun, out_lines, run_nmt
from draw_rooms import BEGIN, END, draw, replace_figure, transitive_reduction

import nmt
from nmt.config import load_config

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_code(text: str) -> str:
    return SPAN.sub("", FENCE.sub("", text))


def targets(page: Path) -> list[str]:
    """The targets of a page's links, without web links."""
    found = re.findall(r"\]\(([^)\s]+)\)", without_code(text_of(page)))
    return [target for target in found if not target.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def linked_pages() -> list[Path]:
    """README.md and every page of the project that its links lead to, directly or not."""
    pages = [README]
    for page in pages:
        linked = ((page.parent / target.partition("#")[0]).resolve() for target in targets(page))
        pages += dict.fromkeys(file for file in linked if file.suffix == ".md" and file.is_file() and file not in pages)
    return pages


def code(*languages: str) -> list[str]:
    """The fenced blocks of README.md in one of these languages; "" selects blocks without a language."""
    return [body for language, body in FENCE.findall(text_of(README)) if language in languages]


def shown_code() -> list[str]:
    """Every line of a shell block, without its comment, and every code span of README.md."""
    lines = [line.partition("  #")[0] for body in code("", "sh") for line in body.splitlines()]
    return lines + [span for _, span in SPAN.findall(FENCE.sub("", text_of(README)))]


@cache
def help_of(command: str) -> str:
    return "\n".join(out_lines(run_nmt(command, "--help")))


def shown_commands() -> Iterator[tuple[str, list[str]]]:
    """Each `nmt COMMAND` that README.md shows, with its options."""
    for line in shown_code():
        for command, rest in re.findall(r"(?<![\w.-])nmt ([a-z]+)([^|&;]*)", line):
            yield command, re.findall(r"(?<!\S)--?[a-z][a-z0-9-]*", re.sub(r'"[^"]*"', "", rest))


# --- the figure -------------------------------------------------------------------------------------------


def test_an_import_that_follows_from_others_is_left_out() -> None:
    imports = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set[str](), "e": {"d"}}
    assert transitive_reduction(imports) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set(), "e": {"d"}}


def test_importers_come_before_what_they_import() -> None:
    imports = {"a": set[str](), "b": {"a"}, "c": {"b", "a"}, "d": {"a"}}
    assert list(transitive_reduction(imports)) == ["c", "b", "d", "a"]


def test_a_cycle_is_an_error() -> None:
    with pytest.raises(CycleError):
        transitive_reduction({"a": {"b"}, "b": {"a"}})


def test_only_the_text_between_the_markers_is_replaced() -> None:
    assert replace_figure(f"x\n{BEGIN}\nold\n{END}\ny\n", "new") == f"x\n{BEGIN}\nnew\n{END}\ny\n"


def test_a_page_without_markers_is_refused() -> None:
    with pytest.raises(ValueError, match="needs the markers"):
        replace_figure("no figure", "new")


def test_the_figure_in_the_readme_is_current() -> None:
    text = text_of(README)
    assert replace_figure(text, draw()) == text, "run: python tests/draw_rooms.py --write README.md"


def test_the_map_names_every_module() -> None:
    """README.md links each module, or else its package; then it links no module of this package."""
    linked = {(ROOT / target).resolve() for target in targets(README)}
    detailed = {file.parent for file in linked if file.suffix == ".py"}
    modules = {file for file in (ROOT / "nmt").rglob("*.py") if not file.stem.startswith("__")}
    covered = {file for file in modules if file.parent in linked - detailed}
    assert sorted(modules - linked - covered) == []


# --- links, commands, settings, code ----------------------------------------------------------------------


@pytest.mark.parametrize("page", linked_pages(), ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for target in targets(page):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def test_every_command_and_option_exists() -> None:
    commands = list(shown_commands())
    assert {"tokenize", "train", "translate", "eval", "export", "config"} <= {command for command, _ in commands}
    for command, options in commands:
        for option in options:
            assert re.search(rf"(?<!\S){option}(?![\w-])", help_of(command)), f"nmt {command} {option}"


def test_every_option_shown_by_itself_exists() -> None:
    helps = "".join(help_of(command) for command, _ in shown_commands())
    for span in shown_code():
        if option := re.match(r"--[a-z-]+", span):
            assert re.search(rf"(?<!\S){option[0]}(?![\w-])", helps), span


def test_every_setting_exists() -> None:
    keys = {line.split()[0] for line in out_lines(run_nmt("config"))}
    shown = {key for span in shown_code() for key in re.findall(r"\b([a-z]+\.[a-z_]+)=", span)}
    assert shown
    assert shown <= keys


def test_every_make_target_exists() -> None:
    known = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    shown = {word for span in shown_code() if span.startswith("make ") for word in span.split()[1:] if "=" not in word}
    assert {"demo", "test", "lint"} <= shown
    assert shown <= known


def test_the_config_shown_is_valid(tmp_path: Path) -> None:
    (text,) = code("yaml")
    file = tmp_path / "mine.yaml"
    file.write_text(text, encoding="utf-8")
    assert load_config(file).run == "runs/mine"


def test_the_python_code_shown_runs(five_run: FiveRun) -> None:
    """Every block that imports nmt runs, with the tests' run instead of runs/mine."""
    blocks = [block for block in code("python") if "import nmt" in block]
    assert blocks
    for block in blocks:
        assert set(re.findall(r"\bnmt\.(\w+)", block)) <= set(dir(nmt))
        exec(compile(block.replace("runs/mine", str(five_run.run)), str(README), "exec"), {})
