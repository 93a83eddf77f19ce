"""The explanation of a translation as a page and as JSON."""

import json
from dataclasses import replace

from torch import Tensor

from nmt.insight import pages
from nmt.insight.explain import Explanation
from nmt.insight.stages import excerpts

MAX_COLUMNS = 64  # columns of a stage's heat map


def as_page(explanation: Explanation) -> str:
    stages = [  # with at most `MAX_COLUMNS` hidden units
        replace(stage, values=stage.values[:, :MAX_COLUMNS]) if stage.axes[-1] in "DdF" else stage
        for stage in explanation.stages
    ]
    data = {**vars(explanation), "stages": stages, "attention": explanation.attention._asdict(), "code": excerpts()}
    return pages.page("explain", f"{explanation.source} – nmt explain", pages.plain(data, pages.packed))


def as_json(explanation: Explanation) -> str:
    """One JSON object with all fields of the explanation; tensors as nested lists."""
    data = {**vars(explanation), "attention": explanation.attention._asdict()}
    return json.dumps(pages.plain(data, Tensor.tolist), ensure_ascii=False)
