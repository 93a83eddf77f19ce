"""The entry point of the command line. It registers the commands, prints errors and sets the exit code.

Exit codes:
    0: success. A closed pipe on stdout counts as success.
    1: failure.
    2: an error in the user's files, config or arguments.
    130: Ctrl-C.
    143: SIGTERM.
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
from nmt.cli.report import report
from nmt.cli.score import score
from nmt.cli.serve import serve
from nmt.cli.streams import printable, set_up_logging
from nmt.cli.tokenize import tokenize
from nmt.cli.train import train
from nmt.cli.translate import translate
from nmt.distributed import launched
from nmt.errors import ConfigError, DivergedError, InputError, LostRankError, NmtError, OutputError, StoppedError
from nmt.processes import set_environment_variables

Command = Callable[..., None]  # the function of a command
USAGE_ERROR: Any = typer.BadParameter.__bases__[0]  # click's UsageError; some versions of typer have their own click
HELP = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


def with_shared_options(function: Command) -> Command:
    """Return a command that runs `function` and also has the options -q and -v.

    A command with --device gets --threads, too.
    """

    @functools.wraps(function)
    def command(*, threads: int = 0, quiet: bool, verbose: bool, **options: Any) -> None:
        # Set the number of threads before torch is imported, because torch reads it from the environment.
        set_up_logging(quiet, verbose)
        set_environment_variables(threads)
        # In any command but `nmt train`, all ranks would write the same output.
        if launched().n_ranks > 1 and function is not train:
            raise InputError("torchrun is for nmt train only", hint="start a command for each part of a file instead")
        function(**options)

    # Typer reads the options of a command from the signature and the annotations of its function.
    signature = inspect.signature(function)
    added: dict[str, Any] = {"quiet": Quiet, "verbose": Verbose}
    if "device" in signature.parameters:
        added = {"threads": Threads, **added}
    parameters = list(signature.parameters.values())
    for name, annotation in added.items():
        parameters.append(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=0, annotation=annotation))
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    command.__annotations__ = function.__annotations__ | added
    return command


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


Threads = Annotated[int, typer.Option(min=0, max=1024, help="CPU threads; 0 keeps torch's default.")]
Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Print only warnings and errors.")]
Verbose = Annotated[bool, typer.Option("--verbose", "-v", help="Print more.")]
# The commands in the order of `nmt --help`: first those that most users need.
COMMANDS: list[Command] = [train, translate, evaluate, explain, download, check, init, tokenize]
COMMANDS += [compare, score, align, config, report, info, export, import_, serve]


def name_of(function: Command) -> str:
    """Return the name of a command. The functions of `eval` and `import` have other names."""
    return {evaluate: "eval", import_: "import"}.get(function, function.__name__)


# The help is plain text, because rich takes 0.08 s to import and squeezes the options into columns.
app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, context_settings=HELP)
for command in COMMANDS:
    app.command(name_of(command))(with_shared_options(command))


@app.callback()
def nmt(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train translation models and translate with them.

    A run: nmt init SRC TGT -o CONFIG for two files of text, nmt train CONFIG, nmt translate < in > out, nmt eval.
    All settings of CONFIG: nmt config.
    """


def main() -> None:
    """Run the command in the arguments, and exit with its exit code."""
    for stream in (sys.stdout, sys.stderr):  # write UTF-8 and \n on every operating system
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    try:  # app() would handle closed pipes, usage errors and EOFError in its own way
        # 1. Run the command.
        with typer.main.get_command(app).make_context("nmt", sys.argv[1:]) as context:
            context.command.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    # 2. Exit with the exit code of the command or of the error.
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except USAGE_ERROR as error:
        fail_usage(error)
    except BrokenPipeError:
        close_stdout()
    except NmtError as error:
        fail(error)
    except OSError as error:
        # An OSError without a number does not come from the operating system, so it is a bug.
        if error.errno is None:
            raise
        if error.filename is not None:
            fail(InputError(f"cannot use {error.filename}: {error.strerror}", hint="check the path and permissions"))
        fail(OutputError(f"cannot write the output: {error.strerror}", hint="check that the disk is not full"))


def fail_usage(error: Any) -> NoReturn:
    """Print what is wrong with the arguments and how to correct them. Without arguments, print the help."""
    message = " ".join(error.format_message().split())
    # There are no arguments.
    if message.startswith("Usage: "):
        error.show()
        sys.exit(2)
    command = error.ctx.command_path if error.ctx else "nmt"
    hint = f"`{command} --help` lists what is allowed"
    # Mistakes in the TEXT of `nmt translate` are common.
    if command == "nmt translate":
        hint += "; put -- before a TEXT that begins with a dash"
        if "extra argument" in message:
            hint = "put a sentence in quotes; to translate several documents, give their folder"
    fail(InputError(message, hint=hint))


def fail(error: NmtError) -> NoReturn:
    """Print an error and its hint, and exit with the error's exit code."""
    rank = 0
    with contextlib.suppress(ConfigError):  # launched() fails again if `error` came from it
        rank = launched().rank
    # All ranks raise these errors, but only the first rank prints them.
    if rank and isinstance(error, (DivergedError, LostRankError, StoppedError)):
        sys.exit(error.exit_code)
    # Print all lines in one call, so that the lines of several ranks do not mix.
    prefix = f"nmt: error: rank {rank}: " if rank else "nmt: error: "
    lines = [prefix + line for line in error.lines]
    if error.hint:
        lines.append(f"hint: {error.hint}")
    print(*map(printable, lines), sep="\n", file=sys.stderr)
    close_stdout()
    sys.exit(error.exit_code)


def close_stdout() -> None:
    """Flush stdout, then redirect it to /dev/null, so that Python's flush at exit cannot fail."""
    if sys.stdout is not None:
        with contextlib.suppress(OSError):
            sys.stdout.flush()
        # Do not close the descriptor, because a file that is opened later could get its number.
        with Path(os.devnull).open("wb") as nowhere:
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
