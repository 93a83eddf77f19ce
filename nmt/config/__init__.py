"""The settings of a run: schema, config files, listing. Imports no torch."""

from nmt.config.listing import FITTED, chosen_by_training, settings, values
from nmt.config.schema import (
    LARGEST,
    Config,
    Data,
    Files,
    ModelSettings,
    SearchSettings,
    TokenizerSettings,
    TrainSettings,
    base_language,
    language,
    language_of,
)
from nmt.config.yaml_file import check_config, described, dump_config, load_config
