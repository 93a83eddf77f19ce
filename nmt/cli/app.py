"""The entry point: registers the commands, catches errors, sets the exit code.

Exit codes: 0 success; 1 failure; 2 an error in the user's files, config or arguments; 130 Ctrl-C; 143 SIGTERM. If the
reader of stdout closes the pipe, the command ends with 0 and prints no error.
"""

import contextlib
import functools
import inspect
import io
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer

from nmt import __version__
from nmt.cli.align import align
from nmt.cli.check import check
from nmt.cli.compare import compare
from nmt.cli.config import config
from nmt.cli.download import download
from nmt.cli.evaluate import evaluate
from nmt.cli.explain import explain
from nmt.cli.export import export
from nmt.cli.import_ import import_
from nmt.cli.info import info
from nmt.cli.init import init
from nmt.cli.next_step import next_step
from nmt.cli.prune import prune
from nmt.cli.report import report
from nmt.cli.score import score
from nmt.cli.serve import serve
from nmt.cli.streams import printable, set_up_logging
from nmt.cli.sweep import sweep
from nmt.cli.tokenize import tokenize
from nmt.cli.train import train
from nmt.cli.translate import translate
from nmt.distributed import launched
from nmt.errors import ConfigError, DivergedError, InputError, LostRankError, NmtError, OutputError, StoppedError
from nmt.processes import set_environment_variables

USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # click's UsageError; typer may bundle its own click
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class Group(typer.core.TyperGroup):
    """The commands of `nmt`, listed by panel."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ARG002 - as in the base class
        width = max(map(len, self.commands))
        for panel, functions in PANELS.items():
            commands = [self.commands[name_of(function)] for function in functions]
            helps = [command.get_short_help_str(formatter.width - width - 4) for command in commands]
            with formatter.section(panel):
                formatter.write_dl([(str(c.name).ljust(width), text) for c, text in zip(commands, helps, strict=True)])


def with_shared_options(function: Callable[..., None]) -> Callable[..., None]:
    """A command with the options -q and -v, and --threads if it has a --device; they take effect before it runs."""

    @functools.wraps(function)
    def command(*, threads: int = 0, quiet: bool, verbose: bool, **options: Any) -> None:
        set_up_logging(quiet, verbose)
        set_environment_variables(threads)
        if launched().n_ranks > 1 and function is not train:
            raise InputError("torchrun is for nmt train only", hint="start a command for each part of a file instead")
        function(**options)

    signature, kind = inspect.signature(function), inspect.Parameter.KEYWORD_ONLY
    flags: dict[str, Any] = {"threads": Threads} if "device" in signature.parameters else {}
    flags |= {"quiet": Quiet, "verbose": Verbose}
    added = [inspect.Parameter(name, kind, default=0, annotation=flag) for name, flag in flags.items()]
    command.__signature__ = signature.replace(parameters=[*signature.parameters.values(), *added])  # type: ignore[attr-defined]
    command.__annotations__ = {**function.__annotations__, **flags}
    return command


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 keeps torch's default.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")]
Version = Annotated[bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")]
PANELS: dict[str, tuple[Callable[..., None], ...]] = {  # the groups of `nmt --help`, in its order
    "Learn": (train, translate, evaluate, explain),
    "Data": (download, check, init, tokenize),
    "Models": (compare, score, align),
    "Runs": (config, sweep, report, info, prune),
    "Formats": (export, import_),
    "Serve": (serve,),
}


def name_of(function: Callable[..., None]) -> str:
    """The name of a command, which cannot be that of a function if that is a keyword or a builtin of Python."""
    return {evaluate: "eval", import_: "import"}.get(function, function.__name__)


# Plain text: rich would take another 0.08 s, and squeezes the options of a command into columns.
app = typer.Typer(cls=Group, no_args_is_help=True, add_completion=False, rich_markup_mode=None, context_settings=HELP)
for commands in PANELS.values():
    for command in commands:
        app.command(name_of(command))(with_shared_options(command))


@app.callback()
def nmt(version: Version = False) -> None:
    """Train translation models and translate with them.

    A run: nmt train CONFIG, then nmt translate < in > out, then nmt eval. All settings of CONFIG: nmt config.
    """


def main() -> None:
    for stream in (sys.stdout, sys.stderr):  # UTF-8 and \n on every system
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:  # app() would handle closed pipes, usage errors and EOFError itself
        with typer.main.get_command(app).make_context("nmt", sys.argv[1:]) as context:
            context.command.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except USAGE_ERROR as error:
        if error.format_message().startswith("Usage: "):  # `nmt` without arguments prints its help
            error.show()
            if suggestion := next_step():
                print(f"\nNext: {printable(suggestion)}", file=sys.stderr)
            sys.exit(2)
        path = error.ctx.command_path if error.ctx else "nmt"
        message = " ".join(error.format_message().split())
        fail(InputError(message, hint=usage_hint(path, message)))
    except BrokenPipeError:
        close_stdout()
    except NmtError as error:
        fail(error)
    except OSError as error:
        if error.errno is None:
            raise
        if error.filename is not None:  # for example a name that is too long, or no access
            fail(InputError(f"cannot use {error.filename}: {error.strerror}", hint="check the path and permissions"))
        fail(OutputError(f"cannot write the output: {error.strerror}", hint="check that the disk is not full"))


def usage_hint(path: str, message: str) -> str:
    """What to do about wrong arguments of a command, such as `nmt translate`, whose TEXT is easily mistaken."""
    if path == "nmt translate" and "extra argument" in message:
        return "put a sentence in quotes; to translate several documents, give their folder"
    dash = "; put -- before a TEXT that begins with a dash" if path == "nmt translate" else ""
    return f"`{path} --help` lists what is allowed{dash}"


def fail(error: NmtError) -> NoReturn:
    """Print each line of the message, then the hint, and exit with the error's code."""
    rank = 0
    with contextlib.suppress(ConfigError):  # `error` may be the ConfigError that launched() raises
        rank = launched().rank
    if rank == 0 or not isinstance(error, (DivergedError, LostRankError, StoppedError)):  # all ranks raise these
        prefix = f"nmt: error: rank {rank}: " if rank else "nmt: error: "
        lines = [prefix + line for line in error.lines] + [f"hint: {error.hint}"] * bool(error.hint)
        print(*map(printable, lines), sep="\n", file=sys.stderr)
        close_stdout()
    sys.exit(error.exit_code)


def close_stdout() -> None:
    """Flush stdout if possible, then redirect it to /dev/null, so that Python's flush at exit does not fail again."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
