"""`nmt config`."""

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
    from nmt.config import chosen_by_training, load_config, settings, values

    rows = [row for row in settings() if row[0].startswith(key)]
    if not rows:
        raise ConfigError(f"no key begins with '{key}'", hint="`nmt config` lists all keys")
    if of is None:
        if overrides:
            raise ConfigError("overrides change the values of a file", hint="name it with --of CONFIG")
        widths = [max(len(row[column]) for row in rows) for column in range(3)]
        for name, allowed, default, meaning in rows:
            print(f"{name:<{widths[0]}}  {allowed:<{widths[1]}}  {default:<{widths[2]}}  {meaning}")
        return
    config = load_config(of, overrides or [])
    found = {**dict(values(config)), **chosen_by_training(config)}
    found = {name: value for name, value in found.items() if name.startswith(key)}
    print(found[key] if key in found else "\n".join(f"{name}={value}" for name, value in found.items()))
