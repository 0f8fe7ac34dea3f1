"""Import of models of other toolkits. Hugging Face Transformers and its own translations are the
reference."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import io
import json
import math
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import sentencepiece as spm
import torch
import yaml
from commandline import CommandLine, Done, finish, sentences, wait_until, write
from safetensors.torch import load_file, save_file

from nmt.core import untrusted_files
from nmt.core.errors import CheckpointError, UsageError
from nmt.core.paths import LOCK, NEW, TEMPORARY
from nmt.core.registry import parse
from nmt.data.loader import Loader, Window
from nmt.data.noise import SourceNoise
from nmt.data.prepare import PreparedData
from nmt.models import discovery
from nmt.models import importers as imports
from nmt.models.importers import import_model, origin
from nmt.models.importers.common import MASKED, UNKNOWN_LANGUAGES
from nmt.runs import pretrained
from nmt.text.separate_tokenizer import SeparateTokenizer
from nmt.text.tokenizer import EOS, UNK
from nmt.translation.glossary import Glossary, Term
from nmt.translation.guard import Guard
from nmt.translation.segments import Line
from nmt.translation.translator import Translator


@functools.cache
def sentencepiece_models() -> list[bytes]:
    made = []
    for lines in sentences(400):
        model = io.BytesIO()
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(lines),
            model_writer=model,
            vocab_size=70,
            minloglevel=2,
            hard_vocab_limit=False,
        )
        made.append(model.getvalue())
    return made


def marian_tokenizer(directory: Path, *, separate: bool = False, num_unused: int = 0) -> int:
    """Write the tokenizer files of a Marian model with unused pieces first; return the size of its
    vocabulary."""
    models, vocabularies = [], []
    for content, name in zip(sentencepiece_models(), ("source.spm", "target.spm"), strict=True):
        (directory / name).write_bytes(content)
        models.append(spm.SentencePieceProcessor(model_proto=content))
    # As Marian writes them: the end of the sentence, unknown pieces, then by frequency.
    for model in models:
        vocabularies.append([model.id_to_piece(i) for i in range(3, model.get_piece_size())])
    if not separate:
        vocabularies = [sorted({*vocabularies[0], *vocabularies[1]})] * 2
    # Transformers has one id for the padding of both vocabularies.
    size = num_unused + max(map(len, vocabularies))
    for name, pieces in zip(
        ("vocab.json", "target_vocab.json")[: 1 + separate], vocabularies, strict=False
    ):
        padded = [*(f"unused{i}" for i in range(size - len(pieces))), *pieces]
        ids = {piece: i for i, piece in enumerate(["</s>", "<unk>", ">>deu<<", *padded, "<pad>"])}
        (directory / name).write_text(json.dumps(ids, ensure_ascii=False))
    options = {
        "source_lang": "en",
        "target_lang": "de",
        "separate_vocabs": separate,
        "model_max_length": 512,
    }
    (directory / "tokenizer_config.json").write_text(
        json.dumps(options | {"tokenizer_class": "MarianTokenizer"})
    )
    return len(ids)


@dataclass
class Published:
    """A model of Transformers and its files."""

    model: Any
    files: dict[str, bytes]


def marian(directory: Path, **options: Any) -> Any:
    """Write a Marian model with random weights as OPUS-MT publishes them, and return it."""
    directory.mkdir(parents=True)
    published = published_model(**options)
    for name, content in published.files.items():
        (directory / name).write_bytes(content)
    return published.model


@functools.cache
def published_model(**options: Any) -> Published:
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        model = random_marian(directory, **options)
        files = {path.name: path.read_bytes() for path in directory.iterdir()}
        return Published(model, files)


def random_marian(
    directory: Path, *, separate: bool = False, num_unused: int = 0, **options: Any
) -> Any:
    """Write a Marian model with random weights, and return it."""
    torch.manual_seed(1)
    size = marian_tokenizer(directory, separate=separate, num_unused=num_unused)
    sizes = {
        "d_model": 32,
        "encoder_layers": 2,
        "decoder_layers": 2,
        "encoder_ffn_dim": 48,
        "decoder_ffn_dim": 48,
    }
    heads = {"encoder_attention_heads": 4, "decoder_attention_heads": 4}
    ids = {"eos_token_id": 0, "pad_token_id": size - 1, "decoder_start_token_id": size - 1}
    transformers = pytest.importorskip("transformers")
    config = transformers.MarianConfig(
        vocab_size=size,
        decoder_vocab_size=size,
        scale_embedding=True,
        num_beams=4,
        bad_words_ids=[[size - 1]],
        forced_eos_token_id=0,
        share_encoder_decoder_embeddings=not separate,
        tie_word_embeddings=not separate,
        **sizes,
        **heads,
        **ids,
        **{"activation_function": "swish", "max_position_embeddings": 512} | options,
    )
    model = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "embed_positions" not in name:
                parameter.add_(torch.randn_like(parameter) * 0.3 / parameter.shape[-1] ** 0.5)
        model.final_logits_bias.normal_()
        model.final_logits_bias[0, -1] = 0.0
        model.final_logits_bias[0, 0] += 3.0  # translations end
        for table in {model.get_encoder().embed_tokens, model.get_decoder().embed_tokens}:
            table.weight[-1] = 0.0
    model.save_pretrained(directory)
    return model


LARGE = 2**16
"""Ids of so many tokens need more than 16 bits."""


@pytest.fixture(params=["shared", "separate", "relu", "large"])
def published(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Any]:
    directory = tmp_path / "opus-mt-en-de"
    options: dict[str, Any] = {"activation_function": "relu"} if request.param == "relu" else {}
    num_unused = LARGE if request.param == "large" else 0
    return directory, marian(
        directory, separate=request.param == "separate", num_unused=num_unused, **options
    )


@pytest.mark.slow
def test_log_probabilities_and_translations_equal_transformers(
    published: tuple[Path, Any], tmp_path: Path
) -> None:
    directory, model = published
    run = import_model(str(directory), tmp_path / "run")
    tokenizer = pytest.importorskip("transformers").MarianTokenizer.from_pretrained(directory)
    num_lines = 2 if tokenizer.vocab_size > LARGE else 4
    source, target = sentences(num_lines)
    inputs = tokenizer(source, text_target=target, return_tensors="pt", padding=True)
    translator = Translator.load(run, "cpu", "fp32")
    start = torch.full((len(target), 1), model.config.decoder_start_token_id)
    labels = inputs.pop("labels")
    with torch.no_grad():
        outputs = model(**inputs, decoder_input_ids=torch.cat([start, labels[:, :-1]], 1))
        logits = outputs.logits
        logits[:, :, model.config.pad_token_id] = -torch.inf
        expected = logits.log_softmax(-1).gather(2, labels[:, :, None])[:, :, 0]
    for i, score in enumerate(translator.score(zip(source, target, strict=True))):
        real = expected[i][labels[i] != model.config.pad_token_id]
        assert score.token_log_probs == pytest.approx(real.tolist(), abs=1e-4)
    search = "beam(beam_size=4, length_normalization='average')"
    num_equal = 0
    for line, translation in zip(source, translator.translate(source, search), strict=True):
        one = tokenizer([line], return_tensors="pt")
        options = {
            "num_beams": 4,
            "early_stopping": "never",
            "length_penalty": 1.0,
            "forced_eos_token_id": 0,
        }
        # The limit of nmt.
        output = model.generate(**one, **options, max_length=2 * one.input_ids.shape[1] + 12)
        num_equal += translation == tokenizer.decode(output[0], skip_special_tokens=True)
    assert num_equal >= num_lines / 2  # Transformers ends hypotheses at the limit in another way


@pytest.mark.slow
@pytest.mark.parametrize("norm_position", ["post", "pre"])
def test_export_import_export_is_the_identity(nmt: CommandLine, norm_position: str) -> None:
    tmp_path = nmt.directory
    if norm_position == "post":
        shutil.rmtree(tmp_path / "runs/tiny")
        sizes = {"train__steps": "1", "train__valid_every": "1"}
        nmt.train("runs/tiny", model__norm_position=norm_position, **sizes)
    write(tmp_path / "few", ["the dog sees the cat.", "the tree."], ["", ""])
    options = ("--verify-with", "few.en", "--min-agreement", "0.5")
    export = ("--to", "transformers", *options, "--output")
    nmt.run("export", "runs/tiny", *export, "first")
    assert nmt.run("import", "first", "--run", "runs/imported").out == "runs/imported\n"
    assert (tmp_path / "runs/imported/spm.model").read_bytes() == (
        tmp_path / "runs/tiny/spm.model"
    ).read_bytes()
    nmt.run("export", "runs/imported", *export, "second")
    first, second = (
        {path.name: path.read_bytes() for path in (tmp_path / name).iterdir()}
        for name in ("first", "second")
    )
    assert "num_beams" in first["generation_config.json"].decode()
    assert "data.json" in first
    del first["data.json"], second["data.json"]  # the second one names the first export
    assert first == second
    search = yaml.safe_load((tmp_path / "runs/imported/config.yaml").read_text())["search"]
    assert search == "beam(beam_size=4, length_normalization='average')"


@pytest.mark.slow
def test_one_sentencepiece_model_for_both_languages_is_exported_and_imported(
    tmp_path: Path,
) -> None:
    nmt = CommandLine(tmp_path)
    marian(tmp_path / "opus")
    shutil.copyfile(tmp_path / "opus/source.spm", tmp_path / "opus/target.spm")
    export = ("--to", "transformers", "--min-agreement", "0", "--output", "exported")
    for command in (["import", "opus"], ["export", "runs/opus", *export], ["import", "exported"]):
        nmt.run(*command)
    first, second = (
        next((tmp_path / "runs" / name).glob("tokenizer.*")) for name in ("opus", "exported")
    )
    assert first.read_bytes() == second.read_bytes()


@pytest.mark.slow
def test_licenses_of_an_exported_model_are_kept(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    marian(tmp_path / "opus")
    (tmp_path / "opus/README.md").write_text('---\nlicense:\n- cc-by-nc-4.0\n- "\\e[31mred"\n---\n')
    nmt.run("import", "opus")
    record = tmp_path / "runs/opus/data.json"
    others = [
        origin(tmp_path / "runs/opus"),
        {"source": "b", "license": "cc-by-sa-4.0"},
        {"source": "c"},
    ]
    translators = []
    for name, other in zip("abc", others, strict=True):
        parent = {"model": name, "checkpoint": "s", "sha256": "0", "imported": [other]}
        translators.append(parent)
    changes = {"translators": [*translators, {"model": "incomplete"}], "teacher": 5}
    record.write_text(json.dumps(json.loads(record.read_text()) | changes))
    info = " ".join(nmt("info", "runs/opus").out.split())
    assert "trained on translations of a/s" in info
    assert "weights of b, license cc-by-sa-4.0" in info
    export = ("--to", "transformers", "--min-agreement", "0", "--output", "exported")
    for command in (["export", "runs/opus", *export], ["import", "exported"]):
        nmt.run(*command)
    imported = origin(tmp_path / "runs/exported")
    assert imported["license"] == "cc-by-nc-4.0, \\x1b[31mred, cc-by-sa-4.0"
    assert imported["source"] == "exported"
    (tmp_path / "exported/README.md").write_text("---\nlicense: mit\n---\n")
    nmt.run("import", "exported", "--run", "runs/other")
    assert origin(tmp_path / "runs/other")["license"] == "mit"
    data = json.loads((tmp_path / "runs/exported/data.json").read_text())
    assert data.keys() == {"max_source_length", "max_sentences_per_line", "imported"}


@pytest.mark.parametrize(
    "content", ['[{"en": "a", "de": "b"}]', "text", '{"derived_from": 5, "imported": []}']
)
def test_a_file_of_another_program_in_a_model_is_ignored(content: str, tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    (tmp_path / "opus/data.json").write_text(content)
    CommandLine(tmp_path).run("import", "opus")
    data = json.loads((tmp_path / "runs/opus/data.json").read_text())
    assert data.keys() == {"max_source_length", "max_sentences_per_line", "imported"}


def test_a_model_may_have_more_positions_than_a_batch(tmp_path: Path) -> None:
    marian(tmp_path / "opus", max_position_embeddings=4096)
    _change("tokenizer_config.json", model_max_length=None)(tmp_path / "opus")
    assert (
        discovery.load(
            import_model(str(tmp_path / "opus"), tmp_path / "run")
        ).config.train.max_length
        == 4096
    )


def test_a_run_that_another_process_imports_is_not_used_for_another_model(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    marian(tmp_path / "a")
    import_run, run = imports.import_repository, tmp_path / "run"

    def import_other(*_: object) -> bool:
        return not import_run(tmp_path / "a", str(tmp_path / "a"), run)

    monkeypatch.setattr(imports, "import_repository", import_other)
    (tmp_path / "b").mkdir()
    with pytest.raises(UsageError, match="run already exists"):
        import_model(str(tmp_path / "b"), run)


@pytest.mark.slow
def test_every_command_works_with_an_imported_model(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    write(tmp_path / "text", *sentences(20))
    write(tmp_path / "few", *sentences(3))
    verify = ("--verify-with", "few.en", "--min-agreement", "0.5")
    marian(tmp_path / "opus")
    nmt.run("import", "opus")
    for arguments in (
        ["translate", "the dog", "--model", "runs/opus"],
        ["score", "--model", "runs/opus", "--src", "text.en", "--tgt", "text.de"],
        ["evaluate", "--model", "runs/opus", "--src", "text.en", "--ref", "text.de"],
        ["info", "runs/opus"],
        ["attention", "the dog", "--model", "runs/opus", "-o", "attention.json"],
        ["export", "runs/opus", "--to", "ctranslate2"],
        ["export", "runs/opus", "--to", "transformers", *verify],
        ["export", "runs/opus", "--to", "safetensors", "--output", "copy", *verify],
    ):
        nmt.run(*arguments)
    unknown = "the training data of runs/opus, an imported model, is unknown"
    nmt("evaluate", "--model", "runs/opus").assert_fails(2, unknown, "hint: name a test set")
    nmt("compare", "runs/opus", "runs/opus").assert_fails(2, unknown, "hint: name a test set")
    assert "imported   opus, license not specified" in nmt("info", "runs/opus").out
    lacks = "prefix or constraints have characters that the model's vocabulary lacks"
    for option in ("--prefix", "--constraint"):
        nmt("translate", "the dog", "--model", "runs/opus", option, "→").assert_fails(2, lacks)
    shutil.copytree(tmp_path / "runs/opus", tmp_path / "runs/other")
    nmt.run("average", "runs/opus", "runs/other", "--share", "0.5", "--run", "runs/mean")
    nmt("evaluate", "--model", "runs/mean").assert_fails(
        2, "the training data of runs/mean", "hint: name a test set"
    )
    corpus = "data.train=files(train='text', valid='text', hold_out=False)"
    steps = ("--set", "train.steps=4", "--set", "train.valid_every=2")
    tuned = nmt.run(
        "train", "--init-from", "runs/opus", "--run", "runs/tuned", "--set", corpus, *steps
    )
    # Tokens that the imported model never generates do not dominate the loss.
    biases = [
        discovery.load(tmp_path / "runs" / name).model.output_bias_V for name in ("opus", "tuned")
    ]
    assert [bias.min().item() < -900 for bias in biases if bias is not None] == [True, False]
    # The sides keep their own SentencePiece models, the search and the license are those of the
    # imported model.
    names = ("runs/opus/tokenizer.zip", "runs/tuned/tokenizer.zip")
    assert len({(tmp_path / name).read_bytes() for name in names}) == 1
    (prepared,) = (path.parent for path in (tmp_path / "data/prepared").glob("*/manifest.json"))
    manifest = json.loads((prepared / "manifest.json").read_text())
    store = PreparedData(prepared, "en", "de", manifest).store("train")
    tokenizer = discovery.load(tmp_path / "runs/tuned").tokenizer
    assert (store.source(0), store.target(0)) == tuple(
        (tmp_path / f"text.{code}").read_text().splitlines()[0] for code in ("en", "de")
    )
    for ids, text, is_target in zip(
        store[0], (store.source(0), store.target(0)), (False, True), strict=True
    ):
        assert (
            ids.tolist()
            == tokenizer.encode(text, target=is_target)
            != tokenizer.encode(text, target=not is_target)
        )
    assert (
        discovery.load(tmp_path / "runs/tuned").config.search
        == discovery.load(tmp_path / "runs/opus").config.search
    )
    assert "weights of opus, license not specified" in " ".join(
        nmt("info", "runs/tuned").out.split()
    )
    assert "license not specified" in (tmp_path / "runs/tuned/README.md").read_text()
    # Not the phrasebook, which the model was not trained on.
    assert "no comparison on other text" in tuned.err
    assert (
        nmt("average", "runs/opus", "runs/tuned", "--share", "0.3").out
        == "runs/tuned-average-0.3\n"
    )
    nmt.run("export", "runs/tuned-average-0.3", "--to", "transformers", *verify)
    nmt.run("translate", "the dog", "--model", "runs/tuned")
    nmt.run("train", "--init-from", "runs/tuned", "--run", "runs/again", "--set", corpus, *steps)
    nmt.run("export", "runs/again", "--to", "transformers", *verify)


@pytest.mark.slow
def test_a_model_without_source_eos(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    write(tmp_path / "text", *sentences(20))
    marian(tmp_path / "opus")
    nmt.run("import", "opus")
    run = "runs/opus"
    nmt.run("attention", "the dog", "--model", run, "-o", "attention.json")
    assert "</s>" in json.loads((tmp_path / "attention.json").read_text())["source_tokens"]
    config = tmp_path / run / "config.yaml"
    changed = config.read_text().replace("source_eos: true", "source_eos: false")
    assert "source_eos: false" in changed
    config.write_text(changed)
    for arguments in (
        ["translate", "", "日本", "--model", run],
        ["evaluate", "--model", run, "--src", "text.en", "--ref", "text.de"],
        ["attention", "the dog", "--model", run, "-o", "attention.json"],
        ["export", run, "--to", "ctranslate2", "--min-agreement", "0"],
        ["export", run, "--to", "safetensors"],
    ):
        nmt.run(*arguments)
    maps = json.loads((tmp_path / "attention.json").read_text())
    assert "</s>" not in maps["source_tokens"]
    assert len(maps["weights"]["cross"][0][0][0]) == len(maps["source_tokens"])
    nmt("export", run, "--to", "transformers").assert_fails(
        2, "does not support model.source_eos=False"
    )


@pytest.mark.slow
def test_large_vocabularies_can_be_fine_tuned(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    write(tmp_path / "text", *sentences(10))
    marian(tmp_path / "opus", num_unused=LARGE)
    nmt.run("import", "opus")
    corpus = "data.train=files(train='text', valid='text', hold_out=False)"
    options = ("train.steps=2", "train.valid_every=2", "train.calibration_pairs=0", corpus)
    changes = [word for option in options for word in ("--set", option)]
    nmt.run("train", "--init-from", "runs/opus", "--run", "runs/tuned", *changes)
    nmt.run("translate", "the dog", "--model", "runs/tuned", "--search", "greedy")
    (ids,) = (tmp_path / "data/prepared").glob("*/train-00000.ids")
    largest = np.fromfile(ids, np.uint32).max()
    assert 2**16 < largest < 2**16 + 100  # 32 bits


def test_target_language_prefix_chooses_a_token(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    tokenizer = discovery.load(import_model(str(tmp_path / "opus"), tmp_path / "run")).tokenizer
    plain, prefixed = tokenizer.encode_batch(["the dog", ">>deu<< the dog"])
    assert prefixed == [*tokenizer.pieces_to_ids([">>deu<<"]), *plain]
    assert UNK not in prefixed
    assert tokenizer.encode("日") == [*tokenizer.pieces_to_ids(["▁"]), UNK]


def test_source_noise_keeps_the_token_of_the_target_language(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    tokenizer = discovery.load(import_model(str(tmp_path / "opus"), tmp_path / "run")).tokenizer
    store = SimpleNamespace(source=lambda i: ">>deu<< The dog, now.")
    loader: Any = SimpleNamespace(store=store, tokenizer=tokenizer, seed=1)
    first = np.zeros(1, np.int64)
    window = Window(0, 0, first, np.zeros((1, 2), np.int64), np.ones((1, 1), bool), [])
    for name, expected in {"uppercase": "THE DOG, NOW.", "no_punctuation": "The dog now"}.items():
        loader.noise = SourceNoise([name])
        assert Loader._noisy_sources(loader, window, first) == [f">>deu<< {expected}"]


def test_every_sentence_of_a_line_gets_the_token_of_its_target_language(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    translator = Translator.load(
        import_model(str(tmp_path / "opus"), tmp_path / "run"), "cpu", "fp32"
    )
    token = translator.tokenizer.pieces_to_ids([">>deu<<"])
    for lines in ([">>deu<< the dog sees. the cat sees."], [">>deu<< the dog.", "the cat."]):
        segments = translator.segmenter.split([Line(line) for line in lines])
        assert [segment.source.ids[:1] for line in segments for segment in line] == (
            [token, token] if len(lines) == 1 else [token, translator.tokenizer.encode("the")[:1]]
        )
    # The token counts for the length of a segment and as its first word, but not as a word of the
    # line.
    translator.segmenter.max_source_length = 12
    line = Line(">>deu<< " + "dog cat " * 30)
    [segments] = translator.segmenter.split([line])
    assert len(segments) > 5
    assert all(
        len(segment.source.ids) <= 12 and segment.source.ids[:1] == token for segment in segments
    )
    words = line.text.split()
    for segment, (start, end) in zip(segments, translator.segmenter.spans(line), strict=True):
        first = segment.word_offset + (segment is not segments[0])
        assert (
            words[first : first + len(line.text[start:end].split())] == line.text[start:end].split()
        )
    [[part]] = translator.segmenter.split([Line("the dog", language=">>deu<< ")])
    assert (part.source.ids[:1], part.word_offset) == (token, -1)
    translator.segmenter.max_source_length = 511
    assert translator.translate([">>deu<< ", ">>deu<<", "x"])[:2] == [" ", ""]
    assert Guard(translator).translate([">>deu<< ", ">>deu<< 2024"]) == [" ", "2024"]
    [[copied]] = Guard(translator).stream([[">>deu<< 20 24"]])
    assert copied.alignment == ((1, 0), (2, 1))
    searched: list[Line] = []
    scored: list[str] = []
    search, score = translator.stream, translator.score

    def record(chunks: Any, *arguments: Any, **options: Any) -> Any:
        chunks = [list(chunk) for chunk in chunks]
        searched.extend(line for chunk in chunks for line in chunk)
        return search(chunks, *arguments, **options)

    def record_scored(pairs: Any) -> Any:
        scored.extend(source for source, _ in pairs)
        return score(pairs)

    translator.stream, translator.score = record, record_scored
    glossary = Glossary([Term("cat", "Kater", "eng"), Term("dog", "Hund", "eng")])
    Guard(translator, glossary=glossary).translate(
        [">>deu<< the dog sees a@b.de today. the cat 7:30."]
    )
    assert len(searched) > 5
    assert {line.language for line in searched} == {">>deu<< "}
    # To find the words of terms.
    assert {*scored} >= {
        ">>deu<< the dog sees a@b.de today.",
        ">>deu<< the cat 7:30.",
    }
    assert all(source.startswith(">>deu<< ") for source in scored)


@pytest.mark.parametrize(
    ("named", "code"), [("pt-BR", "pt-BR"), ("deu+eng", "deu_eng"), ("", "tgt")]
)
def test_language_of_the_model(tmp_path: Path, named: str, code: str) -> None:
    marian(tmp_path / "opus")
    _change("tokenizer_config.json", target_lang=named)(tmp_path / "opus")
    assert (
        discovery.load(import_model(str(tmp_path / "opus"), tmp_path / "run")).config.data.tgt
        == code
    )


def test_a_model_of_a_group_of_languages_has_unknown_languages(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    _change("tokenizer_config.json", source_lang="gem", target_lang="gem")(tmp_path / "opus")
    data = discovery.load(import_model(str(tmp_path / "opus"), tmp_path / "run")).config.data
    assert (data.src, data.tgt) == UNKNOWN_LANGUAGES


def test_the_current_directory_is_imported_by_its_name(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    assert (
        CommandLine(tmp_path / "opus", {"NMT_RUNS": str(tmp_path / "runs")}).run("import", ".").out
        == f"{tmp_path}/runs/opus\n"
    )


def _change(file: str, **options: Any) -> Callable[[Path], None]:
    def change(directory: Path) -> None:
        values = json.loads((directory / file).read_text()) | options
        (directory / file).write_text(
            json.dumps({key: value for key, value in values.items() if value is not None})
        )

    return change


def _drop_tensor(directory: Path) -> None:
    weights = load_file(directory / "model.safetensors")
    del weights["model.decoder.layers.1.fc2.bias"]
    save_file(weights, directory / "model.safetensors")


def _cut_tensor(directory: Path, name: str = "fc2.bias") -> None:
    weights = load_file(directory / "model.safetensors")
    weights[f"model.decoder.layers.1.{name}"] = weights[f"model.decoder.layers.1.{name}"][
        ..., :-1
    ].clone()
    save_file(weights, directory / "model.safetensors")


def _pickle(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    with open(directory / "pytorch_model.bin", "wb") as file:
        pickle.dump({"model.shared.weight": Path("/")}, file)


def _nested(directory: Path) -> None:
    (directory / "model.safetensors").unlink()
    torch.save(
        {"model": {"model.shared.weight": torch.zeros(1)}, "step": 3},
        directory / "pytorch_model.bin",
    )


def _replace_weights(directory: Path, content: bytes) -> None:
    (directory / "model.safetensors").unlink()
    (directory / "pytorch_model.bin").write_bytes(content)


def _cut_legacy_pickle(directory: Path) -> None:
    content = io.BytesIO()
    torch.save(
        {"model.shared.weight": torch.zeros(1)}, content, _use_new_zipfile_serialization=False
    )
    _replace_weights(directory, content.getvalue()[:200])


def _infinite_bias(directory: Path) -> None:
    with np.load(directory / "model.npz") as loaded:
        arrays = dict(loaded)
    arrays["decoder_ff_logit_out_b"][0, 1] = np.inf
    np.savez(directory / "model.npz", **arrays)


def _damage_compressed_arrays(directory: Path) -> None:
    np.savez_compressed(directory / "model.npz", Wemb=np.arange(9999))
    content = bytearray((directory / "model.npz").read_bytes())
    content[100:200] = bytes(100)
    (directory / "model.npz").write_bytes(content)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (_change("config.json", model_type="bart"), "a model of type 'bart'"),
        (
            _change("config.json", normalize_embedding=True),
            "normalize_embedding=True of the model is not supported",
        ),
        (
            _change("config.json", normalize_before=True),
            "normalize_before=True of the model is not supported",
        ),
        (
            _change("config.json", activation_function="tanh"),
            "activation_function=tanh of the model is not supported",
        ),
        (
            _change("config.json", encoder_ffn_dim=64),
            "encoder_ffn_dim=64 and decoder_ffn_dim=48 differ",
        ),
        (_change("config.json", d_model=None), "config.json is incomplete or damaged: 'd_model'"),
        (
            _change("config.json", encoder_layers=3),
            "has no tensor model.encoder.layers.2.self_attn.q_proj.weight",
        ),
        (_change("vocab.json", extra=999), "vocab.json does not fit the weights"),
        (lambda d: (d / "config.json").write_text("{"), "config.json is not a JSON object"),
        (lambda d: (d / "vocab.json").unlink(), "cannot read"),
        (
            lambda d: (d / "source.spm").write_bytes(b"x"),
            "source.spm or target.spm is not a SentencePiece model",
        ),
        (
            lambda d: (d / "model.safetensors").write_bytes(b"x" * 99),
            "model.safetensors is damaged",
        ),
        (
            lambda d: (d / "model.safetensors").unlink(),
            "has neither model.safetensors nor pytorch_model.bin",
        ),
        (lambda d: (d / "config.json").unlink(), "is not a model in a known format"),
        (_drop_tensor, "has no tensor model.decoder.layers.1.fc2.bias"),
        (_cut_tensor, "the weights do not fit the config of the model"),
        (
            functools.partial(_cut_tensor, name="self_attn.q_proj.weight"),
            "config.json is incomplete or damaged",
        ),
        (_pickle, "contains more than tensors"),
        (_nested, "pytorch_model.bin is damaged"),
        (_cut_legacy_pickle, "pytorch_model.bin is damaged"),
        (
            functools.partial(_replace_weights, content=b"version https://git-lfs"),
            "pytorch_model.bin is damaged\n",
        ),
    ],
)
def test_malformed_models_are_one_line(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    nmt = CommandLine(tmp_path)
    marian(tmp_path / "opus")
    damage(tmp_path / "opus")
    nmt("import", "opus").assert_fails(1, message, "hint: ")
    assert [path.name for path in (tmp_path / "runs").iterdir()] == [".opus.lock"]


def test_models_of_ctranslate2_are_rejected(tmp_path: Path) -> None:
    (tmp_path / "package/model").mkdir(parents=True)
    for name in ("metadata.json", "sentencepiece.model", "model/config.json", "model/model.bin"):
        (tmp_path / "package" / name).write_text("{}")
    for suffix in (".zip", ".argosmodel"):
        with zipfile.ZipFile(tmp_path / f"en_de{suffix}", "w") as archive:
            for file in (tmp_path / "package").rglob("*"):
                archive.write(file, file.relative_to(tmp_path))
    nmt = CommandLine(tmp_path)
    for source in ("package", "package/model", "en_de.zip", "en_de.argosmodel"):
        message = f"error: {source} is a model of CTranslate2 or Argos Translate"
        if source == "en_de.zip":
            message = "error: en_de.zip/package/model is a model of CTranslate2"
        nmt("import", source).assert_fails(1, message, "hint: import the model that it was made")
    assert not [path for path in (tmp_path / "runs").iterdir() if path.suffix != ".lock"]


def test_invalid_arguments(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    (tmp_path / "runs/opus").mkdir(parents=True)
    (tmp_path / "opus").mkdir()
    nmt("import", "opus").assert_fails(2, "runs/opus already exists", "--run")
    run = pretrained.DIRECTORY / "en-de"
    nmt("import", str(run), "--run", "runs/new").assert_fails(
        1, "is a run of nmt already", f"use it: --model {run}"
    )
    nmt("import", "opus", "--run", "runs/new", "--revision", "v1").assert_fails(
        2, "--revision applies to repositories"
    )
    nmt("import", "opus", "--run", "runs/new", "--src-lang", "x y").assert_fails(
        2, "source language 'x y' is not a"
    )
    nmt("import", "en-de").assert_fails(2, "en-de is a pretrained model", "--model en-de")
    nmt("import", "nowhere").assert_fails(2, "nowhere is not a directory or zip file", "OWNER/NAME")


def test_pickled_weights_are_loaded(tmp_path: Path) -> None:
    model = marian(tmp_path / "opus")
    (tmp_path / "opus/model.safetensors").unlink()
    torch.save(model.state_dict(), tmp_path / "opus/pytorch_model.bin")
    assert import_model(str(tmp_path / "opus"), tmp_path / "run").is_dir()


REPOSITORY, COMMIT = "someone/opus-mt-en-de", "0123456789abcdef0123456789abcdef01234567"


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[tuple[CommandLine, list[str], threading.Event]]:
    """A loopback server with one repository in the protocol of the Hugging Face Hub.

    Yields the paths of its requests, and an event: while it is not set, downloads of the weights
    stop halfway.
    """
    is_complete = threading.Event()
    is_complete.set()
    marian(tmp_path / "published")
    files = {path.name: path.read_bytes() for path in (tmp_path / "published").iterdir()}
    files["tf_model.h5"] = b"not needed"
    requests = []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            requests.append(self.path)
            name = self.path.rpartition("/")[2]
            if self.path.startswith("/api/models/behind/proxy"):
                return self.answer(b"<html>Sign in</html>", "text/html")
            if self.path.startswith(f"/api/models/{REPOSITORY}"):
                siblings = [
                    {"rfilename": name, "size": len(content)} for name, content in files.items()
                ]
                siblings = [each for each in siblings if each["rfilename"] not in self.path]
                info = {
                    "id": REPOSITORY,
                    "sha": COMMIT,
                    "siblings": siblings,
                    "cardData": {"license": "cc-by-4.0"},
                    "config": {"model_type": "m2m_100" if "other-type" in self.path else "marian"},
                }
                tree = [
                    {"type": "file", "path": name, "size": len(files[name]), "oid": name}
                    for name in files
                ]
                return self.answer(
                    json.dumps(tree if "/tree/" in self.path else info).encode(), "application/json"
                )
            if self.path == f"/{REPOSITORY}/resolve/{COMMIT}/{name}" and name in files:
                return self.answer(files[name], "application/octet-stream")
            self.send_response(404)
            self.send_header("X-Error-Code", "RepoNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()

        do_HEAD = do_GET

        def answer(self, content: bytes, kind: str) -> None:
            self.send_response(200)
            for key, value in {
                "Content-Type": kind,
                "Content-Length": str(len(content)),
                "X-Repo-Commit": COMMIT,
                "ETag": f'"{hashlib.sha1(content).hexdigest()}"',
            }.items():
                self.send_header(key, value)
            self.end_headers()
            if self.command == "GET":
                half = len(content) // 2
                self.wfile.write(content[:half])
                if "safetensors" in self.path:
                    is_complete.wait()
                with contextlib.suppress(ConnectionError):  # from a process that was killed
                    self.wfile.write(content[half:])

        def log_message(self, *arguments: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    environment = {
        "HF_ENDPOINT": f"http://127.0.0.1:{server.server_port}",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
    }
    yield CommandLine(tmp_path, environment), requests, is_complete
    is_complete.set()
    server.shutdown()
    server.server_close()


def start(nmt: CommandLine, *arguments: str) -> subprocess.Popen[bytes]:
    """Start a command that imports huggingface_hub, which reads the environment only then."""

    def forget() -> None:
        for name in [*sys.modules]:
            if name.partition(".")[0] == "huggingface_hub":
                del sys.modules[name]

    return nmt.fork(*arguments, preexec_fn=forget)


def run(nmt: CommandLine, *arguments: str) -> Done:
    """Run a command like `start`."""
    return finish(start(nmt, *arguments))


@pytest.mark.slow
def test_download_from_the_hub(hub: tuple[CommandLine, list[str], threading.Event]) -> None:
    nmt, requests, _ = hub
    names = (
        REPOSITORY,
        f"{REPOSITORY}-other-type",
        f"{REPOSITORY}-vocab.json",
        "behind/proxy",
        "someone/else",
    )
    done, *failed = [run(nmt, "import", name) for name in names]
    assert (done.code, done.out) == (0, "runs/opus-mt-en-de\n"), done.err
    assert re.search(rf"downloading {REPOSITORY} \(\d+ kB, license cc-by-4.0\)", done.err)
    assert not [path for path in requests if "tf_model" in path]
    info = " ".join(nmt("info", "runs/opus-mt-en-de").out.split())
    assert f"{REPOSITORY}, revision {COMMIT[:12]}, license cc-by-4.0" in info
    messages = (
        "has a model of type 'm2m_100'",
        "has no vocab.json",
        "cannot download behind/proxy: ",
        "has no public model someone/else",
    )
    for each, message in zip(failed, messages, strict=True):
        each.assert_fails(1, message, "hint: ")
    assert not [
        path for path in requests if "-other-type/resolve" in path or "-vocab.json/resolve" in path
    ]
    count = len(requests)
    offline = CommandLine(nmt.directory, nmt.environment | {"HF_HUB_OFFLINE": "1"})
    again = run(offline, "import", REPOSITORY, "--run", "runs/again")
    missing = run(offline, "import", "someone/else")
    assert again.code == 0, again.err
    assert "using the cached" in again.err
    assert len(requests) == count
    missing.assert_fails(1, "someone/else is not in its cache", "hint: ")
    unreachable = CommandLine(
        nmt.directory, nmt.environment | {"HF_ENDPOINT": "http://127.0.0.1:1"}
    )
    run(unreachable, "import", "someone/else").assert_fails(
        1, "cannot reach the Hugging Face Hub", "hint: "
    )


@pytest.mark.slow
def test_a_published_model_is_imported_on_first_use(
    hub: tuple[CommandLine, list[str], threading.Event],
) -> None:
    nmt, requests, is_complete = hub
    translate = ("translate", "the dog", "--model", REPOSITORY)
    is_complete.clear()
    killed = start(nmt, *translate)
    wait_until(killed, lambda: any("safetensors" in path for path in requests))
    killed.kill()
    killed.communicate()
    is_complete.set()
    # As if it was killed while it wrote the run.
    temporary = nmt.directory / f"runs/{TEMPORARY}killed"
    part = temporary / NEW / "opus-mt-en-de"
    (part / "step-000000").mkdir(parents=True)
    (temporary / LOCK).touch()
    (part / "leftover").write_text("")
    (part / "step-000000/meta.json").write_text("{}")
    (part / "data.json").write_text('{"origin": {"source": "someone/else"}}')
    assert ".opus" not in nmt("models").out
    nmt("info").assert_fails(1, "there is no trained model under runs/")
    both = [start(nmt, *translate) for _ in range(2)]
    results = [process.communicate() for process in both]
    assert [process.returncode for process in both] == [0, 0], results
    assert results[0][0] == results[1][0] != b""
    log = (results[0][1] + results[1][1]).decode()
    assert (
        len(re.findall(rf"nmt: downloading {REPOSITORY} \(\d+ kB, license cc-by-4.0\)", log)) == 1
    )
    assert sorted(path.name for path in (nmt.directory / "runs").iterdir()) == [
        ".opus-mt-en-de.lock",
        "opus-mt-en-de",
    ]
    assert not (nmt.directory / "runs/opus-mt-en-de/leftover").exists()
    count = len(requests)
    write(nmt.directory / "text", *sentences(20))
    for arguments in (
        [*translate],
        ["score", "--model", REPOSITORY, "--src", "text.en", "--tgt", "text.de"],
        ["evaluate", "--model", REPOSITORY, "--src", "text.en", "--ref", "text.de"],
        ["attention", "the dog", "--model", REPOSITORY, "-o", "attention.json"],
        ["info", REPOSITORY],
        ["summary", REPOSITORY],
        ["compare", REPOSITORY, "runs/opus-mt-en-de", "--src", "text.en", "--ref", "text.de"],
        ["export", REPOSITORY, "--to", "ctranslate2"],
        ["translate", "the dog", "--model", REPOSITORY, "--engine", "ctranslate2"],
        [
            "train",
            "--init-from",
            REPOSITORY,
            "--run",
            "runs/tuned",
            "--set",
            "train.steps=1",
            "--set",
            "data.train=files(train='text', valid='text', hold_out=False)",
        ],
    ):
        nmt.run(*arguments)
    assert len(requests) == count
    models = json.loads(nmt("models", "--json").out)
    (imported,) = (model for model in models if model["path"] == "runs/opus-mt-en-de")
    assert (imported["source"], imported["license"], imported["tgt"]) == (
        REPOSITORY,
        "cc-by-4.0",
        "de",
    )
    nmt("info", "other/opus-mt-en-de").assert_fails(
        1, "runs/opus-mt-en-de is not an import of other/opus-mt-en-de"
    )
    offline = CommandLine(nmt.directory, nmt.environment | {"HF_HUB_OFFLINE": "1"})
    run(offline, "info", "someone/else").assert_fails(
        1, "someone/else is not in its cache", "hint: "
    )
    shutil.copytree(nmt.directory / "runs/opus-mt-en-de", nmt.directory / "someone/else")
    assert nmt("info", "someone/else").out.startswith("someone/else\n")
    for name in ("runs/typo", "text.en/x", "nowhere", "a/b/c", "someone/typo"):
        nmt("summary", name).assert_fails(1, f"there is no model at {name}", "OWNER/NAME")
    assert len(requests) == count


def test_models_lists_published_models_with_their_sources(tmp_path: Path) -> None:
    nmt = CommandLine(tmp_path)
    models = json.loads(nmt("models", "--src", "en", "--json").out)
    assert {model["src"] for model in models} == {"en"}
    assert {"en-de", "Helsinki-NLP/opus-mt-en-de"} <= {model["name"] for model in models}
    for model in models:
        assert (
            bool(model["megabytes"])
            == bool(model["scores"])
            == model["source"].startswith("https://")
        )
    table = nmt("models", "--src", "de", "--tgt", "en").out.splitlines()
    assert len(table) == 3
    assert table[2].split()[2:4] == ["301", "apache-2.0"]
    assert "no known model" in nmt("models", "--src", "xx").err
    assert "write the code of the language: de" in nmt("models", "--src", "German").err


PROJECTIONS = {"q": "q_proj", "k": "k_proj", "v": "v_proj", "o": "out_proj"}
NAMES = {
    f"{marian}_{kind}{letter}": f"{attention}.{projection}.{name}"
    for marian, attention in (("self", "self_attn"), ("context", "encoder_attn"))
    for letter, projection in PROJECTIONS.items()
    for kind, name in (("W", "weight"), ("b", "bias"))
} | {
    "self_Wo_ln_scale": "self_attn_layer_norm.weight",
    "self_Wo_ln_bias": "self_attn_layer_norm.bias",
    "context_Wo_ln_scale": "encoder_attn_layer_norm.weight",
    "context_Wo_ln_bias": "encoder_attn_layer_norm.bias",
    "ffn_W1": "fc1.weight",
    "ffn_b1": "fc1.bias",
    "ffn_W2": "fc2.weight",
    "ffn_b2": "fc2.bias",
    "ffn_ffn_ln_scale": "final_layer_norm.weight",
    "ffn_ffn_ln_bias": "final_layer_norm.bias",
}
"""Names of a layer's parameters in Marian and in Transformers."""


def release(directory: Path, decoder: dict[str, Any] | None = None, **changes: Any) -> Path:
    """Write the model of `marian` as a Marian release next to it, and return its directory.

    `decoder` and `changes` change decoder.yml and the options of the model.
    """
    model, target = marian(directory), directory.with_name("release")
    target.mkdir()
    for name in ("source.spm", "target.spm"):
        shutil.copyfile(directory / name, target / name)
    ids = {
        piece: i
        for piece, i in json.loads((directory / "vocab.json").read_text()).items()
        if piece != "<pad>"
    }
    (target / "vocab.yml").write_text(yaml.safe_dump(ids, allow_unicode=True, sort_keys=False))
    files = {"models": ["model.npz"], "vocabs": ["vocab.yml", "vocab.yml"], "relative-paths": True}
    (target / "decoder.yml").write_text(yaml.safe_dump(files | {"beam-size": 4} | (decoder or {})))
    state = model.state_dict()
    embeddings, bias = state["model.encoder.embed_tokens.weight"], state["final_logits_bias"]
    arrays = {"Wemb": embeddings[:-1], "decoder_ff_logit_out_b": bias[:, :-1]}
    for stack in ("encoder", "decoder"):
        for layer in range(2):
            for name, part in NAMES.items():
                tensor = state.get(f"model.{stack}.layers.{layer}.{part}")
                if tensor is not None:
                    arrays[f"{stack}_l{layer + 1}_{name}"] = (
                        tensor.t() if tensor.ndim == 2 else tensor[None]
                    )
    options = {
        "type": "transformer",
        "dim-emb": 32,
        "enc-depth": 2,
        "dec-depth": 2,
        "transformer-heads": 4,
        "transformer-dim-ffn": 48,
        "transformer-ffn-activation": "swish",
        "tied-embeddings-all": True,
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
    } | {name.replace("_", "-"): value for name, value in changes.items()}
    text = np.frombuffer(yaml.safe_dump(options).encode() + b"\0", np.int8)
    np.savez(
        target / "model.npz",
        **{name: t.numpy() for name, t in arrays.items()},
        **{"special:model.yml": text},
    )
    return target


@pytest.mark.parametrize("as_zip", [False, True])
def test_a_marian_release_has_the_weights_of_the_same_model_of_transformers(
    tmp_path: Path, as_zip: bool
) -> None:
    source = release(tmp_path / "opus")
    if as_zip:
        source = Path(shutil.make_archive(str(tmp_path / "opus-2020"), "zip", source))
    first, second = (
        discovery.load(import_model(str(path), tmp_path / path.stem / "run", src="en", tgt="de"))
        for path in (source, tmp_path / "opus")
    )
    assert first.tokenizer.model == second.tokenizer.model
    weights = first.model.state_dict()
    # Its wavelengths extend to 10000·2π, those of Transformers do not.
    for positions in (first.model.source_positions, first.model.target_positions):
        table_ND = positions.add_positions(torch.zeros(1, 8, 32), 0, 0)[0]
        assert table_ND[7, [3, 19, 15, 31]].tolist() == pytest.approx(
            [
                math.sin(7 / 10000 ** (3 / 15)),
                math.cos(7 / 10000 ** (3 / 15)),
                math.sin(7e-4),
                math.cos(7e-4),
            ]
        )
    assert weights["output_bias_V"][UNK] == MASKED
    weights["output_bias_V"][UNK] = second.model.state_dict()["output_bias_V"][UNK]
    torch.testing.assert_close(weights, second.model.state_dict())


def test_the_search_of_a_marian_release_is_kept(tmp_path: Path) -> None:
    source = release(tmp_path / "opus", {"normalize": 0.6}, transformer_depth_scaling=True)
    config = discovery.load(import_model(str(source), tmp_path / "run", src="en", tgt="de")).config
    assert parse(config.search) == (
        "beam",
        {"beam_size": 4, "length_penalty": 0.6, "length_normalization": "average"},
    )
    (tmp_path / "release/decoder.yml").write_text(
        "{models: [model.npz], vocabs: [vocab.yml, vocab.yml]}"
    )
    config = discovery.load(
        import_model(str(source), tmp_path / "other", src="en", tgt="de")
    ).config
    assert parse(config.search)[1] == {
        "beam_size": 12,
        "length_penalty": 0.0,
        "length_normalization": "average",
    }


@pytest.mark.parametrize("name", ["decoder_ff_logit_out_Wt", "decoder_ff_logit_out_W"])
def test_a_marian_release_with_an_own_output_layer(tmp_path: Path, name: str) -> None:
    source = release(tmp_path / "opus")
    with np.load(source / "model.npz") as loaded:
        arrays = dict(loaded)
    options = (
        arrays["special:model.yml"]
        .tobytes()
        .replace(b"tied-embeddings-all: true", b"tied-embeddings-src: true")
    )
    arrays["special:model.yml"] = np.frombuffer(options, np.int8)
    output_VD = np.random.default_rng(1).normal(size=arrays["Wemb"].shape).astype(np.float32)
    np.savez(
        source / "model.npz", **arrays, **{name: output_VD if name.endswith("t") else output_VD.T}
    )
    model = discovery.load(import_model(str(source), tmp_path / "run", src="en", tgt="de")).model
    ids = yaml.safe_load((source / "vocab.yml").read_text())
    end = model.state_dict()["embeddings.output"][EOS]
    np.testing.assert_array_equal(end.numpy(), output_VD[ids["</s>"]])
    np.savez(source / "model.npz", **arrays, decoder_l1_ffn_gate=np.zeros((2, 2)))
    with pytest.raises(CheckpointError, match="decoder_l1_ffn_gate of the model is not supported"):
        import_model(str(source), tmp_path / "other", src="en", tgt="de")


def test_translations_equal_those_of_marian(tmp_path: Path) -> None:
    pymarian = pytest.importorskip("pymarian", reason="needs pymarian")
    directory = release(tmp_path / "opus")
    (directory / "model.npz").unlink()
    models = [
        spm.SentencePieceProcessor(model_file=str(directory / name))
        for name in ("source.spm", "target.spm")
    ]
    lines = sentences(600)
    for model, text, name in zip(models, lines, ("train.src", "train.tgt"), strict=True):
        rows = (" ".join(row) for row in model.encode(text, out_type=str))
        (directory / name).write_text("".join(f"{row}\n" for row in rows))
    vocabularies = f"{directory / 'vocab.yml'} {directory / 'vocab.yml'}"
    arguments = (
        f"-t {directory / 'train.src'} {directory / 'train.tgt'} --vocabs {vocabularies} --model"
        f" {directory / 'model.npz'} --type transformer --dim-emb 32 --enc-depth 2 --dec-depth 2"
        " --transformer-heads 4 --transformer-dim-ffn 64 --transformer-postprocess dan"
        " --transformer-postprocess-emb d --transformer-ffn-activation swish --tied-embeddings-all"
        " --after-batches 200 --cpu-threads 1 --mini-batch 16 --learn-rate 0.003 --lr-warmup 20"
        " --workspace 512 --quiet --seed 1"
    )
    code = f"import sys, _pymarian; sys.exit(_pymarian.main({arguments!r}.split()))"
    subprocess.run([sys.executable, "-c", code], check=True)
    options = {
        "models": [str(directory / "model.npz")],
        "vocabs": vocabularies.split(),
        "quiet": True,
    }
    options |= {"beam_size": 4, "normalize": 1, "cpu_threads": 1, "mini_batch": 1}
    source = (directory / "train.src").read_text().splitlines()
    pieces = pymarian.Translator(**options).translate(source[:20])
    expected = ["".join(row.split()).replace("▁", " ").strip() for row in pieces]
    translator = Translator.load(import_model(str(directory), tmp_path / "run"), "cpu", "fp32")
    assert list(translator.translate(lines[0][:20])) == expected
    assert len(set(expected)) > 10
    # Log-probabilities, of long sources, too, where the position encodings matter.
    long = [" ".join(source[i : i + 4]) for i in range(0, 40, 4)]
    n_best = pymarian.Translator(**options, n_best=True).translate(long)
    rows = [row.split(" ||| ") for text in n_best for row in text.split("\n") if row]
    best = [next(row for row in rows if row[0] == str(i)) for i in range(len(long))]
    sources, targets = (
        [translator.tokenizer.pieces_to_ids(row.split()) for row in rows]
        for rows in (long, [row[1] for row in best])
    )
    for score, row in zip(translator.engine.score(sources, targets), best, strict=True):
        assert sum(score.log_probs) / len(score.log_probs) == pytest.approx(
            float(row[3].split()[0]), abs=1e-4
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "decoder.yml").write_text("- a: [b"), "decoder.yml is not valid YAML"),
        (
            lambda d: (d / "decoder.yml").write_text("models: []"),
            "decoder.yml names no models and vocabs",
        ),
        (lambda d: (d / "vocab.yml").write_text("just text"), "vocab.yml is not valid YAML"),
        (lambda d: (d / "vocab.yml").unlink(), "cannot read"),
        (lambda d: (d / "source.spm").unlink(), "BPE models are not supported"),
        (lambda d: (d / "model.npz").write_bytes(b"PK"), "model.npz is missing or damaged"),
        (_damage_compressed_arrays, "model.npz is missing or damaged"),
        (_infinite_bias, "decoder_ff_logit_out_b has infinite or undefined values"),
        (lambda d: np.savez(d / "model.npz", Wemb=np.zeros(3)), "has no special:model.yml"),
    ],
)
def test_malformed_releases_are_one_line(
    tmp_path: Path, damage: Callable[[Path], object], message: str
) -> None:
    damage(release(tmp_path / "opus"))
    CommandLine(tmp_path)("import", "release").assert_fails(1, message, "hint: ")


@pytest.mark.parametrize(
    ("decoder", "options", "message"),
    [
        ({"beam-size": "six"}, {}, "model.npz is incomplete or damaged: invalid literal"),
        (
            {},
            {"transformer_ffn_activation": "gelu"},
            "transformer-ffn-activation=gelu of the model is not supported",
        ),
        ({}, {"right_left": True}, "right-left=True of the model is not supported"),
        ({"word-penalty": 0.5}, {}, "word-penalty of decoder.yml is not supported"),
    ],
)
def test_unsupported_releases_are_one_line(
    tmp_path: Path, decoder: dict[str, Any], options: dict[str, Any], message: str
) -> None:
    source = release(tmp_path / "opus", decoder, **options)
    with pytest.raises(CheckpointError, match=message):
        import_model(str(source), tmp_path / "run")


def test_unsafe_archives_are_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "evil.zip", "w") as archive:
        archive.writestr("../outside", "text")
    (tmp_path / "text.zip").write_text("no archive")
    nmt = CommandLine(tmp_path)
    nmt("import", "evil.zip").assert_fails(1, "would write outside its directory (../outside)")
    nmt("import", "text.zip").assert_fails(1, "text.zip is not an intact zip file")


@pytest.mark.parametrize("text", ["[" * 100_000, "models: " + "{a: " * 100_000, "- " * 100_000])
def test_a_release_with_deep_yaml_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep/decoder.yml").write_text(text)
    with pytest.raises(CheckpointError, match=r"decoder\.yml is not valid YAML"):
        import_model(str(tmp_path / "deep"), tmp_path / "run")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"d_model": 65536}, "the weights do not fit"),
        ({"encoder_ffn_dim": 65536, "decoder_ffn_dim": 65536}, "the weights do not fit"),
        ({"encoder_layers": 10**9}, "has no tensor"),
        ({"d_model": 10**30}, r"config\.json is not a JSON object"),
        ({"d_model": -1}, "d_model is out of range"),
        ({"d_model": "32"}, "d_model has the wrong type"),
        ({"pad_token_id": [1]}, "pad_token_id has the wrong type"),
        ({"dropout": float("inf")}, "dropout is out of range"),
    ],
)
def test_numbers_of_a_config_are_compared_before_memory_is_allocated(
    tmp_path: Path, options: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marian(tmp_path / "opus")
    monkeypatch.setattr("nmt.model.build.build_model", lambda *_: pytest.fail("built the network"))
    _change("config.json", **options)(tmp_path / "opus")
    with pytest.raises(CheckpointError, match=message):
        import_model(str(tmp_path / "opus"), tmp_path / "run")


@pytest.mark.parametrize(
    "name",
    [
        "config.json",
        "vocab.json",
        "source.spm",
        "model.safetensors",
        "tokenizer_config.json",
        "data.json",
    ],
)
def test_a_model_with_a_pipe_or_a_device_is_not_read(tmp_path: Path, name: str) -> None:
    marian(tmp_path / "opus")
    path = tmp_path / "opus" / name
    path.unlink(missing_ok=True)
    path.symlink_to("/dev/zero")
    if name == "data.json":  # of another program
        assert import_model(str(tmp_path / "opus"), tmp_path / "run")
        return
    with pytest.raises(
        CheckpointError, match=rf"cannot read .*{re.escape(name)}: it is a pipe or a device"
    ):
        import_model(str(tmp_path / "opus"), tmp_path / "run")


def test_archives_that_expand_are_rejected(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "bomb.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("decoder.yml", bytes(20 << 20))
    np.savez_compressed(tmp_path / "model.npz", Wemb=np.zeros(5 << 20, np.float32))
    with pytest.raises(CheckpointError, match="bytes expand to"):
        import_model(str(tmp_path / "bomb.zip"), tmp_path / "run")
    with pytest.raises(ValueError, match="bytes expand to"):
        untrusted_files.read_arrays(tmp_path / "model.npz")


def test_an_expanded_tensor_is_rejected(tmp_path: Path) -> None:
    marian(tmp_path / "opus")
    weights = load_file(tmp_path / "opus/model.safetensors")
    weights["final_logits_bias"] = torch.zeros(1, dtype=torch.float16).expand(10**9)
    (tmp_path / "opus/model.safetensors").unlink()
    torch.save(weights, tmp_path / "opus/pytorch_model.bin")
    with pytest.raises(CheckpointError, match="final_logits_bias has a damaged shape"):
        import_model(str(tmp_path / "opus"), tmp_path / "run")


def test_a_tokenizer_archive_has_limits(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "tokenizer.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name in ("source.spm", "target.spm", "vocab.json"):
            archive.writestr(name, bytes(12 << 20))
    with pytest.raises(ValueError, match="its content has more than 32 MB"):
        untrusted_files.unzip(
            (tmp_path / "tokenizer.zip").read_bytes(), ["source.spm", "target.spm", "vocab.json"]
        )
    with pytest.raises(CheckpointError, match=r"tokenizer\.zip is damaged"):
        SeparateTokenizer.load(tmp_path / "tokenizer.zip")
    with pytest.raises(CheckpointError, match="not a SentencePiece model"):
        SeparateTokenizer(b"", b"", ["<pad>", "<unk>", "<s>", "</s>"])
