"""`nmt merge`, and `nmt translate --shard`."""

import json
from pathlib import Path

from conftest import SOURCE, FiveRun, err_lines, one_clear_error, out_lines, run_nmt, run_together

N_SHARDS = 3
SAMPLED = ["--sample", "--temperature", 2, "--max-length", 8, "--seed", 3]  # samples depend on the line number


def test_joined_shards_are_the_text_of_one_run(five_run: FiveRun, tmp_path: Path) -> None:
    lines = ["\ufeff" + SOURCE[0], *SOURCE[1:], "", *SOURCE, "\ufeff" + SOURCE[2], *SOURCE]
    (tmp_path / "in").write_bytes("\n".join(lines).encode() + b" \xff")
    common = ["translate", "-m", five_run.run, "-i", "in", *SAMPLED]
    whole, *shards = run_together(
        common, *([*common, "-o", "out", "--shard", f"{i}/{N_SHARDS}"] for i in range(N_SHARDS)), cwd=tmp_path
    )
    for i, done in enumerate(shards):
        file = f"out.shard-{i:03}-of-003"
        assert done.stdout == b""
        assert err_lines(done)[0].startswith("nmt: warning: in is not UTF-8 in 1 of 17 lines")
        assert err_lines(done)[1] == f"written to {file}; `nmt merge out` joins all shards"
        header, *_ = (tmp_path / file).read_text(encoding="utf-8").splitlines()
        assert json.loads(header)["shard"] == f"{i}/3"

    merged = run_nmt("merge", "out", cwd=tmp_path)
    assert err_lines(merged) == ["17 lines of 3 shards written to out"]
    assert (tmp_path / "out").read_bytes() == whole.stdout
    assert len(set(out_lines(whole))) > 10

    again, other = run_together(
        [*common, "-o", "out", "--shard", "1/3"], [*common, "-o", "out", "--shard", "0/3", "--alpha", "2"], cwd=tmp_path
    )
    assert "out.shard-001-of-003 is complete" in err_lines(again)
    assert other.returncode == 0, "a complete shard of other options is replaced"
    one_clear_error(run_nmt("merge", "out", cwd=tmp_path), 2, "was made from another option than")
    assert (tmp_path / "out").read_bytes() == whole.stdout, "a failed join leaves the output as it was"
