#!/usr/bin/env python
"""Benchmark the translation speed of nmt, and optionally of CTranslate2 with the same weights.

    scripts/bench_translate.py --model runs/multi30k --input test.en
    scripts/bench_translate.py --model runs/multi30k --input test.en --ctranslate2

Each engine runs in its own process with the fastest of its settings. The engines take turns, so
that ratios are reliable on a shared machine. Times include tokenization and detokenization. Tokens
are target tokens without the end token.
"""

from __future__ import annotations

import shutil
import statistics
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import engine_processes
from command_errors import error_messages
from engine_processes import SEARCHES, Translate, answer_requests, ctranslate2_settings, measure

MAX_LENGTH = 80
"""Maximum target tokens of CTranslate2, because it has no limit relative to the source. Only
repetitive translations are longer. The limit of nmt is twice the source length plus ten."""
NUM_SINGLE = 50
"""Number of sentences that are translated one by one, for the latency."""


def main() -> None:
    """Run the benchmark, or one of its engine processes."""
    parser = engine_processes.parser(__doc__)
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--lines", type=int, default=1000)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--ctranslate2", action="store_true")
    arguments = parser.parse_args()
    if arguments.engine:
        _serve(arguments)
        return
    engines = ["nmt fp32", "nmt auto", "nmt int8"]
    with tempfile.TemporaryDirectory() as directory:
        exported = Path(directory)
        if arguments.ctranslate2:
            engines += ["ctranslate2 float32", "ctranslate2 int8"]
            _export(arguments.model, exported)
        for search in SEARCHES:
            _compare(search, engines, exported, arguments.repeats)


def _export(model: Path, directory: Path) -> None:
    from nmt.export import ctranslate2
    from nmt.models import discovery

    loaded = discovery.load(model)
    shutil.copy(loaded.run / "spm.model", directory)
    (directory / "ctranslate2").mkdir()
    ctranslate2.export(loaded, directory / "ctranslate2")


def _compare(search: str, engines: list[str], exported: Path, repeats: int) -> None:
    request = {"beam": SEARCHES[search], "one_by_one": False}
    results = measure(engines, exported, request, repeats)
    single = measure(engines, exported, request | {"one_by_one": True}, repeats)
    for name, answers in results.items():
        speeds = [answer["count"] / answer["seconds"] for answer in answers]
        latencies = [answer["seconds"] / answer["count"] for answer in single[name]]
        print(
            f"{search:<8}{name:<22}{statistics.median(speeds):>8,.0f} tok/s"
            f" ({min(speeds):,.0f}-{max(speeds):,.0f})   one sentence"
            f" {1000 * statistics.median(latencies):5.1f} ms "
            f"  peak {answers[-1]['memory'] / 1e6:,.0f} MB"
        )


# ---- engine processes


def _serve(arguments: Any) -> None:
    lines = arguments.input.read_text(encoding="utf-8").splitlines()[: arguments.lines]
    engine, kind = arguments.engine.split()

    def work(translate: Translate, request: dict[str, Any]) -> int:
        if not request["one_by_one"]:
            return translate(lines, request["beam"])
        single = lines[:NUM_SINGLE]
        for line in single:
            translate([line], request["beam"])
        return len(single)

    if engine == "nmt":
        settings = [_nmt(arguments.model, kind)]
    else:
        settings = _ctranslate2(arguments.directory, kind)
    answer_requests(settings, work)


def _nmt(model: Path, kind: str) -> Translate:
    from nmt.translation.translator import Translator

    translator = Translator.load(model, precision=kind)

    def translate(lines: list[str], beam: int) -> int:
        # As CTranslate2 does.
        spec = "greedy" if beam == 1 else f"beam(beam_size={beam}, early_stopping=True)"
        return sum(map(len, translator.tokenizer.encode_batch(translator.translate(lines, spec))))

    return translate


def _ctranslate2(directory: Path, kind: str) -> list[Translate]:
    import sentencepiece

    tokenizer = sentencepiece.SentencePieceProcessor(model_file=str(directory / "spm.model"))

    def decode(rows: list[list[str]]) -> int:
        return sum(map(len, tokenizer.encode(tokenizer.decode(rows))))

    encode = partial(tokenizer.encode, out_type=str)
    model = directory / "ctranslate2"
    return ctranslate2_settings(model, kind, encode, decode, max_decoding_length=MAX_LENGTH)


if __name__ == "__main__":
    with error_messages():
        main()
