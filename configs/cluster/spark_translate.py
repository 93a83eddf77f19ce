"""Translate a dataset on shared storage with Spark. Every machine has nmt, and the model at the same path.

    spark-submit configs/cluster/spark_translate.py model.safetensors s3a://texts/new.parquet s3a://texts/new.en

The output is Parquet: all columns of the input, and `translation`. Rows may change their order: sort by an id.
"""

import argparse
from collections.abc import Iterator

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.types import StringType, StructField, StructType

import nmt


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("model")
    parser.add_argument("input", help="a file or a folder")
    parser.add_argument("output", help="a folder that does not exist yet")
    parser.add_argument(
        "--format", choices=["parquet", "json", "text"], default="parquet", help="json: an object a line"
    )
    parser.add_argument("--column", default="text", help="the column to translate")
    parser.add_argument("--precision", choices=["fp32", "int8"], default="int8")
    parser.add_argument("--partitions", type=int, help="tasks, translated again if a worker dies; default: 128 MB each")
    options = parser.parse_args()

    def translate(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Translate a partition. mapInPandas would turn integers with gaps, such as ids, into floats."""
        translator = nmt.load(options.model, "cpu", options.precision)
        for batch in batches:
            translations = translator.translate(batch[options.column].to_pylist())
            yield batch.append_column("translation", pa.array(translations, pa.string()))

    spark = SparkSession.builder.appName("nmt-translate").getOrCreate()
    reader = spark.read.format(options.format)
    if options.format == "text":
        reader = reader.option("lineSep", "\n").schema(f"{options.column} STRING")  # by default, \r ends a line, too
    rows = reader.load(options.input)
    if options.partitions:
        rows = rows.repartition(options.partitions)
    schema = StructType([*rows.schema, StructField("translation", StringType())])
    rows.mapInArrow(translate, schema).write.parquet(options.output)  # an error if it exists
    spark.stop()


if __name__ == "__main__":
    main()
