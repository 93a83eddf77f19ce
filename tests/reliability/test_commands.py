"""Random command lines of every command, over files that nobody expects: one clear error, and only -o is written."""

import ctypes
import os
import random
import resource
import shlex
import signal
import stat
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

import pytest
import typer
from conftest import FORKS, FiveRun, soak, write_five

from nmt.cli.app import COMMANDS, app, name_of

from .hostile import HOSTILE
from .load_all import limit_data
from .runs import Command, run_main

FIRST_SEED = int(os.environ.get("NMT_SOAK_SEED", 1))
N_LINES = soak(8, int(os.environ.get("NMT_SOAK_LINES", 2_000)))
ODD = os.fsdecode(b"odd\n\x1b[31m\xff\xe2\x80\xae")  # a line end, a color, a bad byte, right to left
WORDS: dict[str, Any] = HOSTILE["commands"]
DEFAULTS: dict[str, list[str]] = WORDS["defaults"]
OUTPUTS = ("output", "html", "fix")
STOP_S, HANG_S = 30, 240  # after which a server is stopped, and a command that still runs hangs

# --- the folder in which a command line runs --------------------------------------------------------------


def special(text: str) -> str:
    for word, long in {"LONG": "x" * 9000, "BAD": "\udcff", "ODD": ODD}.items():
        text = text.replace(word, long)
    return text


def build(home: Path, five: FiveRun) -> None:
    """Make the folder in which a command line runs."""
    for folder in ("runs", "full", "bare", "read-only", "../outside"):
        (home / folder).mkdir(parents=True)

    # 1. What can be trained: five pairs, many pairs, a run.
    write_five(home)
    five.copy_run(home / "runs/five")
    config = (home / "five.yaml").read_text()
    config = config.replace("200", "3").replace(": 100", ": 2")
    texts = {"five.yaml": config, f"{ODD}.yaml": config}
    texts["big.de"] = "".join(f"a {n} b.\n" for n in range(80))
    texts["big.en"] = texts["big.de"].upper()

    # 2. Other files, precious ones, a large one, a pipe, and links.
    texts |= {special(name): '["你 好 。"]\n' for name in WORDS["one_line"]}
    texts |= dict.fromkeys(WORDS["precious"], "precious")
    for name, text in texts.items():
        (home / name).write_text(text)
    (home / "empty").touch()
    noise = random.Random(1).randbytes(5000)
    (home / "binary").write_bytes(noise)
    (home / "torn.safetensors").write_bytes(five.model_file.read_bytes()[:9000])
    for name in ("huge", "huge.yaml"):
        (home / name).touch()
        os.truncate(home / name, 10**10)
    os.mkfifo(home / "fifo")
    for name, target in WORDS["links"].items():
        (home / special(name)).symlink_to(target)
    (home / "locked").chmod(0)
    (home / "read-only").chmod(0o555)


def state(folder: Path) -> dict[Path, tuple[int, ...]]:
    """What the entries of a folder are; the times of folders and pipes may change."""
    states: dict[Path, tuple[int, ...]] = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        states[path] = (status.st_mode,)
        if stat.S_ISREG(status.st_mode):
            states[path] += (status.st_ino, status.st_size, status.st_mtime_ns)
    return states


def changes(before: dict[Path, tuple[int, ...]], home: Path, outputs: list[str]) -> list[str]:
    """What has changed in the folder besides the outputs; of precious files, also in them."""
    after = state(home.parent)
    allowed = [home.parent / "cache"]
    allowed += [Path(os.path.realpath(home / output)) for output in outputs]
    faults = []
    for path in {**before, **after}:
        if before.get(path) == after.get(path):
            continue
        is_output = any(path.is_relative_to(output) for output in allowed)
        if path in before and "precious" in path.name:
            is_output = path in allowed and path.suffix != ".part"
        if not is_output:
            faults.append(f"changed {path.relative_to(home.parent)!r}")
    return faults


# --- command lines ----------------------------------------------------------------------------------------


class CommandLine(NamedTuple):
    command: str
    words: list[str]
    outputs: list[str]  # the paths that it may write


def drawn(draw: random.Random, name: str, hint: Any) -> str:
    """A value for a parameter: often one that makes sense, so that a command gets further."""
    if get_origin(hint) is Literal:
        return str(draw.choice([*get_args(hint), "x"]))
    if get_args(hint):  # list[Path] | None, Literal[...] | None
        return drawn(draw, name, get_args(hint)[0])
    is_path = hint is Path or name in WORDS["good"]
    usual = WORDS["entries"] if is_path else WORDS[hint.__name__]
    if name == "overrides":
        usual = WORDS["settings"]
    likely = WORDS["outputs"] if name in OUTPUTS else usual
    likely = WORDS["good"].get(name, likely)
    return special(draw.choice(draw.choice([usual, likely, likely])))


def random_line(draw: random.Random) -> CommandLine:
    """A random command, its arguments, and the paths that it may write."""
    function = draw.choice(COMMANDS)
    name = name_of(function)
    hints = get_type_hints(function)
    outputs = [*DEFAULTS.get(name, [])]
    options = list[str]()
    arguments = list[str]()
    for parameter in typer.main.get_command(app).commands[name].params:  # type: ignore[attr-defined]
        key = str(parameter.name)
        is_argument = parameter.param_type_name == "argument"
        if not parameter.required and draw.random() < share_left_out(key, is_argument):
            continue
        is_repeatable = parameter.nargs == -1 or parameter.multiple
        n_times = draw.choice([1, 1, 2]) if is_repeatable else 1
        for _ in range(n_times):
            if not is_argument:
                spellings = [*parameter.opts, *parameter.secondary_opts]
                options.append(draw.choice(spellings))
            if getattr(parameter, "is_flag", False):
                continue
            value = drawn(draw, key, hints.get(key, int))
            (arguments if is_argument else options).append(value)
            if key in OUTPUTS or value.startswith("run="):
                outputs.append(value.removeprefix("run="))
    if "--resume" in options:
        outputs += [f"{output}.part" for output in outputs]
    separator = draw.choice([[], ["--"]])
    return CommandLine(name, [*options, *separator, *arguments], outputs)


def share_left_out(name: str, is_argument: bool) -> float:
    if name in WORDS["good"]:
        return 0.2
    return 0.4 if is_argument else 0.75


def line_with_a_fault(command: str, *words: str) -> CommandLine:
    """A command line of hostile.toml, whose last word may be an output."""
    outputs = [words[-1], *DEFAULTS.get(command, [])]
    return CommandLine(command, [special(word) for word in words], outputs)


# --- a run of a command line ------------------------------------------------------------------------------


def execute(words: list[str], home: Path, log: str) -> None:
    """Run a command line in a process of its own, with little memory, disk and time, and no network."""
    # 1. Its directory, its streams and its environment.
    os.chdir(home)
    stdout = os.open(f"{log}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(stdout, 1)
    reader, writer = os.pipe()
    os.write(writer, "你 好 。\n".encode())
    os.close(writer)
    os.dup2(reader, 9)  # /dev/fd/9, as in `nmt ... <(command)`
    os.environ |= {"NMT_MIRROR": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1", "BROWSER": "true"}
    os.environ["NMT_CACHE"] = str(home.parent / "cache")
    os.environ["HOME"] = str(home.parent)

    # 2. Its limits. Root may not do all.
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit_data(1_500_000_000)
    resource.setrlimit(resource.RLIMIT_FSIZE, (50_000_000, 50_000_000))
    resource.setrlimit(resource.RLIMIT_CPU, (60, 60))
    header = (ctypes.c_uint32 * 2)(0x20080522, 0)
    no_capabilities = (ctypes.c_uint32 * 6)()
    ctypes.CDLL(None).capset(header, no_capabilities)
    run_main(words, log)


def use_fifo(fifo: Path, done: threading.Event) -> None:
    """Give a line to whoever reads the pipe, and take what is written into it."""
    while not done.wait(0.01):
        with suppress(OSError):  # nobody reads
            writer = os.open(fifo, os.O_WRONLY | os.O_NONBLOCK)
            os.write(writer, b"a b\n")
            os.close(writer)
        reader = os.open(fifo, os.O_RDONLY | os.O_NONBLOCK)
        time.sleep(0.005)
        os.close(reader)


def wait_for(command: Command, *, is_server: bool) -> None:
    """Wait until a command ends; it is killed if it hangs. A server is told to stop."""
    if is_server:
        end = time.monotonic() + STOP_S
        while not command.has_ended and time.monotonic() < end:
            if b"serving on" in command.log.read_bytes():
                break
            command.process.join(0.1)
        command.send(signal.SIGTERM)
    command.process.join(HANG_S)
    command.process.kill()
    command.process.join()


def faults_of_end(command: str, code: int, stderr: str) -> list[str]:
    """What is wrong with the end of a command."""
    faults = [word for word in ("Traceback", "Warning: ", "\x1b", "\u202e") if word in stderr]
    n_errors = f"\n{stderr}".count("\nnmt: error: ")
    n_hints = f"\n{stderr}".count("\nhint: ")
    is_stopped = command == "serve" and code in (143, -signal.SIGTERM)  # the latter at its start
    if code not in (0, 1, 2) and not is_stopped:
        faults.append(f"exit {code}")
    has_failed = code in (1, 2) and (command, code) != ("check", 1)
    if (has_failed and n_errors == 0) or (code == 0 and n_errors):
        faults.append(f"{n_errors} errors")
    if n_hints != min(n_errors, 1):
        faults.append("not one hint")
    return faults


def check_line(line: CommandLine, five: FiveRun, folder: Path) -> None:
    """Run a command line in a new folder, and check its end and what it has changed."""
    home = folder / "a" / "home"
    log = folder / "log"
    build(home, five)
    log.touch()
    before = state(home.parent)
    done = threading.Event()
    pipe = threading.Thread(target=use_fifo, args=(home / "fifo", done), daemon=True)
    words = [line.command, *line.words]
    process = FORKS.Process(target=execute, args=(words, home, str(log)))
    process.start()
    pipe.start()
    wait_for(Command(process, log), is_server=line.command == "serve")
    done.set()
    pipe.join()
    stderr = log.read_bytes().decode(errors="replace")
    faults = faults_of_end(line.command, process.exitcode or 0, stderr)
    faults += changes(before, home, line.outputs)
    words = [word[:300] for word in line.words]
    text = shlex.join(words)
    assert not faults, f"{faults}: nmt {line.command} {text!r}\n{stderr[-2000:]}"


@pytest.mark.parametrize("words", WORDS["found"], ids=str)
def test_a_command_line_with_which_a_fault_was_found(five_run: FiveRun, tmp_path: Path, words: list[str]) -> None:
    check_line(line_with_a_fault(*words), five_run, tmp_path)


@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + N_LINES))
def test_a_command_line_is_carried_out_or_refused(five_run: FiveRun, tmp_path: Path, seed: int) -> None:
    check_line(random_line(random.Random(seed)), five_run, tmp_path)
