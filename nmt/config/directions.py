"""Which direction of a model of several languages a user means."""

from collections.abc import Sequence

from nmt.config.listing import language
from nmt.config.schema import Data, is_meant
from nmt.errors import ConfigError


def chosen_direction(data: Data, targets: Sequence[str], languages: str) -> str:
    """Return the direction that a user means by `de-en` or `en`; empty if there is nothing to choose.

    `targets` are the target languages of the model, empty if it has one direction. Training must have had both
    languages of a direction, not the direction itself. Raises ConfigError otherwise, or if no direction is meant.
    """
    known = data.directions
    if not languages:
        # An imported model without known directions reads the tags in the text.
        if not targets or not known:
            return ""
        # A model of several languages that was fine-tuned in one direction.
        if len(known) == 1:
            return known[0]
        if len(targets) > 1:
            raise ConfigError(f"the model translates {', '.join(known)}", hint=f"choose one, for example -l {known[0]}")
        languages = targets[0]
    elif not targets:
        # A model of one direction has no tags.
        source, target = language(data, "source"), language(data, "target")
        message = f"the model translates from {source or '?'} to {target or '?'} only"
        raise ConfigError(message, hint="leave out -l")

    # Is it one that training had, or could have had?
    source, _, target = languages.rpartition("-")
    sources = {direction.partition("-")[0] for direction in known}
    if target not in targets or (source and known and source not in sources):
        hint = f"it translates {', '.join(known or targets):.200}"
        raise ConfigError(f"the model does not translate {languages}", hint=hint)
    # A target language means its only direction; of several, the model finds the source language by itself.
    fitting = [direction for direction in known if is_meant(direction, languages)]
    return fitting[0] if len(fitting) == 1 else languages
