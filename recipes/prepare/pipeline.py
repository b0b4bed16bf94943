"""The preparation as an Apache Beam pipeline: the same functions on an engine that exists.

    parts | first | keys: the first place of each key | places of a part | second | manifest
                  | samples: tokenizer                                   |
                  | facts: of a part                                     |

The engine moves hashes, places and the tokenizer's sample. Texts are read twice and shards are
written by the two passes, so the folders of the corpus and of `out` must be on a file system that
all its machines share.
"""

import os

import numpy as np

from keras_attn.files import atomic_file
from keras_attn.text.corpus.manifest import TOKENIZER

from . import cleaning, passes, problems
from .light import without_keras
from .plan import is_complete, read_parts
from .report import write_report
from .steps import check_splits, tokenizer_content

# Named, because Beam's default runner first downloads a program, and without a network silently
# takes another runner.
RUNNER = "BundleBasedDirectRunner"
FACTS, SAMPLE = "facts", "sample"


def prepare(plan, options):
    """Prepare a corpus by a pipeline.

    Args:
        plan: `Plan`.
        options: `RecipeOptions`, whose `beam` are the arguments of Beam.

    Raises:
        ImportError: if Apache Beam is not installed.
    """
    if is_complete(plan):
        return
    beam = _beam()
    flags = options.beam
    if not any(argument.partition("=")[0] == "--runner" for argument in flags):
        flags = (f"--runner={RUNNER}", *flags)
    plan = read_parts(plan)
    arguments = beam.options.pipeline_options.PipelineOptions([*flags])
    with beam.Pipeline(options=arguments) as pipeline:
        _build(beam, pipeline, plan, options)


def _build(beam, pipeline, plan, options):
    rules = plan.rules
    outputs = (
        pipeline
        | "Parts" >> beam.Create(plan.parts)
        | "Spread" >> beam.Reshuffle()
        | "First"
        >> beam.FlatMap(_first, rules, beam.pvalue).with_outputs(FACTS, SAMPLE, main="keys")
    )
    kept = outputs["keys"] | "Earliest" >> beam.CombinePerKey(min)
    counts = kept | "Split" >> beam.Map(_split, rules) | beam.combiners.Count.PerElement()
    # The in-process runner gives a wrong list where an output with a tag is one itself.
    sample = outputs[SAMPLE] | "Sample" >> beam.Map(tuple)
    facts = outputs[FACTS] | "Facts" >> beam.Map(tuple)
    tokenizer = (
        pipeline
        | "Once" >> beam.Create([None])
        | "Tokenizer"
        >> beam.Map(
            *(_tokenizer, plan, options, beam.pvalue.AsList(sample)),
            *(beam.pvalue.AsDict(counts), beam.pvalue.AsDict(facts)),
        )
    )
    places = kept | "By part" >> beam.Values() | beam.GroupByKey()
    shards = (
        {"facts": facts, "places": places}
        | "Of a part" >> beam.CoGroupByKey()
        | "Second" >> beam.Map(_second, rules, plan.parts, beam.pvalue.AsSingleton(tokenizer))
    )
    _ = (
        pipeline
        | "At the end" >> beam.Create([None])
        | "Manifest" >> beam.Map(_finish, plan, beam.pvalue.AsList(shards))
    )


def _first(part, rules, pvalue):
    """Yield each document's key and place; the sample and the facts as other outputs."""
    without_keras()
    first = passes.first_pass(rules, part)
    for number, key in enumerate(first.keys):
        yield key.tobytes(), (part.index, number)
    for piece in first.sample:
        yield pvalue.TaggedOutput(SAMPLE, tuple(piece))
    yield pvalue.TaggedOutput(FACTS, (part.index, first.facts))


def _split(kept, rules):
    return cleaning.split_of(kept[0], rules.valid, rules.test)


def _tokenizer(_, plan, options, sample, counts, facts):
    """Write the tokenizer, and return its path."""
    check_splits(counts, options, problems.total([facts[i]["problems"] for i in sorted(facts)]))
    content = tokenizer_content(options, sample)
    path = os.path.join(plan.out, TOKENIZER)
    with atomic_file(path) as temporary, open(temporary, "wb") as file:
        file.write(content)
    return path


def _second(grouped, rules, parts, _):
    """Write the shards of a part; return its index, their names and the facts."""
    index, inputs = grouped
    (facts,) = inputs["facts"]
    kept = np.zeros(facts["read"], bool)
    for places in inputs["places"]:
        kept[[*places]] = True
    return index, passes.second_pass(rules, parts[index], facts, kept), facts


def _finish(_, plan, shards):
    shards = sorted(shards, key=lambda shard: shard[0])
    write_report(plan, [facts for _, _, facts in shards], [names for _, names, _ in shards])


def _beam():
    try:
        import apache_beam
        import apache_beam.options.pipeline_options
    except ImportError as error:
        raise ImportError(
            "--engine beam needs Apache Beam, in an environment of its own: "
            "pip install 'keras_attn[beam]'"
        ) from error
    return apache_beam
