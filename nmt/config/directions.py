"""The choice of a direction in a model of several languages."""

from collections.abc import Sequence

from nmt.config.listing import languages_of
from nmt.config.schema import Data, is_meant
from nmt.errors import ConfigError
from nmt.languages import source_and_target


def chosen_direction(data: Data, targets: Sequence[str], languages: str) -> str:
    """Return the direction that a user means by `languages`, such as de-en or en.

    Return an empty text if there is nothing to choose. Training need not have had this direction, only its languages.

    Args:
        targets: the target languages of the model, empty for a model of one direction.
        languages: the user's choice, or an empty text.
    Raises:
        ConfigError: the model does not know a language, or the choice is missing or superfluous.
    """
    known = data.directions
    if not languages:
        # A model of one direction leaves no choice. If no directions are known, tags in the text choose one.
        if not targets or not known:
            return ""
        # A model of several languages may have been fine-tuned in one direction.
        if len(known) == 1:
            return known[0]
        if len(targets) > 1:
            raise ConfigError(f"the model translates {', '.join(known)}", hint=f"choose one, for example -l {known[0]}")
        languages = targets[0]
    elif not targets:
        # A model of one direction has no tags, so nothing can be chosen.
        source, target = languages_of(data)
        raise ConfigError(f"the model translates from {source or '?'} to {target or '?'} only", hint="leave out -l")

    # Check that training had the given languages.
    source, target = source_and_target(languages)
    sources = {source_and_target(direction)[0] for direction in known}
    if target not in targets or (source and known and source not in sources):
        raise ConfigError(
            f"the model does not translate {languages}", hint=f"it translates {', '.join(known or targets):.200}"
        )
    # The model does not need to know the source language, so `languages` may mean several directions.
    fitting = [direction for direction in known if is_meant(direction, languages)]
    return fitting[0] if len(fitting) == 1 else languages
