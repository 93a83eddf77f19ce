"""Every page of the project: its links, and the commands, options, settings and code that it shows."""

import re
import shlex
import shutil
import zipfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest
import typer
from conftest import FiveRun, run_nmt
from draw_rooms import MAP, draw

import nmt
from nmt.cli.app import USAGE_ERROR, app
from nmt.config import load_config, settings

ROOT = Path(__file__).parents[1]
README = ROOT / "README.md"
FOLDERS = [ROOT / name for name in ("configs", "data", "nmt", "tests")]
FOUND = [page for folder in FOLDERS for page in sorted(folder.rglob("*.md"))]
PAGES = [README, *(page for page in FOUND if "downloads" not in page.parts)]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
SECTIONS = ("data", "tokenizer", "model", "train", "decode")
SUFFIXES = ("de", "en", "zh", "log", "json", "safetensors")  # train.de is a file, train.lr a setting
OTHER_OPTIONS = {"--help", "--array"}  # the latter is sbatch's
RUN = ("align", "check", "config", "eval", "explain", "info", "prune", "report", "score", "translate")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@dataclass(frozen=True)
class Shown:
    """`nmt COMMAND ARGS < STDIN` on a page; in running text, required arguments may be missing."""

    command: str
    args: tuple[str, ...]
    stdin: str | None
    in_text: bool

    def __str__(self) -> str:
        return shlex.join(["nmt", self.command, *self.args])


@cache
def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def blocks(page: Path, *languages: str) -> list[str]:
    return [body for language, body in FENCE.findall(text_of(page)) if language in languages]


def shell_lines(page: Path) -> list[str]:
    """The lines of shell blocks and of indented code, with continued lines joined."""
    indented = re.findall(r"^    .+$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return "\n".join([*blocks(page, "sh"), *indented]).replace("\\\n", " ").splitlines()


def spans(page: Path) -> list[str]:
    return [span for _, span in SPAN.findall(FENCE.sub("", text_of(page)))]


def shown_commands(page: Path) -> list[Shown]:
    lines = [(line, False) for line in shell_lines(page)] + [(span, True) for span in spans(page)]
    return [command for line, in_text in lines for command in commands_of(line, in_text)]


def commands_of(line: str, in_text: bool) -> list[Shown]:
    """Each `nmt COMMAND` of a shell line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        assert in_text, line
        return []
    found = []
    for at, word in enumerate(words[:-1]):
        if Path(word).name == "nmt" and re.fullmatch("[a-z]+", words[at + 1]):
            stop = next((i for i in range(at, len(words)) if re.fullmatch("[|&;]+", words[i])), len(words))
            rest = words[at + 2 : stop]
            files = {i for i, one in enumerate(rest) if i and rest[i - 1] in ("<", ">")}
            args = tuple(one for i, one in enumerate(rest) if one not in ("<", ">") and i not in files)
            stdin = rest[rest.index("<") + 1] if "<" in rest else None
            found.append(Shown(words[at + 1], args, stdin, in_text))
    return found


def fault_of(shown: Shown) -> str:
    """What nmt says against a command; empty if it accepts it."""
    if shown.command not in COMMANDS:
        return "no such command"
    try:
        COMMANDS[shown.command].make_context(shown.command, list(shown.args))
    except USAGE_ERROR as error:
        message: str = error.format_message()
        return "" if shown.in_text and re.match("Missing (argument|option)", message) else message
    return ""


def targets(page: Path) -> list[str]:
    """The targets of a page's links and pictures, without web links."""
    text = SPAN.sub("", FENCE.sub("", text_of(page)))
    found = re.findall(r"\]\(([^)\s]+)\)", text) + re.findall(r'(?:src|srcset|href)="([^"]+)"', text)
    return [target for target in found if not target.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """The anchors that GitHub makes for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", text_of(page)), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@cache
def options() -> set[str]:
    """Every option of nmt and of the programs beside it."""
    own = {name for command in COMMANDS.values() for param in command.params for name in param.opts}
    programs = "".join(file.read_text(encoding="utf-8") for folder in FOLDERS for file in folder.rglob("*.py"))
    return own | OTHER_OPTIONS | set(re.findall(r'add_argument\([^)]*?"(--[a-z-]+)"', programs))


def test_the_figure_of_the_imports_is_current() -> None:
    assert draw() in text_of(MAP), "run: python tests/draw_rooms.py"


def test_the_map_names_every_module() -> None:
    """nmt/README.md links each module, or else its package."""
    linked = {(MAP.parent / target).resolve() for target in targets(MAP)}
    modules = {file for file in MAP.parent.rglob("*.py") if not file.stem.startswith("__")}
    assert sorted(file for file in modules if not {file, file.parent} & linked) == []


@every_page
def test_every_relative_link_resolves(page: Path) -> None:
    broken = []
    for target in targets(page):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        if not file.exists() or (anchor and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


def test_every_page_is_linked() -> None:
    linked = {(page.parent / target.partition("#")[0]).resolve() for page in PAGES for target in targets(page)}
    assert set(PAGES) - linked == {README}


@every_page
def test_every_command_is_one_that_nmt_accepts(page: Path) -> None:
    """Its name, its options, the values that they take, and the number of its arguments."""
    faults = {str(shown): fault for shown in shown_commands(page) if (fault := fault_of(shown))}
    assert not faults


def test_the_faults_of_commands_are_found() -> None:
    line = "A=1 torchrun -m nmt trein a.yaml x.y=1 && .venv/bin/nmt eval --bleu -m 'b c' < in > out | sort  # nmt eval"
    train, evaluate = commands_of(line, in_text=False)
    assert train == Shown("trein", ("a.yaml", "x.y=1"), None, False)
    assert evaluate == Shown("eval", ("--bleu", "-m", "b c"), "in", False)
    assert fault_of(train) == "no such command"
    assert "--bleu" in fault_of(evaluate)
    for line, fault in (("translate --engine best", "best"), ("train", "Missing argument"), ("translate a b", "b")):
        assert fault in fault_of(commands_of(f"nmt {line}", in_text=False)[0])


@every_page
def test_every_option_shown_by_itself_exists(page: Path) -> None:
    assert {found[0] for span in spans(page) if (found := re.match(r"--[a-z-]+", span))} <= options()


@every_page
def test_every_setting_exists(page: Path) -> None:
    lines = [*shell_lines(page), *spans(page)]
    shown = {key for line in lines for key in re.findall(r"(?<![\w/.-])([a-z]+\.[a-z_.]+)=", line)}
    named = {span for span in spans(page) if re.fullmatch(rf"({'|'.join(SECTIONS)})\.[a-z_]+", span)}
    named = {key for key in named if key.partition(".")[2] not in SUFFIXES}
    known = {key[: match.start()] for key, *_ in settings() for match in re.finditer(r"\.|$", key)}
    assert shown | named <= known


@every_page
def test_every_make_target_exists(page: Path) -> None:
    known = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    calls = [line.partition("  #")[0] for line in [*shell_lines(page), *spans(page)]]
    words = [re.sub(r'\w+="[^"]*"', "", call).split()[1:] for call in calls if call.strip().startswith("make ")]
    assert {word for call in words for word in call if "=" not in word} <= known


@every_page
def test_every_config_is_valid(page: Path, tmp_path: Path) -> None:
    for text in blocks(page, "yaml"):
        file = tmp_path / "mine.yaml"
        file.write_text(text, encoding="utf-8")
        assert load_config(file, ["run=runs/mine"]).run == "runs/mine"


@every_page
def test_python_code_runs(page: Path, five_run: FiveRun) -> None:
    """Blocks that import nmt run, with the tests' run instead of runs/mine; the others compile."""
    for block in blocks(page, "python"):
        code = compile(block.replace("runs/mine", str(five_run.run)), str(page), "exec")
        if "import nmt" in block:
            assert set(re.findall(r"\bnmt\.(\w+)", block)) <= set(dir(nmt))
            exec(code, {})


@pytest.fixture(scope="module")
def desk(five_run: FiveRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands of pages name."""
    home = tmp_path_factory.mktemp("desk")
    (home / "mine.yaml").write_bytes(five_run.config.read_bytes())
    five_run.copy_run(home / "runs" / "mine")
    (home / "mine-ct2").symlink_to("runs/mine")  # in place of an export
    for stem in ("text", "train", "test", "new", "a", "mono", "sampled"):
        shutil.copy(five_run.source_file, home / f"{stem}.de")
        shutil.copy(five_run.target_file, home / f"{stem}.en")
    (home / "letters").mkdir()
    for part in ("new.de.000", "new.de.001", "new.de.002", "letter.txt", "letters/a.txt"):
        shutil.copy(five_run.source_file, home / part)
    (home / "terms.tsv").write_text("Hund\thound\n")
    (home / "shop.csv").write_text("id,description\n1,Hund\n")
    (home / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHund\n")
    (home / "app.po").write_text('msgid "Hund"\nmsgstr ""\n')
    with zipfile.ZipFile(home / "report.docx", "w") as archive:
        archive.writestr(
            "word/document.xml", "<w:document xmlns:w='w'><w:p><w:r><w:t>Hund</w:t></w:r></w:p></w:document>"
        )
    return home


@every_page
def test_the_cheap_commands_of_shell_blocks_run(page: Path, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true")  # --open opens nothing
    shown = [one for one in shown_commands(page) if not one.in_text and one.command in RUN]
    for one in shown:
        if any(arg.startswith("configs/") for arg in one.args):
            continue  # needs a corpus that has to be downloaded
        for run in re.findall(r"runs/[\w-]+", str(one)):
            if not (desk / run).exists():
                (desk / run).symlink_to("mine")
        stdin = (desk / one.stdin).read_bytes() if one.stdin else None
        done = run_nmt(one.command, *one.args, cwd=desk, input=stdin)
        found_faults = one.command == "check" and done.returncode == 1
        assert done.returncode == 0 or found_faults, f"{one}: {done.stderr.decode()}"
