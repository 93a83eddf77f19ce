"""`nmt curves`."""

import json

from conftest import FiveRun, out_lines, run_together


def test_curves_in_the_terminal_and_as_json(five_run: FiveRun) -> None:
    text, points = run_together(
        ["curves", five_run.run],
        ["curves", five_run.run, "--json", "--metric", "dev_bleu"],
    )
    lines = out_lines(text)
    assert max(map(len, lines[:15])) <= 80
    titles = [line.strip() for line in lines]
    assert [title.split(" (")[0] for title in titles if title.startswith(("Training", "Dev"))] == [
        "Training loss",
        "Dev loss",
        "Dev BLEU",
    ]
    found = json.loads(out_lines(points)[0])
    assert found["x"] == "step"
    assert [len(one) for one in found["metrics"]["dev_bleu"].values()] == [2]
