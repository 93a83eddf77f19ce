"""The command line. Commands import slow modules when they run, so that `--help` answers at once."""

from nmt.cli.app import main
