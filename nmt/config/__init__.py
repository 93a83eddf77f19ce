"""The settings of a run: schema, config files, listing. Imports no torch."""

from nmt.config.directions import chosen_direction, directed, directions, is_meant, targets_of
from nmt.config.listing import (
    FITTED,
    base_language,
    chosen_by_training,
    data_root,
    downloads_directory,
    language,
    language_of,
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
    corpora_of,
    is_language,
)
from nmt.config.yaml_file import check_config, described, dump_config, load_config, read_yaml
