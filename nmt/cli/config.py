"""The command `nmt config`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli import options
from nmt.errors import ConfigError


def config(
    key: Annotated[str, typer.Argument(help="Only keys that begin with this: data, model, train.max, ...")] = "",
    overrides: options.Overrides = None,
    of: Annotated[Path | None, typer.Option(metavar="CONFIG", help="The values in this file, paths resolved.")] = None,
) -> None:
    """List every setting of a config file.

    Prints key, allowed values, default and meaning. [fitted]: unless set, chosen by the size of the corpus; `nmt train
    --dry-run` says how.
    """
    from nmt.cli.tables import columns
    from nmt.config import chosen_by_training, load_config, settings, values

    if of is None:
        if overrides:
            raise ConfigError("overrides change the values of a file", hint="name it with --of CONFIG")
        # Without a file, print the settings and their meanings.
        lines = columns([row for row in settings() if row[0].startswith(key)])
    else:
        # With a file, print the values of its settings. For a complete key, print only the value.
        config = load_config(of, overrides or [])
        known = dict(values(config)) | chosen_by_training(config)
        lines = [f"{name}={known[name]}" for name in known if name.startswith(key)]
        if key in known:
            lines = [known[key]]
    if not lines:
        raise ConfigError(f"no key begins with '{key}'", hint="`nmt config` lists all keys")
    print(*lines, sep="\n")
