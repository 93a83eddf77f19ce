"""The directions of a model of several languages, such as de-en, and the config of one of them. Imports no torch."""

from collections.abc import Sequence

from nmt.config.listing import language
from nmt.config.schema import Config, Data, Files, corpora_of
from nmt.errors import ConfigError


def directions(data: Data) -> list[str]:
    """Return the directions of the training corpora, in their order, if there are several corpora."""
    return [*dict.fromkeys(files.languages for files in corpora_of(data.train) if isinstance(data.train, tuple))]


def targets_of(data: Data) -> list[str]:
    """Return the target languages of `directions`, in their order."""
    return [*dict.fromkeys(one.partition("-")[2] for one in directions(data))]


def is_meant(direction: str, languages: str) -> bool:
    """Whether a user means the direction de-en by `de-en` or `en`."""
    return f"-{direction}".endswith(f"-{languages}")


def directed(config: Config, languages: str) -> Config:
    """Return the config of one direction, de-en, or of all into one language, en, with the corpora of that direction.

    For a direction without training pairs, train is another corpus.
    """

    def own(corpora: Files | tuple[Files, ...] | None) -> Files | None:
        found = [files for files in corpora_of(corpora) if is_meant(files.languages, languages)]
        return found[0] if len({files.languages for files in found}) == 1 else None

    data, (source, _, target) = config.data, languages.rpartition("-")
    train = own(data.train) or corpora_of(data.train)[0].model_copy(update={"languages": ""})
    changes = {"source_lang": source, "target_lang": target, "target_tag": target, "temperature": 1.0}
    changes |= {"train": train, "dev": own(data.dev), "test": own(data.test)}
    return config.model_copy(update={"data": data.model_copy(update=changes)})


def chosen_direction(data: Data, targets: Sequence[str], languages: str) -> str:
    """Return the direction that a user means by `de-en` or `en`; empty if there is nothing to choose.

    `targets` are those of the model, if it has several languages. Training must have had both languages of a direction,
    not the direction itself. Raises ConfigError otherwise, or if none is meant.
    """
    known = directions(data)
    if languages and not targets:
        pair = f"{language(data, 'source') or '?'} to {language(data, 'target') or '?'}"
        raise ConfigError(f"the model translates from {pair} only", hint="leave out -l")
    if not languages and not (targets and known):  # one direction, or an imported model, which reads tags in the text
        return ""
    if not languages and len(known) == 1:  # a model of several, fine-tuned in one direction
        return known[0]
    if not languages and len(targets) > 1:
        raise ConfigError(f"the model translates {', '.join(known)}", hint=f"choose one, for example -l {known[0]}")
    source, _, target = (languages or targets[0]).rpartition("-")
    if target not in targets or (source and known and not any(one.startswith(f"{source}-") for one in known)):
        hint = f"it translates {', '.join(known or targets):.200}"
        raise ConfigError(f"the model does not translate {languages}", hint=hint)
    fitting = [one for one in known if is_meant(one, languages or target)]
    return fitting[0] if len(fitting) == 1 else languages or target
