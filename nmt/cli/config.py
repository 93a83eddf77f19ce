"""`nmt config`."""

from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.stderr import set_up_logging
from nmt.errors import ConfigError


def config(
    key: Annotated[str, typer.Argument(help="Only keys that begin with this: data, model, train.max, ...")] = "",
    of: Annotated[Path | None, typer.Option(metavar="CONFIG", help="The values in this file, paths resolved.")] = None,
) -> None:
    """List every setting of a config file.

    Key, allowed values, default, meaning. [fitted]: if it is not set, the size of the corpus decides.
    """
    set_up_logging()
    from nmt.config import settings

    rows = [row for row in settings() if row[0].startswith(key)]
    if not rows:
        raise ConfigError(f"no key begins with '{key}'", hint="`nmt config` lists all keys")
    if of is not None:
        print_values(of, key)
        return
    widths = [max(len(row[column]) for row in rows) for column in range(3)]
    for name, allowed, default, meaning in rows:
        print(f"{name:<{widths[0]}}  {allowed:<{widths[1]}}  {default:<{widths[2]}}  {meaning}")


def print_values(file: Path, prefix: str) -> None:
    """Print the settings of a config file with a common prefix; for a single key, only its value."""
    from nmt.config import chosen_by_training, load_config, values

    config = load_config(file)
    found = {name: value for name, value in values(config) if name.startswith(prefix)}
    if open_keys := chosen_by_training(config, found):
        from nmt.train.session import resolved

        found |= {name: value for name, value in resolved(config, open_keys) if name in found}
    print(found[prefix] if prefix in found else "\n".join(f"{name}={value}" for name, value in found.items()))
