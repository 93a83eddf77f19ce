"""The command `nmt`, also as `python -m nmt`: handles signals before slow imports, then runs `nmt.cli`."""

import signal
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # the working directory: a file there must not be imported in place of a library

from nmt.processes import keep_stderr_open, stop_on_signals


def main() -> None:
    keep_stderr_open()
    stop_on_signals()
    try:
        from nmt import cli

        cli.main()
    except KeyboardInterrupt as stop:
        sys.exit(128 + getattr(stop, "number", signal.SIGINT))


if __name__ == "__main__":
    main()
