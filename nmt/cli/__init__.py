"""The command line: each command parses its options, calls one function of the package and prints the result.

Data goes to stdout, everything else to stderr. Slow modules are imported by the commands that need them, so that
`--help` answers at once.
"""

from nmt.cli.app import main
