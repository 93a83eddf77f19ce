"""The entry point: registers the commands, catches errors, sets the exit code.

Exit codes: 0 done; 1 failed; 2 the user's files, config or arguments; 130 Ctrl-C; 143 SIGTERM. If the reader of stdout
closes the pipe, the command ends quietly with 0.
"""

import contextlib
import io
import os
import sys
from typing import Annotated, NoReturn

import typer

from nmt import __version__
from nmt.cli.config import config
from nmt.cli.evaluate import evaluate
from nmt.cli.explain import explain
from nmt.cli.export import export
from nmt.cli.options import USAGE_ERROR, Command
from nmt.cli.report import report
from nmt.cli.stderr import print_error
from nmt.cli.tokenize import tokenize
from nmt.cli.train import train
from nmt.cli.translate import translate
from nmt.distributed import launched
from nmt.errors import ConfigError, DivergedError, InputError, LostRankError, NmtError, OutputError, StoppedError
from nmt.processes import end_with_parent

app = typer.Typer(
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)


def print_version(wanted: bool) -> None:
    if wanted:
        print(f"nmt {__version__}")
        raise typer.Exit


@app.callback()
def nmt(
    version: Annotated[
        bool, typer.Option("--version", callback=print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """Train translation models and translate with them.

    A run: nmt train CONFIG, then nmt translate < in > out, then nmt eval. All settings of CONFIG: nmt config.
    """


app.command(cls=Command)(tokenize)
app.command(cls=Command)(train)
app.command(cls=Command)(translate)
app.command("eval", cls=Command)(evaluate)
app.command(cls=Command)(explain)
app.command(cls=Command)(export)
app.command(cls=Command)(report)
app.command(cls=Command)(config)


def main() -> None:
    """Run the command line, print errors, exit."""
    for stream in (sys.stdout, sys.stderr):  # UTF-8 and \n on every system
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(encoding="utf-8", errors="backslashreplace", newline="\n")
    if "NMT_WORKER_THREADS" in os.environ:  # set by start_workers
        end_with_parent()
    group = typer.main.get_command(app)
    try:  # not app(), which handles closed pipes, usage errors and EOFError itself
        with group.make_context("nmt", sys.argv[1:]) as context:
            group.invoke(context)
        if sys.stdout is not None:
            sys.stdout.flush()
    except typer.Exit as end:
        sys.exit(end.exit_code)
    except USAGE_ERROR as error:
        if error.format_message().startswith("Usage: "):  # `nmt` without arguments prints its help
            error.show()
            sys.exit(2)
        path = error.ctx.command_path if error.ctx else "nmt"
        dash = "; put -- before a TEXT that begins with a dash" if path == "nmt translate" else ""
        fail(InputError(error.format_message(), hint=f"`{path} --help` lists what is allowed{dash}"))
    except BrokenPipeError:
        discard_stdout()
        sys.exit(0)
    except NmtError as error:
        fail(error)
    except OSError as error:
        if error.errno is None:
            raise
        if error.filename is not None:  # the cause may be an overlong name or a directory without access
            fail(InputError(f"cannot use {error.filename}: {error.strerror}", hint="check the path and permissions"))
        fail(OutputError(f"cannot write the output: {error.strerror}", hint="check that the disk is not full"))


def fail(error: NmtError) -> NoReturn:
    """Print an error and exit with its code."""
    try:
        rank = launched().rank
    except ConfigError:  # perhaps the error to print
        rank = 0
    if rank == 0 or not isinstance(error, (DivergedError, LostRankError, StoppedError)):  # raised by all ranks
        print_error(error, rank)
        with contextlib.suppress(OSError, AttributeError):  # AttributeError: stdout is None, because it is closed
            sys.stdout.flush()
        discard_stdout()
    sys.exit(error.exit_code)


def discard_stdout() -> None:
    """Discard the rest of the output, or Python would try to flush it at exit and fail again."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
