#!/usr/bin/env python
"""Benchmark a model of the size of published models: nmt, CTranslate2 and Transformers with the
same weights.

    scripts/bench_published.py --input TEXT
    scripts/bench_published.py --input TEXT --dim 64 --layers 2 --pieces 2000 --sentences 8
    --output-tokens 8

The model is a MarianMT model with random weights, by default in the size of OPUS-MT: 6+6 layers,
model dimension 512, 8 heads, feed-forward dimension 2,048, 58,100 pieces. Its SentencePiece models
are trained on `--input`, whose first lines are translated. Every translation has the same number of
tokens, the end token included, because the length of a random model's translations is arbitrary.

Import, load and translation times are medians. Each engine runs in its own process, and the engines
take turns. Import is the time of `nmt import` or of CTranslate2's converter. Load is the time from
the start of a process to its first translation. Throughput includes tokenization and
detokenization; each engine has the fastest of its settings, measured in another process, so that
peak memory is that of one setting.
"""

from __future__ import annotations

import importlib
import io
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import warnings
from dataclasses import dataclass
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import engine_processes
from benchmark import print_head, print_row
from command_errors import error_messages
from engine_processes import (
    SEARCHES,
    THREADS,
    Translate,
    answer_requests,
    ctranslate2_settings,
    measure,
)

if TYPE_CHECKING:  # only the processes of nmt import it
    from nmt.search import Hypothesis, Search, SearchRequest, StepModel

ENGINES = (
    "nmt fp32",
    "nmt auto",
    "nmt int8",
    "ctranslate2 float32",
    "ctranslate2 int8",
    "transformers float32",
)
MAX_WORDS = 100
"""Longer lines are left out: Transformers supports at most 512 tokens."""
MIN_SECONDS = 1.0
"""Minimum duration of a pass. On a busy machine, shorter ones measure the scheduler, which switches
every few ms."""
CONVERT = "from ctranslate2.converters.transformers import main; main()"


def main() -> None:
    """Run the benchmark, or one of its engine processes."""
    parser = engine_processes.parser(__doc__)
    parser.add_argument("--input", type=Path, required=True, help="text, one sentence per line")
    parser.add_argument("--sentences", type=int, default=200)
    parser.add_argument("--output-tokens", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--dim", type=int, default=512)
    parser.add_argument("--layers", type=int, default=6)
    parser.add_argument("--pieces", type=int, default=58_100)
    arguments = parser.parse_args()
    if not 2 <= arguments.output_tokens < 512:
        parser.error("--output-tokens must be between 2 and 511")
    if arguments.engine:
        _serve(arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        arguments.directory = Path(directory)
        _write_model(arguments, arguments.directory / "marian")
        imports = _import(arguments)
        loads = _load(arguments)
        _print_table(
            imports, loads, {name: _translate(arguments, beam) for name, beam in SEARCHES.items()}
        )


# ---- model


def _write_model(arguments: Any, directory: Path) -> None:
    """Write a MarianMT model with random weights in the format of Hugging Face Transformers."""
    import torch

    transformers: Any = importlib.import_module("transformers")  # its type hints are incomplete
    torch.manual_seed(1)
    directory.mkdir()
    num_pieces = _write_tokenizer(arguments, directory)
    stack = {
        "layers": arguments.layers,
        "attention_heads": max(1, arguments.dim // 64),
        "ffn_dim": 4 * arguments.dim,
    }
    config = transformers.MarianConfig(
        vocab_size=num_pieces,
        d_model=arguments.dim,
        max_position_embeddings=512,
        activation_function="swish",
        scale_embedding=True,
        pad_token_id=num_pieces - 1,
        decoder_start_token_id=num_pieces - 1,
        eos_token_id=0,
        forced_eos_token_id=0,
        bad_words_ids=[[num_pieces - 1]],
        num_beams=4,
        **{
            f"{side}_{name}": value
            for side in ("encoder", "decoder")
            for name, value in stack.items()
        },
    )
    model = transformers.MarianMTModel(config)
    with torch.no_grad():
        model.get_input_embeddings().weight[-1] = 0.0  # the padding token
    model.save_pretrained(directory)
    parameters = sum(parameter.numel() for parameter in model.parameters())
    print(
        f"{parameters / 1e6:.1f} M parameters, {num_pieces - 1:,} pieces, {THREADS} threads",
        file=sys.stderr,
    )


def _write_tokenizer(arguments: Any, directory: Path) -> int:
    """Train source and target SentencePiece models; return the size of the joint vocabulary, with
    padding."""
    import sentencepiece

    model = io.BytesIO()
    with arguments.input.open(encoding="utf-8") as lines:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(line.rstrip("\n") for line in lines),
            model_writer=model,
            minloglevel=2,
            vocab_size=min(32_000, arguments.pieces // 2),
            hard_vocab_limit=False,
            input_sentence_size=1_000_000,
        )
    for name in ("source.spm", "target.spm"):
        (directory / name).write_bytes(model.getvalue())
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    pieces = ["</s>", "<unk>", *(processor.id_to_piece(i) for i in range(3, len(processor)))]
    unused = (f"unused{i}" for i in range(arguments.pieces - len(pieces)))
    ids = {piece: i for i, piece in enumerate([*pieces, *unused, "<pad>"])}
    (directory / "vocab.json").write_text(json.dumps(ids), encoding="utf-8")
    options = {
        "tokenizer_class": "MarianTokenizer",
        "source_lang": "en",
        "target_lang": "de",
        "model_max_length": 512,
    }
    (directory / "tokenizer_config.json").write_text(json.dumps(options), encoding="utf-8")
    return len(ids)


# ---- measurements


def _import(arguments: Any) -> dict[str, float]:
    """Return the median times of importing the model into nmt and of converting it for CTranslate2,
    in seconds."""
    published = arguments.directory / "marian"
    times: dict[str, list[float]] = {"nmt": [], "ctranslate2": []}
    for _ in range(arguments.repeats):
        for engine, command in {
            "nmt": ["-m", "nmt", "import", published, "--run"],
            "ctranslate2": ["-c", CONVERT, "--model", published, "--output_dir"],
        }.items():
            target = arguments.directory / engine
            shutil.rmtree(target, ignore_errors=True)
            before = time.perf_counter()
            subprocess.run([sys.executable, *command, target], check=True, stdout=sys.stderr)
            times[engine].append(time.perf_counter() - before)
    return {engine: statistics.median(seconds) for engine, seconds in times.items()}


def _load(arguments: Any) -> dict[str, float]:
    """Return the median time of each engine from the start of its process to its first translation,
    in seconds."""
    times: dict[str, list[float]] = {name: [] for name in ENGINES}
    for repeat in range(arguments.repeats + 1):
        for name in ENGINES:
            before = time.perf_counter()
            process = engine_processes.start(name, arguments.directory)
            process.ask(beam=1, setting=0, sentences=1)
            seconds = time.perf_counter() - before
            process.close()
            # The first pass reads the files into the page cache, and nmt selects its precision.
            if repeat:
                times[name].append(seconds)
    return {name: statistics.median(seconds) for name, seconds in times.items()}


def _translate(arguments: Any, beam: int) -> dict[str, tuple[float, int]]:
    """Return the median throughput in target tokens per second and the peak memory in bytes of each
    engine."""
    request = {"beam": beam, "sentences": arguments.sentences}
    answers = measure(ENGINES, arguments.directory, request, arguments.repeats)
    results = {}
    short = []
    for name, passes in answers.items():
        speed = statistics.median(each["count"] / each["seconds"] for each in passes)
        results[name] = speed, passes[-1]["memory"]
        if min(each["seconds"] for each in passes) < MIN_SECONDS:
            short.append(name)
    if short:
        print(
            f"passes of {', '.join(short)} take less than {MIN_SECONDS} s: add --sentences",
            file=sys.stderr,
        )
    return results


def _print_table(
    imports: dict[str, float],
    loads: dict[str, float],
    results: dict[str, dict[str, tuple[float, int]]],
) -> None:
    speeds = [f"{search}, tokens/s" for search in results]
    print_head("engine", "import", "load", *speeds, f"peak memory, {' / '.join(results)}")
    for name in ENGINES:
        imported = imports.get(name.split()[0])
        cells = [name, f"{imported:.1f} s" if imported else "", f"{loads[name]:.2f} s"]
        memory = []
        for result in results.values():
            speed, num_bytes = result[name]
            cells.append(f"{speed:,.0f}")
            memory.append(f"{num_bytes / 1e6:,.0f}")
        print_row([*cells, f"{' / '.join(memory)} MB"])


# ---- engine processes


def _serve(arguments: Any) -> None:
    with arguments.input.open(encoding="utf-8") as file:
        usable = (line.strip() for line in file if 0 < len(line.split()) <= MAX_WORDS)
        lines = list(islice(usable, arguments.sentences))
    engine, kind = arguments.engine.split()
    start = {"nmt": _nmt, "ctranslate2": _ctranslate2, "transformers": _transformers}[engine]

    def work(translate: Translate, request: dict[str, Any]) -> int:
        chosen = lines[: request["sentences"]]
        tokens = translate(chosen, request["beam"])
        expected = len(chosen) * arguments.output_tokens
        if tokens != expected:
            sys.exit(f"{arguments.engine} wrote {tokens} tokens, not {expected}")
        return tokens

    answer_requests(start(arguments, kind), work)


def _nmt(arguments: Any, kind: str) -> list[Translate]:
    import numpy as np

    from nmt.engines import Source
    from nmt.search import parse_search
    from nmt.translation.translator import Translator

    translator = Translator.load(arguments.directory / "nmt", precision=kind)

    @dataclass(frozen=True)
    class FixedLength:
        """A search whose translations all have the same length."""

        search: Search
        rows: int
        n_best: int = 1

        def __call__(self, model: StepModel, request: SearchRequest) -> list[list[Hypothesis]]:
            # Without the end token.
            length_B = np.full_like(request.max_length_B, arguments.output_tokens - 1)
            return self.search(model, request._replace(max_length_B=length_B))

    def translate(lines: list[str], beam: int) -> int:
        long = "min_length_ratio=1000"
        algorithm = parse_search(
            f"greedy({long})"
            if beam == 1
            else f"beam(beam_size={beam}, early_stopping=True, {long})"
        )
        sources = [Source(ids) for ids in translator.segmenter.encode(lines)]
        hypotheses = translator.engine.search(
            sources, FixedLength(algorithm, algorithm.rows), lambda _: None
        )
        rows = [n_best[0].ids for n_best in hypotheses]
        translator.tokenizer.decode_batch(rows)
        return sum(len(ids) + 1 for ids in rows)

    return [translate]


def _ctranslate2(arguments: Any, kind: str) -> list[Translate]:
    import sentencepiece

    source, target = (
        sentencepiece.SentencePieceProcessor(model_file=str(arguments.directory / "marian" / name))
        for name in ("source.spm", "target.spm")
    )

    def encode(lines: list[str]) -> list[list[str]]:
        return [[*pieces, "</s>"] for pieces in source.encode(lines, out_type=str)]

    def decode(rows: list[list[str]]) -> int:
        target.decode(rows)
        return sum(map(len, rows))

    return ctranslate2_settings(
        arguments.directory / "ctranslate2",
        kind,
        encode,
        decode,
        min_decoding_length=arguments.output_tokens,
        max_decoding_length=arguments.output_tokens,
    )


def _transformers(arguments: Any, kind: str) -> list[Translate]:
    import torch

    transformers: Any = importlib.import_module("transformers")
    warnings.simplefilter("ignore")  # the tokenizer recommends a package for another normalization
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(THREADS)
    tokenizer = transformers.MarianTokenizer.from_pretrained(arguments.directory / "marian")
    model = transformers.MarianMTModel.from_pretrained(
        arguments.directory / "marian", dtype=getattr(torch, kind)
    )

    def translate(batch_size: int, lines: list[str], beam: int) -> int:
        lines = sorted(lines, key=len, reverse=True)
        tokens = 0
        for start in range(0, len(lines), batch_size):
            inputs = tokenizer(lines[start : start + batch_size], return_tensors="pt", padding=True)
            with torch.inference_mode():
                rows = model.generate(
                    **inputs,
                    num_beams=beam,
                    do_sample=False,
                    min_new_tokens=arguments.output_tokens - 1,
                    max_new_tokens=arguments.output_tokens,
                )
            tokenizer.batch_decode(rows, skip_special_tokens=True)
            tokens += rows.shape[0] * (rows.shape[1] - 1)  # without the start token
        return tokens

    return [partial(translate, batch_size) for batch_size in (16, 32, 64)]


if __name__ == "__main__":
    with error_messages():
        main()
