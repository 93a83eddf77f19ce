"""The entry point of the command `nmt`, and of `python -m nmt`.

Signal handlers are installed before the slow imports, so that Ctrl-C ends the process even during an import.
"""

import signal
import sys

if __name__ == "__main__" and not sys.flags.safe_path:
    del sys.path[0]  # a file in the working directory must not be imported in place of a library

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
