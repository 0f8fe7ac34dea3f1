"""`nmt tokenizer`."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from nmt.cli.corpus_inputs import (
    SourceLanguageOption,
    TargetLanguageOption,
    has_both_languages,
    pair_corpus,
)
from nmt.cli.options import EncodingErrorsOption, ModelOption
from nmt.core.config import TokenizerConfig
from nmt.jobs.output import write_file

app = typer.Typer(help="Train or inspect a SentencePiece tokenizer.", no_args_is_help=True)


@app.command()
def train(
    files: Annotated[
        list[str],
        typer.Argument(
            help="Text files of both languages, plain or compressed, or files with both languages."
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", help="Output model file.")] = Path(
        "spm.model"
    ),
    model_type: Annotated[str, typer.Option(help="unigram or bpe.")] = TokenizerConfig.model_type,
    vocab_size: Annotated[int, typer.Option(help="Vocabulary size.")] = TokenizerConfig.vocab_size,
    tag: Annotated[
        bool, typer.Option("--tag", help="Reserve a piece for training corpora with tag=True.")
    ] = False,
    placeholders: Annotated[
        bool,
        typer.Option(
            "--placeholders", help="Reserve pieces for placeholders, for data.placeholders=true."
        ),
    ] = False,
    src_lang: SourceLanguageOption = "",
    tgt_lang: TargetLanguageOption = "",
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Train a joint tokenizer on text files.

    Examples:
      nmt tokenizer train my/corpus.en my/corpus.de --vocab-size 16000 --output my/spm.model
      nmt tokenizer train own.csv --src-lang en --tgt-lang de
      nmt train --set tokenizer.model=my/spm.model ...
    """
    from itertools import chain

    from nmt.core.config import MAX_VOCAB_SIZE
    from nmt.core.errors import UsageError, check_choice
    from nmt.core.paths import check_not_overwriting, descriptor
    from nmt.data.pairs import read_lines
    from nmt.data.placeholders import PLACEHOLDERS
    from nmt.text import tokenizer

    check_choice("model type", model_type, ("unigram", "bpe"))
    max_size = MAX_VOCAB_SIZE
    if not 1 <= vocab_size <= max_size:
        raise UsageError(f"--vocab-size must be between 1 and {max_size}, got {vocab_size}")
    lines: list[Iterable[str]] = []
    for name in files:
        if has_both_languages(name):
            inputs = pair_corpus(name, src_lang, tgt_lang, encoding_errors)
            check_not_overwriting([output], [*inputs.files, *inputs.corpora[0].files])
            lines.append(chain.from_iterable(inputs.corpora[0].pairs()))
        else:
            check_not_overwriting([output], [Path(name)])
            lines.append(read_lines(Path(name), encoding_errors))
    model = tokenizer.train(
        chain.from_iterable(lines),
        TokenizerConfig(model_type=model_type, vocab_size=vocab_size),
        PLACEHOLDERS if placeholders else (),
        tag=tag,
    )
    write_file(output, model.model)
    if descriptor(output) is None:
        typer.echo(output)


@app.command()
def encode(
    model: Annotated[Path, typer.Argument(help="Model file, e.g. spm.model in a run directory.")],
    text: Annotated[list[str], typer.Argument(help="Sentences.")],
    encoding_errors: EncodingErrorsOption = "strict",
) -> None:
    """Print the tokens of each sentence, separated by spaces.

    Examples:
      nmt tokenizer encode runs/quickstart/spm.model "Are we done?"
    """
    from nmt.jobs.argument_lines import argument_lines
    from nmt.text.tokenizers import load_tokenizer

    tokenizer = load_tokenizer(model)
    for line in argument_lines(text, encoding_errors):
        typer.echo(" ".join(tokenizer.ids_to_pieces(tokenizer.encode(line))))


@app.command()
def shortlist(
    model: ModelOption = None,
    corpus: Annotated[
        list[str] | None,
        typer.Option(
            metavar="CORPUS",
            help="Corpus to learn from; may be repeated.",
            show_default="the model's training data",
        ),
    ] = None,
) -> None:
    """Learn which target tokens translate each source token.

    Searches on a CPU then compute the probabilities of these tokens only, which is faster. The
    search option shortlist=False turns this off.

    Examples:
      nmt tokenizer shortlist --model runs/student
      nmt translate "Are we done?" --search "greedy(shortlist=False)"
    """
    from itertools import chain

    from nmt.core.console import log
    from nmt.core.errors import DataError, UsageError
    from nmt.data.sources import get_corpus
    from nmt.jobs.shortlists import learn_shortlist
    from nmt.models import discovery, importers
    from nmt.runs import pretrained

    files = discovery.find_model(model or discovery.newest_run())
    if pretrained.output_dir(files.run) != files.run:
        raise UsageError(
            f"{model} is a pretrained model, which cannot be changed",
            f"fine-tune it: nmt train --init-from {model}",
        )
    if not corpus and importers.origin(files.run):
        raise UsageError(
            f"{files.run} is imported, so its training data is unknown",
            "name a corpus, for example --corpus tatoeba",
        )
    data = files.config.data
    splits = [get_corpus(spec).open("train", data.src, data.tgt) for spec in corpus or data.train]
    pairs = chain.from_iterable(split.pairs() for split in splits)
    learned = learn_shortlist(pairs, files.tokenizer)
    if not len(learned.translations_N):
        raise DataError("the corpora have no sentence pairs", "name others with --corpus")
    path = learned.save(files.run)
    size = len(learned.translations_N) / len(files.tokenizer)
    log(f"a token has {size:.1f} translations on average")
    typer.echo(path)
