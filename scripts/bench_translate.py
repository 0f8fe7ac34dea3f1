#!/usr/bin/env python
"""Benchmark the translation speed of nmt, and optionally of CTranslate2 with the same weights.

    scripts/bench_translate.py --model runs/multi30k --input test.en
    scripts/bench_translate.py --model runs/multi30k --input test.en --ctranslate2

Each engine runs in its own process with the fastest of its settings. The engines take turns, so
that ratios are reliable on a shared machine. Times include tokenization and detokenization. Tokens
are target tokens without the end token.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

from command_errors import error_messages
from engine_processes import SEARCHES, THREADS, EngineProcess, Translate, answer_requests, measure

MAX_LENGTH = 80
"""Maximum target tokens of CTranslate2, because it has no limit relative to the source. Only
repetitive translations are longer. The limit of nmt is twice the source length plus ten."""
NUM_SINGLE = 50
"""Number of sentences that are translated one by one, for the latency."""


def main() -> None:
    """Run the benchmark, or one of its engine processes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ctranslate2", action="store_true")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        _serve(arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        exported = Path(directory)
        if arguments.ctranslate2:
            _export(arguments, exported)
        _compare(arguments, exported)


def _export(arguments: Any, directory: Path) -> None:
    from nmt.export import ctranslate2
    from nmt.models import discovery

    loaded = discovery.load(arguments.model)
    shutil.copy(loaded.run / "spm.model", directory)
    (directory / "ctranslate2").mkdir()
    ctranslate2.export(loaded, directory / "ctranslate2")


def _compare(arguments: Any, exported: Path) -> None:
    engines = ["nmt fp32", "nmt auto", "nmt int8"]
    engines += ["ctranslate2 float32", "ctranslate2 int8"] if arguments.ctranslate2 else []

    def start(engine: str) -> EngineProcess:
        return EngineProcess(
            [
                *(
                    sys.executable,
                    __file__,
                    "--engine",
                    engine,
                    "--model",
                    arguments.model,
                    "--input",
                    arguments.input,
                ),
                *("--lines", str(arguments.lines), "--export", exported),
            ]
        )

    for search, beam in SEARCHES.items():
        results, single = (
            measure(start, engines, {"beam": beam, "one_by_one": one_by_one}, arguments.repeats)
            for one_by_one in (False, True)
        )
        for name, answers in results.items():
            speeds = [answer["count"] / answer["seconds"] for answer in answers]
            latency = statistics.median(
                answer["seconds"] / answer["count"] for answer in single[name]
            )
            print(
                f"{search:<8}{name:<22}{statistics.median(speeds):>8,.0f} tok/s"
                f" ({min(speeds):,.0f}-{max(speeds):,.0f})   one sentence {1000 * latency:5.1f} ms "
                f"  peak {answers[-1]['memory'] / 1e6:,.0f} MB"
            )


# ---- engine processes


def _serve(arguments: Any) -> None:
    lines = arguments.input.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    engine, kind = arguments.engine.split()

    def work(translate: Translate, request: dict[str, Any]) -> int:
        if not request["one_by_one"]:
            return translate(lines, request["beam"])
        for line in lines[:NUM_SINGLE]:
            translate([line], request["beam"])
        return len(lines[:NUM_SINGLE])

    answer_requests((_nmt if engine == "nmt" else _ctranslate2)(arguments, kind), work)


def _nmt(arguments: Any, kind: str) -> list[Translate]:
    from nmt.translation.translator import Translator

    translator = Translator.load(arguments.model, precision=kind)

    def translate(lines: list[str], beam: int) -> int:
        spec = (
            "greedy" if beam == 1 else f"beam(beam_size={beam}, early_stopping=True)"
        )  # like CTranslate2
        return sum(map(len, translator.tokenizer.encode_batch(translator.translate(lines, spec))))

    return [translate]


def _ctranslate2(arguments: Any, kind: str) -> list[Translate]:
    import ctranslate2
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(arguments.export / "spm.model"))

    @cache
    def engine(inter_threads: int) -> Any:
        return ctranslate2.Translator(
            str(arguments.export / "ctranslate2"),
            compute_type=kind,
            inter_threads=inter_threads,
            intra_threads=max(1, THREADS // inter_threads),
        )

    def translate(inter_threads: int, batch_size: int, lines: list[str], beam: int) -> int:
        results = engine(inter_threads).translate_batch(
            tokenizer.encode(lines, out_type=str),
            beam_size=beam,
            max_batch_size=batch_size,
            max_decoding_length=MAX_LENGTH,
        )
        texts = tokenizer.decode([each.hypotheses[0] for each in results])
        return sum(map(len, tokenizer.encode(texts)))

    return [
        partial(translate, *setting) for setting in product(sorted({1, THREADS}), (16, 32, 64, 128))
    ]


if __name__ == "__main__":
    with error_messages():
        main()
