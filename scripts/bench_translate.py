#!/usr/bin/env python
"""Benchmark the translation speed of nmt, and optionally of CTranslate2 and Eole with the same weights.

    scripts/bench_translate.py --model runs/multi30k --input test.en
    scripts/bench_translate.py --model runs/multi30k --input test.en --ctranslate2 PYTHON --eole PYTHON

Each engine runs in its own process and loads the model once. The engines take turns, so that ratios are reliable on a
shared machine. Times include tokenization and detokenization. Tokens are target tokens without the end token.
`--ctranslate2` is the Python interpreter of an environment with ctranslate2 and sentencepiece, `--eole` one with eole
and sentencepiece.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import time
from collections.abc import Iterable
from functools import cache, partial
from itertools import product
from pathlib import Path
from typing import Any

import eole_model
from engine_processes import (
    SEARCHES,
    THREADS,
    EngineProcess,
    Translate,
    answer_requests,
    ask_in_turn,
    peak_memory,
    reset_peak_memory,
)

MAX_LENGTH = 80
"""Maximum target tokens in the other engines, because CTranslate2 has no limit relative to the source. Only repetitive
translations are longer. The limit of nmt is twice the source length plus ten."""


def main() -> None:
    """Run the benchmark, or one of its engine processes."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ctranslate2", metavar="PYTHON")
    parser.add_argument("--eole", metavar="PYTHON")
    parser.add_argument("--engine", help=argparse.SUPPRESS)
    parser.add_argument("--export", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.engine:
        _serve(arguments)
        return
    with tempfile.TemporaryDirectory() as directory:
        exported = Path(directory)
        if arguments.ctranslate2 or arguments.eole:
            _export(arguments, exported)
        _compare(arguments, exported)


def _export(arguments: Any, directory: Path) -> None:
    from nmt.export import ctranslate2
    from nmt.runs import discovery

    loaded = discovery.load(arguments.model)
    shutil.copy(loaded.run / "spm.model", directory)
    if arguments.ctranslate2:
        (directory / "ctranslate2").mkdir()
        ctranslate2.export(loaded, directory / "ctranslate2")
    if arguments.eole:
        (directory / "eole").mkdir()
        eole_model.export(loaded, directory / "eole")


def _compare(arguments: Any, exported: Path) -> None:
    python = dict.fromkeys(("nmt fp32", "nmt auto", "nmt int8"), sys.executable)
    if arguments.ctranslate2:
        python |= {"ctranslate2 float32": arguments.ctranslate2, "ctranslate2 int8": arguments.ctranslate2}
    if arguments.eole:
        python |= {"eole fp32": arguments.eole, "eole bf16": arguments.eole}
    for search, beam in SEARCHES.items():
        engines = {
            name: EngineProcess([
                *(path, __file__, "--engine", name, "--model", arguments.model, "--input", arguments.input),
                *("--lines", str(arguments.lines), "--export", exported),
            ])
            for name, path in python.items()
        }  # fmt: skip
        results = ask_in_turn(engines, {name: {"beam": beam} for name in engines}, arguments.repeats)
        for name, engine in engines.items():
            engine.close()
            speeds = [answer["tokens"] / answer["seconds"] for answer in results[name]]
            single = statistics.median(answer["single"] for answer in results[name])
            memory = results[name][-1]["memory"]
            print(
                f"{search:<8}{name:<22}{statistics.median(speeds):>8,.0f} tok/s ({min(speeds):,.0f}-{max(speeds):,.0f})"
                f"   one sentence {1000 * single:5.1f} ms   peak {memory / 1e6:,.0f} MB"
            )


# ---- engine processes


def _serve(arguments: Any) -> None:
    lines = arguments.input.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    start = {"nmt": _nmt, "ctranslate2": _ctranslate2, "eole": _eole}[arguments.engine.split()[0]]
    translate, translate_one = start(arguments)

    def answer(request: dict[str, int]) -> dict[str, float]:
        before = time.perf_counter()
        tokens = translate(lines, request["beam"])
        seconds = time.perf_counter() - before
        before = time.perf_counter()
        translate_one(lines[:50], request["beam"])
        single = (time.perf_counter() - before) / len(lines[:50])
        return {"tokens": tokens, "seconds": seconds, "single": single, "memory": peak_memory()}

    answer_requests(answer)


def _nmt(arguments: Any) -> tuple[Translate, Translate]:
    from nmt.inference.translator import Translator

    translator = Translator.load(arguments.model, precision=arguments.engine.split()[1])

    def translate(lines: list[str], beam: int) -> int:
        spec = "greedy" if beam == 1 else f"beam(beam_size={beam}, early_stopping=True)"  # like the other engines
        return sum(map(len, translator.tokenizer.encode_batch(translator.translate(lines, spec))))

    return translate, partial(_one_by_one, translate)


def _ctranslate2(arguments: Any) -> tuple[Translate, Translate]:
    import ctranslate2
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(arguments.export / "spm.model"))
    kind = arguments.engine.split()[1]
    engines = [
        ctranslate2.Translator(
            str(arguments.export / "ctranslate2"),
            compute_type=kind,
            inter_threads=inter,
            intra_threads=max(1, THREADS // inter),
        )
        for inter in {1, THREADS}
    ]

    def run(engine: Any, size: int, lines: list[str], beam: int) -> int:
        sources = tokenizer.encode(lines, out_type=str)
        results = engine.translate_batch(sources, beam_size=beam, max_batch_size=size, max_decoding_length=MAX_LENGTH)
        texts = tokenizer.decode([each.hypotheses[0] for each in results])
        return sum(map(len, tokenizer.encode(texts)))

    batched = _fastest(partial(run, engine, size) for engine, size in product(engines, (16, 32, 64, 128)))
    return batched, _fastest(partial(_one_by_one, partial(run, engine, 1)) for engine in engines)


def _eole(arguments: Any) -> tuple[Translate, Translate]:
    import sentencepiece
    import torch

    torch.set_num_threads(THREADS)
    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(arguments.export / "spm.model"))
    kind = arguments.engine.split()[1]
    decoder = cache(partial(eole_model.decoder, arguments.export / "eole", kind, MAX_LENGTH))

    def run(size: int, lines: list[str], beam: int) -> int:
        sources = [" ".join(pieces) for pieces in tokenizer.encode(lines, out_type=str)]
        texts = tokenizer.decode([tokens.split() for tokens in decoder(beam)(sources, size)])
        return sum(map(len, tokenizer.encode(texts)))

    return _fastest(partial(run, size) for size in (32, 64, 128, 256)), partial(_one_by_one, partial(run, 1))


def _one_by_one(translate: Translate, lines: list[str], beam: int) -> int:
    return sum(translate([line], beam) for line in lines)


def _fastest(settings: Iterable[Translate]) -> Translate:
    """Return a function that measures all settings in its first call, the warmup, and then uses the fastest."""
    settings = list(settings)
    best: list[Translate] = []

    def translate(lines: list[str], beam: int) -> int:
        if not best:
            speeds = {}
            while settings:
                setting = settings.pop()
                setting(lines[:64], beam)
                before = time.perf_counter()
                setting(lines, beam)
                speeds[time.perf_counter() - before] = setting
            best.append(speeds[min(speeds)])
            del setting, speeds
            reset_peak_memory()  # the peak of the fastest setting counts
        return best[0](lines, beam)

    return translate


if __name__ == "__main__":
    main()
