"""Translate a dataset on shared storage with Ray Data. Every machine has nmt, and the model at the same path.

    python configs/cluster/ray_translate.py model.safetensors s3://texts/new.parquet s3://texts/new.en --actors 64

The output is Parquet: all columns of the input, and `translation`. Rows may change their order: sort by an id.
"""

import argparse

import pyarrow as pa
import ray.data

import nmt


def read_lines(path: str) -> ray.data.Dataset:
    """Read lines of text. `read_text` leaves out blank lines by default, and ends lines at U+2028, too."""
    texts = ray.data.read_binary_files(path).map(lambda file: {"text": file["bytes"].decode().removesuffix("\n")})
    return texts.flat_map(lambda file: [{"text": line} for line in file["text"].split("\n")])


READERS = {"parquet": ray.data.read_parquet, "json": ray.data.read_json, "text": read_lines}


class Translate:
    """An actor that loads the model once, and translates batch after batch. Ray starts it again when it dies."""

    def __init__(self, model: str, column: str, precision: str) -> None:
        self.translate = nmt.load(model, "cpu", precision).translate
        self.column = column

    def __call__(self, batch: pa.Table) -> pa.Table:
        return batch.append_column("translation", pa.array(self.translate(batch[self.column].to_pylist()), pa.string()))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("input", help="a file or a folder")
    parser.add_argument("output", help="a folder that does not exist yet")
    parser.add_argument("--format", choices=READERS, default="parquet", help="of the input; json: an object a line")
    parser.add_argument("--column", default="text", help="the column to translate")
    parser.add_argument("--precision", choices=["fp32", "int8"], default="int8")
    parser.add_argument("--actors", type=int, default=2, help="copies of the model, each on one core")
    parser.add_argument("--rows", type=int, default=10_000, help="rows of a task, translated again if its actor dies")
    options = parser.parse_args()
    rows = READERS[options.format](options.input)
    translated = rows.repartition(target_num_rows_per_block=options.rows).map_batches(  # by default, blocks of 128 MB
        Translate,
        fn_constructor_args=[options.model, options.column, options.precision],
        compute=ray.data.ActorPoolStrategy(size=options.actors),
        num_cpus=1,
        batch_format="pyarrow",
    )
    translated.write_parquet(options.output, mode=ray.data.SaveMode.ERROR)  # by default, a second run adds rows


if __name__ == "__main__":
    main()
