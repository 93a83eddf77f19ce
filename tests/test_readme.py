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
PAGES = [README]
for folder in FOLDERS:
    pages = sorted(folder.rglob("*.md"))
    PAGES += [page for page in pages if "downloads" not in page.parts]
FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SPAN = re.compile(r"(`+)(?!`)(.+?)(?<!`)\1(?!`)")
LINK = re.compile(r"\]\(([^)\s]+)\)")
ATTRIBUTE = re.compile(r'(?:src|srcset|href)="([^"]+)"')
COMMANDS = typer.main.get_command(app).commands  # type: ignore[attr-defined]
NAMED_SETTING = re.compile(r"(data|tokenizer|model|train|decode)\.[a-z_]+")
FILE = re.compile(r"\w+\.(de|en|zh|log|json|safetensors)")  # train.de is a file, train.lr a setting
OTHER_OPTIONS = {"--help", "--array"}  # the latter is sbatch's
RUN = ("align", "check", "config", "eval", "explain", "info", "report", "score", "translate")
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


def without_blocks(page: Path) -> str:
    """The text of a page without its blocks of code."""
    return FENCE.sub("", text_of(page))


def blocks(page: Path, *languages: str) -> list[str]:
    all_blocks = FENCE.findall(text_of(page))
    return [body for language, body in all_blocks if language in languages]


def shell_lines(page: Path) -> list[str]:
    """The lines of shell blocks and of indented code, with continued lines joined."""
    indented = re.findall(r"^    .+$", without_blocks(page), re.MULTILINE)
    code = "\n".join(blocks(page, "sh") + indented)
    return code.replace("\\\n", " ").splitlines()


def spans(page: Path) -> list[str]:
    return [span for _, span in SPAN.findall(without_blocks(page))]


def commands_in(lines: list[str], in_text: bool) -> list[Shown]:
    commands = []
    for line in lines:
        commands += commands_of(line, in_text)
    return commands


def commands_of(line: str, in_text: bool) -> list[Shown]:
    """Return each `nmt COMMAND` of a shell line."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True  # only at blanks, | & ; < and >
    try:
        words = list(lexer)
    except ValueError:
        assert in_text, line
        return []
    # 1. Split the line into calls, at |, && and ;.
    calls: list[list[str]] = [[]]
    for word in words:
        if re.fullmatch("[|&;]+", word):
            calls.append([])
        else:
            calls[-1].append(word)
    # 2. Take what follows nmt in each call, which may begin with variables or torchrun.
    shown = []
    for call in calls:
        programs = [Path(word).name for word in call]
        if "nmt" in programs[:-1]:
            command, *args = call[programs.index("nmt") + 1 :]
            if re.fullmatch("[a-z]+", command):
                shown.append(shown_of(command, args, in_text))
    return shown


def shown_of(command: str, words: list[str], in_text: bool) -> Shown:
    """Take redirections out of the words behind a command."""
    args, files = [], {}
    iterator = iter(words)
    for word in iterator:
        if word in ("<", ">"):
            files[word] = next(iterator)
        else:
            args.append(word)
    return Shown(command, tuple(args), files.get("<"), in_text)


def fault_of(shown: Shown) -> str:
    """Return what nmt says against a command; empty if it accepts it."""
    if shown.command not in COMMANDS:
        return "no such command"
    try:
        COMMANDS[shown.command].make_context(shown.command, list(shown.args))
    except USAGE_ERROR as error:
        message: str = error.format_message()
        is_incomplete = message.startswith(("Missing argument", "Missing option"))
        if not (shown.in_text and is_incomplete):
            return message
    return ""


def targets(page: Path) -> list[str]:
    """Return the targets of a page's links and pictures, without web links."""
    # What looks like a link in code is none.
    prose = SPAN.sub("", without_blocks(page))
    all_targets = LINK.findall(prose) + ATTRIBUTE.findall(prose)
    return [target for target in all_targets if not target.startswith(("http://", "https://"))]


def anchors(page: Path) -> set[str]:
    """Return the anchors that GitHub makes for the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", without_blocks(page), re.MULTILINE)
    return set(map(anchor_of, headings))


def anchor_of(heading: str) -> str:
    words = re.sub(r"[^\w\- ]", "", heading.lower())
    return words.replace(" ", "-")


@cache
def options() -> set[str]:
    """Return every option of nmt and of the programs beside it."""
    # Those of nmt, and those that the programs beside it declare.
    names = {*OTHER_OPTIONS}
    for command in COMMANDS.values():
        for parameter in command.params:
            names.update(parameter.opts, parameter.secondary_opts)
    for folder in FOLDERS:
        for file in folder.rglob("*.py"):
            names.update(re.findall(r'add_argument\([^)]*?"(--[a-z-]+)"', text_of(file)))
    return names


def test_the_figure_of_the_imports_is_current() -> None:
    assert draw() in text_of(MAP), "run: python tests/draw_rooms.py"


def test_the_map_names_every_module() -> None:
    """nmt/README.md links each module, or else its package."""
    linked = linked_files(MAP)
    for file in MAP.parent.rglob("*.py"):
        if not file.stem.startswith("__"):
            assert file in linked or file.parent in linked, file


def linked_files(page: Path) -> set[Path]:
    files = set()
    for target in targets(page):
        path, _, _anchor = target.partition("#")
        files.add((page.parent / path).resolve())
    return files


@every_page
def test_every_relative_link_resolves(page: Path) -> None:
    for target in targets(page):
        path, _, anchor = target.partition("#")
        file = page.parent / path if path else page
        assert file.exists(), target
        assert not anchor or anchor in anchors(file), target


def test_every_page_is_linked() -> None:
    unlinked = set(PAGES)
    for page in PAGES:
        unlinked -= linked_files(page)
    assert unlinked == {README}


@every_page
def test_every_command_is_one_that_nmt_accepts(page: Path) -> None:
    """Its name, its options, the values that they take, and the number of its arguments."""
    for shown in commands_in(shell_lines(page), in_text=False) + commands_in(spans(page), in_text=True):
        assert fault_of(shown) == "", shown


@every_page
def test_every_option_shown_by_itself_exists(page: Path) -> None:
    for span in spans(page):
        option = re.match(r"--[a-z-]+", span)
        assert option is None or option[0] in options(), span


@every_page
def test_every_setting_exists(page: Path) -> None:
    shown = []
    for span in spans(page):
        if NAMED_SETTING.fullmatch(span) and not FILE.fullmatch(span):
            shown.append(span)
    for line in shell_lines(page) + spans(page):
        shown += re.findall(r"(?<![\w/.-])([a-z]+\.[a-z_.]+)=", line)
    keys = "".join(f" {setting.key}." for setting in settings())
    for key in shown:  # a setting, or a section of settings
        assert f" {key}." in keys, key


@every_page
def test_every_make_target_exists(page: Path) -> None:
    known = re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE)
    for line in shell_lines(page) + spans(page):
        call, _, _comment = line.strip().partition("  #")
        if call.startswith("make "):
            _, *words = shlex.split(call)
            names = [word for word in words if "=" not in word]
            assert set(names) <= set(known)


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
        text = block.replace("runs/mine", str(five_run.run))
        code = compile(text, str(page), "exec")
        if "import nmt" in block:
            for name in re.findall(r"\bnmt\.(\w+)", block):
                assert hasattr(nmt, name)
            exec(code, {})


MEMORY = "<tmx><tu><tuv lang='zh'><seg>Hund</seg></tuv><tuv lang='en'><seg>dog</seg></tuv></tu></tmx>"
DOCUMENT = "<w:document xmlns:w='w'><w:p><w:r><w:t>Hund</w:t></w:r></w:p></w:document>"


@pytest.fixture(scope="module")
def desk(five_run: FiveRun, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the commands of pages name."""
    home = tmp_path_factory.mktemp("desk")
    (home / "mine.yaml").write_bytes(five_run.config.read_bytes())
    five_run.copy_run(home / "runs" / "mine")
    (home / "mine-ct2").symlink_to("runs/mine")  # in place of an export
    for stem in ("text", "train", "dev", "test", "new", "a", "mono", "sampled"):
        shutil.copy(five_run.source_file, home / f"{stem}.de")
        shutil.copy(five_run.target_file, home / f"{stem}.en")
    (home / "letters").mkdir()
    for part in ("new.de.000", "new.de.001", "new.de.002", "letter.txt", "letters/a.txt"):
        shutil.copy(five_run.source_file, home / part)
    (home / "terms.tsv").write_text("Hund\thound\n")
    (home / "shop.csv").write_text("id,description,de,en\n1,Hund,Hund,\n")
    (home / "film.srt").write_text("1\n00:00:01,000 --> 00:00:02,000\nHund\n")
    for name in ("app", "new", "messages"):
        (home / f"{name}.po").write_text('msgid "Hund"\nmsgstr ""\n')
    for name in ("memory", "project", "big", "gnome"):
        (home / f"{name}.tmx").write_text(MEMORY)
    with zipfile.ZipFile(home / "report.docx", "w") as archive:
        archive.writestr("word/document.xml", DOCUMENT)
    return home


@every_page
def test_the_cheap_commands_of_shell_blocks_run(page: Path, desk: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BROWSER", "true")  # --open opens nothing
    for shown in commands_in(shell_lines(page), in_text=False):
        needs_download = " configs/" in str(shown)
        if shown.command not in RUN or needs_download:
            continue
        for run in re.findall(r"runs/[\w-]+", str(shown)):
            if not (desk / run).exists():
                (desk / run).symlink_to("mine")
        stdin = (desk / shown.stdin).read_bytes() if shown.stdin else None
        done = run_nmt(shown.command, *shown.args, cwd=desk, input=stdin)
        # `check` may find faults.
        allowed = [0, 1] if shown.command == "check" else [0]
        assert done.returncode in allowed, f"{shown}: {done.stderr.decode()}"
