"""Random command lines of every command, over files that nobody expects: one clear error, and only -o is written."""

import ctypes
import os
import random
import resource
import shlex
import shutil
import signal
import stat
import threading
import time
import tomllib
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest
import typer
from conftest import FORKS, FiveRun, soak, write_five

from nmt.cli.app import PANELS, app, name_of

from .runs import run_main

FIRST, N_LINES = (int(os.environ.get(f"NMT_SOAK_{name}", n)) for name, n in (("SEED", 1), ("LINES", 2_000)))
ODD = os.fsdecode(b"odd\n\x1b[31m\xff\xe2\x80\xae")  # a line end, a color, a bad byte, right to left
HOSTILE = tomllib.loads(Path(__file__).with_name("hostile.toml").read_text(encoding="utf-8"))["commands"]
DEFAULTS: dict[str, list[str]] = HOSTILE["defaults"]
COMMANDS = [command for panel in PANELS.values() for command in panel]
OUTPUTS = ("output", "html", "fix")
STOP_S, HANG_S = 30, 240  # after which a server is stopped, and a command that still runs hangs


def build(home: Path, five: FiveRun) -> None:
    """Make the folder in which a command line runs."""
    if home.exists():
        (home / "read-only").chmod(0o755)
        shutil.rmtree(home.parent)
    for folder in ("runs", "full", "bare", "read-only", "../outside"):
        (home / folder).mkdir(parents=True)
    write_five(home)
    config = (home / "five.yaml").read_text(encoding="utf-8").replace("200", "3").replace(": 100", ": 2")
    big = "".join(f"a {n} b {n * n} c.\n" for n in range(80))
    texts = {"five.yaml": config, f"{ODD}.yaml": config, "big.de": big, "big.en": big.upper(), "empty": ""}
    texts |= dict.fromkeys([f"{ODD}.de", "-dash.de", "notes.md", "notes.docx", "notes.json"], '["你 好 。"]\n')
    foreign = ("full/precious", "full/train.zh", "full/config.yaml", "../outside/precious", "precious.part", "locked")
    for name, text in (texts | dict.fromkeys(foreign, "precious")).items():
        (home / name).write_text(text, encoding="utf-8")
    (home / "binary").write_bytes(random.Random(1).randbytes(5000))
    (home / "torn.safetensors").write_bytes(five.model_file.read_bytes()[:9000])
    for name in ("huge", "huge.yaml"):
        (home / name).touch()
        os.truncate(home / name, 10**10)
    os.mkfifo(home / "fifo")
    five.copy_run(home / "runs/five")
    links = {"zero": "/dev/zero", "dangling": "nowhere", "loop": "loop", "outside": "../outside", ODD: "runs/five"}
    for name, to in links.items():
        (home / name).symlink_to(to)
    (home / "locked").chmod(0)
    (home / "read-only").chmod(0o555)


def state(folder: Path) -> dict[Path, tuple[object, ...]]:
    """What the entries of a folder are; the times of folders and pipes may change."""
    found = {}
    for path in folder.rglob("*"):
        status = path.lstat()
        of_file = (status.st_ino, status.st_size, status.st_mtime_ns)
        found[path] = (status.st_mode, *(of_file if stat.S_ISREG(status.st_mode) else ()))
    return found


def special(text: str) -> str:
    return text.replace("LONG", "x" * 9000).replace("BAD", "\udcff").replace("ODD", ODD)


def drawn(draw: random.Random, name: str, kind: Any) -> str:
    """A value for a parameter: often one that makes sense, so that a command gets further."""
    options = [one for one in get_args(kind) or (kind,) if one is not type(None)]
    if get_origin(kind) is Literal:
        return str(draw.choice([*options, "x"]))
    if get_args(options[0]):  # list[Path] | None, Literal[...] | None
        return drawn(draw, name, options[0])
    pools = [HOSTILE["entries" if options[0] is Path or name in HOSTILE["good"] else options[0].__name__]]
    pools = [HOSTILE["settings"]] if name == "overrides" else pools
    pools += [HOSTILE["good"].get(name, HOSTILE["outputs"] if name in OUTPUTS else pools[0])] * 2
    return special(draw.choice(draw.choice(pools)))


def line(draw: random.Random) -> tuple[str, list[str], list[str]]:
    """A random command, its arguments, and the paths that it may write."""
    command = draw.choice(COMMANDS)
    words, outputs, arguments = list[str](), [*DEFAULTS.get(name_of(command), [])], list[str]()
    hints = get_type_hints(command, include_extras=True)
    for parameter in typer.main.get_command(app).commands[name_of(command)].params:  # type: ignore[attr-defined]
        name, is_argument = str(parameter.name), parameter.param_type_name == "argument"
        left_out = 0.2 if name in HOSTILE["good"] else 0.4 if is_argument else 0.75
        if not parameter.required and draw.random() < left_out:
            continue
        for _ in range(draw.choice([1, 1, 2]) if parameter.nargs == -1 or parameter.multiple else 1):
            words += [] if is_argument else [draw.choice([*parameter.opts, *parameter.secondary_opts])]
            if not getattr(parameter, "is_flag", False):
                value = drawn(draw, name, get_args(hints[name])[0] if name in hints else int)
                (arguments if is_argument else words).append(value)
                outputs += [value.removeprefix("run=")] if name in OUTPUTS or value.startswith("run=") else []
    outputs += [f"{one}.part" for one in outputs if "--resume" in words]
    return name_of(command), [*words, *["--"] * draw.choice([0, 1]), *arguments], outputs


def execute(words: list[str], home: Path, log: str) -> None:
    """Run a command line in a process of its own, with little memory, disk and time, and no network."""
    os.chdir(home)
    for number, path, mode in ((0, os.devnull, os.O_RDONLY), (1, f"{log}.out", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)):
        os.dup2(os.open(path, mode), number)
    reader, writer = os.pipe()
    os.write(writer, "你 好 。\n".encode())
    os.close(writer)
    os.dup2(reader, 9)  # /dev/fd/9, as in `nmt ... <(command)`
    os.environ |= {"NMT_MIRROR": "http://127.0.0.1:9", "HF_HUB_OFFLINE": "1", "BROWSER": "true"}
    os.environ |= {"NMT_CACHE": str(home.parent / "cache"), "HOME": str(home.parent)}
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    data_kb = int(Path("/proc/self/status").read_text().partition("VmData:")[2].split()[0])
    limits = {"FSIZE": 50_000_000, "CPU": 60, "DATA": 1024 * data_kb + 1_500_000_000}
    for name, limit in limits.items():
        resource.setrlimit(getattr(resource, f"RLIMIT_{name}"), (limit, limit))
    ctypes.CDLL(None).capset((ctypes.c_uint32 * 2)(0x20080522, 0), (ctypes.c_uint32 * 6)())  # root may not do all
    run_main(words, log)


def use_fifo(fifo: Path, done: threading.Event) -> None:
    """Give a line to whoever reads the pipe, and take what is written into it."""
    while not done.wait(0.01):
        for mode in (os.O_WRONLY, os.O_RDONLY):
            with suppress(OSError), os.fdopen(os.open(fifo, mode | os.O_NONBLOCK), "wb" if mode else "rb") as file:
                if mode:
                    file.write(b"a b\n")
                time.sleep(0.005)


def faults(command: str, code: int, err: str) -> list[str]:
    """What is wrong with the end of a command."""
    lines, found = err.split("\n"), [word for word in ("Traceback", "Warning: ", "\x1b", "\u202e") if word in err]
    n_errors, n_hints = (sum(one.startswith(start) for one in lines) for start in ("nmt: error: ", "hint: "))
    if code not in (0, 1, 2) and not (command == "serve" and code in (143, -signal.SIGTERM)):  # the latter at its start
        found.append(f"exit {code}")
    if (code in (1, 2)) != bool(n_errors) and not (command == "check" and code == 1):
        found.append(f"{n_errors} errors")
    return found + ["not one hint"] * (n_hints != bool(n_errors))


def changes(before: dict[Path, Any], home: Path, outputs: list[str]) -> list[str]:
    """What has changed in the folder besides the outputs; of precious files, also in them."""
    after, found = state(home.parent), []
    allowed = [*(Path(os.path.realpath(home / one)) for one in outputs), home.parent / "cache"]
    for path in [path for path in {**before, **after} if before.get(path) != after.get(path)]:
        is_precious = path in before and "precious" in path.name and (path not in allowed or path.suffix == ".part")
        if is_precious or not any(path.is_relative_to(one) for one in allowed):
            found.append(f"changed {path.relative_to(home.parent)!r}")
    return found


def attempt(home: Path, five: FiveRun, command: str, words: list[str], outputs: list[str]) -> tuple[str, str]:
    """Run a command line in a new folder. Returns what is wrong, and stderr."""
    build(home, five)
    log = home.parents[1] / "log"
    log.write_bytes(b"")
    before, done, start = state(home.parent), threading.Event(), time.monotonic()
    process = FORKS.Process(target=execute, args=([command, *words], home, str(log)))
    process.start()
    pipe = threading.Thread(target=use_fifo, args=(home / "fifo", done), daemon=True)
    pipe.start()
    while process.exitcode is None and time.monotonic() < start + HANG_S:
        process.join(0.1 if command == "serve" else HANG_S)
        if command == "serve" and (b"serving on" in log.read_bytes() or time.monotonic() > start + STOP_S):
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(process.pid or 0, signal.SIGTERM)
    process.kill()
    process.join()
    done.set()
    pipe.join()
    code, err = process.exitcode or 0, log.read_bytes().decode(errors="replace")
    return ", ".join([*faults(command, code, err), *changes(before, home, outputs)]), err


@pytest.mark.parametrize("case", [*HOSTILE["found"], *range(FIRST, FIRST + soak(8, N_LINES))], ids=str)
def test_a_command_line_is_carried_out_or_refused(five_run: FiveRun, tmp_path: Path, case: list[str] | int) -> None:
    """One with which a fault was found, or that of a seed."""
    if isinstance(case, int):
        command, words, outputs = line(random.Random(case))
    else:
        command, words, outputs = case[0], [*map(special, case[1:])], [case[-1], *DEFAULTS.get(case[0], [])]
    found, err = attempt(tmp_path / "a" / "home", five_run, command, words, outputs)
    text = shlex.join(["nmt", command, *(one[:300] for one in words)])
    assert not found, f"{found}: {text!r}\n{err[-2000:]}"
