"""The command line. Each command imports slow modules only when it runs, so that `--help` answers at once."""

from nmt.cli.app import main
