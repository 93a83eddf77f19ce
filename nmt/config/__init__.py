"""The settings of a run: their schema, config files, and the list of all settings."""

from nmt.config.directions import chosen_direction
from nmt.config.listing import (
    FITTED,
    chosen_by_training,
    data_root,
    downloads_directory,
    language,
    languages_of,
    settings,
    values,
)
from nmt.config.schema import (
    LARGEST,
    Config,
    Data,
    Files,
    ModelSettings,
    SearchSettings,
    TokenizerSettings,
    TrainSettings,
    as_corpora,
    is_language,
    is_meant,
)
from nmt.config.yaml_file import check_config, described, dump_config, load_config, read_yaml
