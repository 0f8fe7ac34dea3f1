"""Models of Firefox: the binary format of Marian, import and export."""

from __future__ import annotations

import dataclasses
import gzip
import io
import json
import re
import resource
import shutil
import struct
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sentencepiece
import torch
import yaml
from commandline import CommandLine, sentences

from nmt.core.compression import zstd
from nmt.core.config import TokenizerConfig, config_io
from nmt.core.errors import NMTError, UsageError
from nmt.export import firefox
from nmt.model.build import build_model
from nmt.models import importers, marian_binary
from nmt.models.importers.common import MASKED
from nmt.models.importers.firefox import IGNORED, SUPPORTED, name_pair
from nmt.models.importers.firefox import SIZES as SIZE_OPTIONS
from nmt.models.marian_binary import OPTIONS, Item, Quantized
from nmt.models.marian_layout import EMBEDDINGS, MULTIPLIER, OUTPUT_BIAS, OUTPUT_MULTIPLIER
from nmt.runs import checkpoint
from nmt.runs.model_files import LoadedModel
from nmt.runs.quantization import MULTIPLIERS
from nmt.search.shortlist import FILE, Shortlist
from nmt.text.tokenizer import EOS, load_processor, train

MODEL = "model.ende.intgemm.alphas.bin"
VOCAB = "vocab.ende.spm"
LEX = "lex.50.50.ende.s2t.bin"
Change = Callable[[Path], object]
SOURCES = sentences(300)[0]
SIZES = {"dim": 192, "heads": 4, "ffn_dim": 256, "encoder_layers": 2, "decoder_layers": 2}
CONFIG = config_io.load(
    Path(__file__).parents[2] / "configs/firefox.yaml",
    [f"model.{name}={value}" for name, value in SIZES.items()],
)


def random_student(directory: Path) -> LoadedModel:
    tokenizer = train(
        [line for lines in sentences(400) for line in lines],
        TokenizerConfig(model_type="unigram", vocab_size=304),
    )
    torch.manual_seed(0)
    model = build_model(CONFIG.model, len(tokenizer)).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() == 1:
                parameter.add_(0.1 * torch.randn_like(parameter))
            if name == "embeddings.shared":
                torch.nn.init.normal_(parameter, std=parameter.shape[1] ** -0.5)
            if "cross_attention" in name:  # translations that depend on the source
                parameter.mul_(3)
        bias_V = model.get_parameter("output_bias_V")
        bias_V[EOS] += 0.5
        for token, piece in enumerate(tokenizer.ids_to_pieces(list(range(len(bias_V))))):
            if piece.startswith("<0x"):  # bytes that are no text
                bias_V[token] = MASKED
    config = dataclasses.replace(CONFIG, tokenizer=TokenizerConfig(vocab_size=len(tokenizer)))
    return LoadedModel(directory, directory, config, tokenizer, 250, 1, model)


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of a random student, as the export writes them."""
    directory = tmp_path_factory.mktemp("student")
    loaded = random_student(directory)
    assert len(loaded.tokenizer) % 8 == 0
    model: Any = loaded.model
    ranges = firefox.calibrate(model, loaded.tokenizer, SOURCES[:50])
    ids = np.arange(len(loaded.tokenizer))
    (directory / MODEL).write_bytes(marian_binary.write(firefox._items(model, ranges, ids)))
    (directory / VOCAB).write_bytes(loaded.tokenizer.model)
    return directory


@pytest.fixture
def student(exported: Path, tmp_path: Path) -> Path:
    """A copy of the student that a test may change."""
    return Path(shutil.copytree(exported, tmp_path / "student"))


def items_of(directory: Path) -> dict[str, Item]:
    return marian_binary.read((directory / MODEL).read_bytes())


def write_items(directory: Path, items: dict[str, Item]) -> None:
    (directory / MODEL).write_bytes(marian_binary.write(items))


def set_option(directory: Path, name: str, value: object) -> None:
    items = items_of(directory)
    options = items[OPTIONS]
    assert isinstance(options, bytes)
    changed = yaml.safe_load(options.rstrip(b"\0")) | {name: value}
    write_items(directory, items | {OPTIONS: yaml.safe_dump(changed).encode() + b"\0"})


def test_files_have_the_items_that_were_written() -> None:
    weight = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    items: dict[str, Item] = {
        "matrix": Quantized.of(weight),
        EMBEDDINGS: Quantized.of(weight),
        "vector": weight[:1],
        f"{EMBEDDINGS}{MULTIPLIER}": Quantized(np.full(1, 127, np.int8), 2.0),
        OPTIONS: b"dim-emb: 64\0",
    }
    read = marian_binary.read(marian_binary.write(items))
    assert list(read) == list(items)
    for name in ("matrix", EMBEDDINGS):
        quantized = read[name]
        assert isinstance(quantized, Quantized)
        step = 1 / quantized.multiplier
        assert np.abs(quantized.dequantize() - weight).max() <= 0.51 * step
    np.testing.assert_array_equal(read["vector"], weight[:1])
    number = read[f"{EMBEDDINGS}{MULTIPLIER}"]
    assert isinstance(number, Quantized)
    assert number.dequantize().tolist() == [[63.5]]
    options = read[OPTIONS]
    assert isinstance(options, bytes)
    assert options.rstrip(b"\0") == b"dim-emb: 64"


def set_items(**changes: Item) -> Change:
    return lambda student: write_items(student, items_of(student) | changes)


def remove_item(name: str) -> Change:
    def change(student: Path) -> None:
        items = items_of(student)
        del items[name]
        write_items(student, items)

    return change


def set_header(*fields: tuple[int, int]) -> Change:
    """Overwrite 64-bit numbers at the start of a model, by index."""

    def change(student: Path) -> None:
        content = bytearray((student / MODEL).read_bytes())
        for index, value in fields:
            struct.pack_into("<Q", content, 8 * index, value)
        (student / MODEL).write_bytes(content)

    return change


def cut(name: str, length: int) -> Change:
    return lambda student: (student / name).write_bytes((student / name).read_bytes()[:length])


def compressed(suffix: str, content: bytes, length: int | None = None) -> Change:
    """Replace the model by a compressed file."""

    def change(student: Path) -> None:
        (student / MODEL).unlink()
        compress = {".gz": gzip.compress, ".zst": zstd.compress}[suffix]
        (student / f"{MODEL}{suffix}").write_bytes(compress(content)[:length])

    return change


def link(name: str, target: str) -> Change:
    def change(student: Path) -> None:
        (student / name).unlink()
        (student / name).symlink_to(target)

    return change


def write_shortlist(content: bytes) -> Change:
    return lambda student: (student / LEX).write_bytes(content)


def other_vocabulary(size: int) -> bytes:
    lines = [line.upper() for lines in sentences(400) for line in lines]
    return train(lines, TokenizerConfig(model_type="unigram", vocab_size=size)).model


def two_vocabularies(student: Path) -> None:
    (student / VOCAB).rename(student / "srcvocab.ende.spm")
    (student / "trgvocab.ende.spm").write_bytes(other_vocabulary(304))


WEIGHT = "encoder_l1_self_Wq"
BIAS = "encoder_l1_self_bq"
NOTHING = np.zeros(0, np.int64)
ONE = np.ones((1, 1), np.float32)
BOMB = bytes(32 << 20)
HOSTILE: dict[str, tuple[Change, str]] = {
    "empty": (cut(MODEL, 0), "damaged: it is truncated"),
    "half of the version": (cut(MODEL, 4), "truncated"),
    "half of an entry": (cut(MODEL, 40), "truncated"),
    "half of the data": (cut(MODEL, 50_000), "truncated"),
    "other version": (set_header((0, 2)), "not a binary Marian model of version 1"),
    "many items": (set_header((1, 2**40)), "too many items"),
    "no items": (set_header((1, 0)), "has more than its items"),
    "long name": (set_header((2, 2**63)), "truncated"),
    "unknown type": (set_header((3, 0x1234)), "the type 0x1234 of"),
    "many dimensions": (set_header((4, 2**32)), "too many dimensions"),
    "long data": (set_header((5, 2**63)), "truncated"),
    "wrong name": (set_header((2, 1)), "name of an item is damaged|the same name"),
    "no config": (remove_item(OPTIONS), "has no valid special:model.yml"),
    "config of numbers": (set_items(**{OPTIONS: ONE}), "has no valid special:model.yml"),
    "long config": (set_items(**{OPTIONS: bytes(1 << 17)}), "has no valid special:model.yml"),
    "config is no YAML": (set_items(**{OPTIONS: b"["}), "is not valid YAML"),
    "config is a list": (set_items(**{OPTIONS: b"[]\0"}), "is not valid YAML"),
    "empty config": (set_items(**{OPTIONS: b"{}"}), "it has no option dec-depth"),
    "negative depth": (lambda student: set_option(student, "enc-depth", -1), "enc-depth is out"),
    "depth is text": (lambda student: set_option(student, "enc-depth", "6"), "enc-depth has the"),
    "other depth": (lambda student: set_option(student, "enc-depth", 1), "encoder_l2_ffn_W1 of"),
    "too deep": (lambda student: set_option(student, "enc-depth", 2**30), "has no encoder_l3_self"),
    "other width": (lambda student: set_option(student, "dim-emb", 128), "has the shape"),
    "no weight": (remove_item(WEIGHT), f"it has no {WEIGHT}"),
    "no bias": (remove_item(BIAS), f"it has no {BIAS}"),
    "no multiplier": (remove_item(f"{WEIGHT}{MULTIPLIER}"), f"it has no {WEIGHT}{MULTIPLIER}"),
    "bytes as a weight": (set_items(**{WEIGHT: b"bytes"}), f"{WEIGHT} has the wrong type"),
    "vector as a weight": (set_items(**{WEIGHT: ONE[0]}), f"{WEIGHT} is not a matrix"),
    "narrow weight": (set_items(**{WEIGHT: ONE}), f"inputs of {WEIGHT} and .* different widths"),
    "other heads": (
        lambda student: set_option(student, "transformer-heads", 5),
        "config of the model is not supported: .*must be a multiple",
    ),
    "matrix as a bias": (set_items(**{BIAS: Quantized.of(ONE)}), f"{BIAS} has the wrong type"),
    "short bias": (set_items(**{BIAS: ONE}), "has the shape"),
    "NaN": (set_items(**{BIAS: ONE * np.nan}), f"{BIAS} has infinite or undefined values"),
    "zero multiplier": (set_items(**{f"{WEIGHT}{MULTIPLIER}": 0 * ONE}), "multiplier 0 of"),
    "NaN multiplier": (set_items(**{f"{WEIGHT}{MULTIPLIER}": np.nan * ONE}), "multiplier nan of"),
    "tiny multiplier": (set_items(**{f"{WEIGHT}{MULTIPLIER}": 1e-30 * ONE}), "multiplier 1e-30 of"),
    "several multipliers": (
        set_items(**{f"{WEIGHT}{MULTIPLIER}": 3 * ONE}),
        "the inputs of .* have different multipliers",
    ),
    "multiplier is a matrix": (
        set_items(**{f"{WEIGHT}{MULTIPLIER}": np.ones((2, 2), np.float32)}),
        "is not a number",
    ),
    "weights of two types": (
        set_items(encoder_l1_ffn_W1=np.ones((64, 128), np.float32)),
        "some matrices are in int8, and others in float32",
    ),
    "other parameters": (
        set_items(decoder_ff_logit_out_Wt=ONE),
        "parameter decoder_ff_logit_out_Wt of the model is not supported",
    ),
    "few embeddings": (
        set_items(**{EMBEDDINGS: np.zeros((3, 64), np.float32)}),
        "has 304 pieces, and the embeddings of the model have 3 rows",
    ),
    "other vocabulary": (
        lambda student: (student / VOCAB).write_bytes(other_vocabulary(296)),
        "has 296 pieces",
    ),
    "two vocabularies": (two_vocabularies, "has one vocabulary"),
    "both kinds of vocabulary": (
        lambda student: shutil.copy(student / VOCAB, student / "srcvocab.ende.spm"),
        "has a vocabulary of both languages and one of a language",
    ),
    "no vocabulary": (lambda student: (student / VOCAB).unlink(), r"has no file srcvocab"),
    "empty vocabulary": (cut(VOCAB, 0), "not a SentencePiece model"),
    "half of the vocabulary": (cut(VOCAB, 1000), "vocab"),
    "two models": (
        lambda student: shutil.copy(student / MODEL, student / "model.deen.bin"),
        r"has several files model\*\.bin\*: model\.deen\.bin, model\.ende",
    ),
    "model is a directory": (
        lambda student: ((student / MODEL).unlink(), (student / MODEL).mkdir()),
        "it is a directory",
    ),
    "link to a device": (link(MODEL, "/dev/zero"), "a pipe or a device"),
    "link to nothing": (link(MODEL, "nothing"), "No such file"),
    "link to itself": (link(VOCAB, VOCAB), "cannot read"),
    "gzip bomb": (compressed(".gz", BOMB), "bytes expand to more than 16,777,216"),
    "zstandard bomb": (compressed(".zst", BOMB), "bytes expand to more than 16,777,216"),
    "half of gzip": (compressed(".gz", b"a" * 99, 20), "not an intact .gz file"),
    "half of zstandard": (compressed(".zst", b"a" * 99, 10), "not an intact .zst file"),
    "not gzip": (
        lambda student: (student / MODEL).rename(student / f"{MODEL}.gz"),
        "not an intact .gz file",
    ),
    "empty shortlist": (write_shortlist(b""), "lex.* is damaged: it is truncated"),
    "other shortlist": (
        write_shortlist(Shortlist.of(NOTHING, NOTHING, 40, 4, 50).write()),
        "of another vocabulary: 40 tokens, not 304",
    ),
}


@pytest.mark.parametrize("kind", HOSTILE)
def test_hostile_files_are_one_error(student: Path, kind: str) -> None:
    change, message = HOSTILE[kind]
    change(student)
    with pytest.raises(NMTError, match=message) as raised:
        importers.import_model(str(student), student.with_name("run"))
    assert raised.value.hint
    assert not student.with_name("run").exists()


def test_a_part_of_a_model_is_no_model(bare: CommandLine, student: Path) -> None:
    bare("import", student / MODEL).assert_fails(1, "part of a model", f"nmt import {student}")


@pytest.mark.parametrize(
    ("src", "tgt", "pair"),
    [
        ("en", "de", "ende"),
        ("en", "fil", "en-fil"),
        ("hbs", "en", "hbs-en"),
        ("en", "pt-BR", "en-pt-BR"),
        ("zh_Hant", "en", "zh_Hant-en"),
    ],
)
def test_names_of_files_have_the_languages(
    bare: CommandLine, student: Path, src: str, tgt: str, pair: str
) -> None:
    assert name_pair(src, tgt) == pair
    (student / MODEL).rename(student / f"model.{pair}.intgemm.alphas.bin")
    bare.run("import", student, "--run", "run")
    data = config_io.load(bare.directory / "run/config.yaml").data
    assert (data.src, data.tgt) == (src, tgt)


def test_a_model_without_languages_in_its_names(bare: CommandLine, student: Path) -> None:
    (student / MODEL).rename(student / "model.bin")  # as a model of CTranslate2 is named
    (student / VOCAB).rename(student / "vocab.spm")
    unnamed = bare.run("import", student, "--run", "unnamed")
    assert "the languages of the model are unknown" in unnamed.err
    bare("translate", "--model", student, "hi").assert_fails(
        1, "has the format of another toolkit", f"hint: import it: nmt import {student}"
    )
    named = bare.run("import", student, "--run", "run", "--src-lang", "en", "--tgt-lang", "de")
    assert "unknown" not in named.err
    assert config_io.load(bare.directory / "run/config.yaml").data.tgt == "de"


def test_a_full_disk_names_the_run(bare: CommandLine, student: Path) -> None:
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size = (student / MODEL).stat().st_size
    resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, limits[1]))
    try:
        done = bare("import", student, "--run", "run")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    done.assert_fails(1, "cannot save run/step-000000: ", "hint: free disk space")
    assert "--resume" not in done.err
    assert not (bare.directory / "run").exists()


def test_shortlists_are_learned_from_named_corpora(bare: CommandLine, student: Path) -> None:
    bare("tokenizer", "shortlist", "--model", "en-de").assert_fails(2, "en-de is a pretrained")
    importers.import_model(str(student), bare.directory / "run")
    learn = ("tokenizer", "shortlist", "--model", "run")
    bare(*learn).assert_fails(2, "run is imported", "hint: name a corpus")
    for language in ("en", "de"):
        (bare.directory / f"empty.{language}").touch()
    bare(*learn, "--corpus", "files(train='empty', hold_out=False)").assert_fails(
        1, "the corpora have no sentence pairs", "hint: "
    )
    assert not (bare.directory / "run" / FILE).exists()


@pytest.mark.parametrize("name", SUPPORTED)
def test_other_values_of_options_are_refused(bare: CommandLine, student: Path, name: str) -> None:
    set_option(student, name, "another")
    bare("import", student, "--run", "run").assert_fails(1, name)


PUBLIC_SIZES = {"tiny": (256, 1536, 2), "base-memory": (384, 1536, 4), "base": (512, 2048, 2)}
"""Width, width of the feed-forward layers, and decoder layers."""


def public_config(dim: int, ffn_dim: int, decoder_layers: int) -> dict[str, Any]:
    """Return the fields that the training of Mozilla's students sets, and others that Marian
    adds."""
    return {
        "type": "transformer",
        "dim-emb": dim,
        "dim-rnn": 1024,
        "dim-vocabs": [32000, 32000],
        "enc-type": "bidirectional",
        "enc-cell": "gru",
        "enc-cell-depth": 1,
        "enc-depth": 6,
        "dec-cell": "ssru",
        "dec-cell-base-depth": 2,
        "dec-cell-high-depth": 1,
        "dec-depth": decoder_layers,
        "skip": False,
        "layer-normalization": False,
        "right-left": False,
        "input-types": [],
        "tied-embeddings": False,
        "tied-embeddings-all": True,
        "tied-embeddings-src": False,
        "transformer-heads": 8,
        "transformer-dim-ffn": ffn_dim,
        "transformer-decoder-dim-ffn": 0,
        "transformer-ffn-depth": 2,
        "transformer-decoder-ffn-depth": 0,
        "transformer-ffn-activation": "relu",
        "transformer-decoder-autoreg": "rnn",
        "transformer-dim-aan": 2048,
        "transformer-aan-depth": 2,
        "transformer-aan-activation": "swish",
        "transformer-aan-nogate": False,
        "transformer-guided-alignment-layer": "last",
        "transformer-no-projection": False,
        "transformer-preprocess": "",
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "d",
        "transformer-postprocess-top": "",
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False,
        "factors-combine": "sum",
        "factors-dim-emb": 0,
        "lemma-dim-emb": 0,
        "ulr": False,
        "ulr-dim-emb": 0,
        "version": "v1.12.14",
    }


@pytest.mark.parametrize("architecture", PUBLIC_SIZES)
def test_public_configs_are_supported(
    architecture: str, student: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    dim, ffn_dim, decoder_layers = PUBLIC_SIZES[architecture]
    options = public_config(dim, ffn_dim, decoder_layers)
    config = importers.firefox._model_config(options, {})
    sizes = (config.dim, config.ffn_dim, config.encoder_layers, config.decoder_layers)
    assert sizes == (dim, ffn_dim, 6, decoder_layers)
    own_sizes = {name: SIZES[field] for name, field in SIZE_OPTIONS.items()}
    content = yaml.safe_dump(options | own_sizes).encode()
    write_items(student, items_of(student) | {OPTIONS: content})
    importers.read(student)
    assert "ignoring" not in capsys.readouterr().err


def test_unknown_options_are_named(student: Path, capsys: pytest.CaptureFixture[str]) -> None:
    set_option(student, "new-option", 3)
    importers.read(student)
    message = "ignoring 1 unknown option of the model, which may change translations: 'new-option'"
    assert f"nmt: warning: {message}" in capsys.readouterr().err


def test_the_documented_config_fields_are_those_of_the_import() -> None:
    page = Path(__file__).parents[2] / "docs/published-models.md"
    documented: dict[str, object] = {}
    for line in page.read_text().splitlines():
        fields, *rest = line.strip("|").split(" | ")
        names = re.findall("`([^`]+)`", fields)
        if len(rest) != 2 or not re.match("reads|rejects|ignores", rest[1]):
            continue
        values = [yaml.safe_load(value) for value in re.findall("`([^`]+)`", rest[0])]
        action = rest[1].split()[0]
        for name in names:
            assert name not in documented
            documented[name] = (action, repr(values))
    expected = dict.fromkeys(SIZE_OPTIONS, ("reads", "[]")) | dict.fromkeys(
        IGNORED, ("ignores", "[]")
    )
    for name, supported in SUPPORTED.items():
        expected[name] = ("rejects", repr(list(supported)))
    assert documented == expected


@pytest.mark.slow
@pytest.mark.parametrize("compression", ["", ".gz", ".zst"])
def test_multipliers_survive_the_import(bare: CommandLine, student: Path, compression: str) -> None:
    compress = {"": bytes, ".gz": gzip.compress, ".zst": zstd.compress}[compression]
    for file in list(student.iterdir()):
        content = compress(file.read_bytes())
        file.unlink()
        file.with_name(file.name + compression).write_bytes(content)
    bare.run("import", student, "--run", "run")
    (file,) = (bare.directory / "run").rglob(MULTIPLIERS)
    assert "embeddings.shared" in json.loads(file.read_text())
    texts = "\n".join(SOURCES[:10]).encode()
    if not compression:
        results = {
            precision: bare.run(
                "translate", "--model", "run", "--precision", precision, stdin=texts
            ).out
            for precision in ("auto", "int8", "fp32")
        }
        assert results["auto"] == results["int8"]
    stored = checkpoint.read_stored_weights(file.parent)
    assert stored["embeddings.shared"].dtype == np.int8
    restored = checkpoint.read_weights(file.parent)
    for name, weight in importers.read(student).weights.items():
        np.testing.assert_array_equal(restored[name], weight.numpy())


def test_models_with_two_vocabularies(student: Path) -> None:
    shared = importers.read(student)
    items = items_of(student)
    table = items.pop(EMBEDDINGS)
    multiplier = items.pop(OUTPUT_MULTIPLIER)
    assert isinstance(multiplier, np.ndarray)
    number = Quantized(np.full(1, 127, np.int8), 127 / multiplier.item())
    tables = {f"{stack}_{EMBEDDINGS}": table for stack in ("encoder", "decoder")}
    write_items(student, items | tables | {f"decoder_{EMBEDDINGS}{MULTIPLIER}": number})
    for side in ("src", "trg"):
        shutil.copy(student / VOCAB, student / f"{side}vocab.ende.spm")
    (student / VOCAB).unlink()
    model = importers.read(student)
    for role in ("source", "target", "output"):
        expected = shared.weights["embeddings.shared"]
        torch.testing.assert_close(model.weights[f"embeddings.{role}"], expected)
    np.testing.assert_allclose(
        model.multipliers["embeddings.output"], shared.multipliers["embeddings.shared"], 1e-6
    )


@pytest.mark.slow
def test_models_in_float32_are_imported(bare: CommandLine, student: Path) -> None:
    items: dict[str, Item] = {}
    for name, item in items_of(student).items():
        if isinstance(item, Quantized):
            weight = item.dequantize()
            items[name] = weight if name == EMBEDDINGS else np.ascontiguousarray(weight.T)
        elif not name.endswith(MULTIPLIER):
            items[name] = item
    expected = importers.read(student).weights
    write_items(student, items)
    model = importers.read(student)
    assert not model.multipliers
    for name, weight in model.weights.items():
        torch.testing.assert_close(weight, expected[name])
    bare.run("import", student, "--run", "run")
    assert not list((bare.directory / "run").rglob(MULTIPLIERS))


@pytest.mark.parametrize("has_shortlist", [False, True])
def test_translations_are_those_of_firefox(student: Path, has_shortlist: bool) -> None:
    """Any other rounding would change words of a network with random weights."""
    pytest.importorskip("fxtranslate", reason="fxtranslate is not installed")
    if has_shortlist:
        vocab_size = len(items_of(student)[OUTPUT_BIAS].T)
        rng = np.random.default_rng(0)
        pairs_2N = rng.integers(0, vocab_size, (2, 20 * vocab_size))
        shortlist = Shortlist.of(*np.unique(pairs_2N, axis=1), vocab_size, 20, 40)
        (student / "lex.20.40.ende.s2t.bin").write_bytes(shortlist.write())
    sources = SOURCES[:200]
    translations = firefox.reference(student)(sources)
    expected = firefox.load(student)(sources)
    assert sum(map(len, expected)) > 20 * len(sources)
    assert [text.strip() for text in translations] == [text.strip() for text in expected]


def test_byte_pieces_of_firefox_are_decoded(student: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Translator:
        def __init__(self, *files: bytes) -> None: ...

        def translate(self, sentence: str) -> str:
            return f"{sentence} <0xE2><0x98><0x83>! <0x82><0x41>"

    monkeypatch.setitem(sys.modules, "fxtranslate", types.SimpleNamespace(Translator=Translator))
    assert firefox.load(student)(["A", "B"]) == ["A \u2603! \ufffdA", "B \u2603! \ufffdA"]


def mozilla_vocabulary(lines: list[str], vocab_size: int) -> bytes:
    """Return a SentencePiece model whose first ids are </s> and <unk>, as those of Mozilla."""
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        vocab_size=vocab_size,
        eos_id=0,
        unk_id=1,
        bos_id=-1,
        pad_id=-1,
        byte_fallback=True,
        minloglevel=2,
    )
    return model.getvalue()


@pytest.mark.parametrize("target_size", [288, 296])
def test_translations_with_two_vocabularies_are_those_of_firefox(
    student: Path, target_size: int
) -> None:
    pytest.importorskip("fxtranslate", reason="fxtranslate is not installed")
    rng = np.random.default_rng(0)
    items = items_of(student)
    items.pop(EMBEDDINGS)
    multiplier = items.pop(OUTPUT_MULTIPLIER)
    assert isinstance(multiplier, np.ndarray)
    number = Quantized(np.full(1, 127, np.int8), 127 / multiplier.item())
    items[f"decoder_{EMBEDDINGS}{MULTIPLIER}"] = number
    sources, targets = sentences(600)
    sides = [("encoder", "src", sources, 288), ("decoder", "trg", targets, target_size)]
    for stack, side, lines, size in sides:
        (student / f"{side}vocab.ende.spm").write_bytes(mozilla_vocabulary(lines, size))
        table = rng.standard_normal((size, SIZES["dim"])) / SIZES["dim"] ** 0.5
        items[f"{stack}_{EMBEDDINGS}"] = Quantized.of(table.astype(np.float32))
    target = load_processor((student / "trgvocab.ende.spm").read_bytes())
    bias = 0.1 * rng.standard_normal((1, target_size))
    for token in range(target_size):
        if target.is_byte(token):
            bias[0, token] = MASKED
    items[OUTPUT_BIAS] = bias.astype(np.float32)
    write_items(student, items)
    (student / VOCAB).unlink()
    source_N = np.repeat(np.arange(288), 3)
    target_N = rng.integers(0, target_size, len(source_N))
    shortlist = Shortlist.of(source_N, target_N, 288, 20, 3)
    (student / "lex.20.3.ende.s2t.bin").write_bytes(shortlist.write())
    expected = firefox.load(student)(SOURCES)
    assert len(set(expected)) > 20
    translations = firefox.reference(student)(SOURCES)
    assert [text.strip() for text in translations] == [text.strip() for text in expected]

    # More frequent tokens than both languages share; two ids are those that the files lack.
    frequent = shortlist._replace(num_frequent=270)
    (student / "lex.20.3.ende.s2t.bin").write_bytes(frequent.write())
    imported = importers.read(student).shortlist
    assert imported is not None
    assert imported.num_frequent == 272


def test_an_imported_model_is_exported_again(bare: CommandLine, student: Path) -> None:
    pytest.importorskip("fxtranslate", reason="fxtranslate is not installed")
    ids = np.arange(len(items_of(student)[OUTPUT_BIAS].T))
    lexicon = Shortlist.of(ids, ids[::-1], len(ids), 20, 1).write()
    (student / "lex.20.1.ende.s2t.bin").write_bytes(lexicon)
    (bare.directory / "text").write_text("".join(f"{line}\n" for line in SOURCES[:20]))
    bare.run("import", student, "--run", "run")
    for form in ("firefox(calibrate_with='text')", "safetensors"):
        name = form.partition("(")[0]
        exported = bare.run("export", "run", "--to", form, "--verify-with", "text", "-o", name)
        assert "identical  100.0%" in exported.err + exported.out
    assert (bare.directory / "firefox" / VOCAB).read_bytes() == (student / VOCAB).read_bytes()
    assert next((bare.directory / "firefox").glob("lex.*")).read_bytes() == lexicon
    for path in (FILE, f"step-000000/{MULTIPLIERS}"):
        run = bare.directory / "run" / path
        assert (bare.directory / "safetensors" / path).read_bytes() == run.read_bytes()


def test_a_prefix_is_text_unless_the_vocabulary_has_it(student: Path) -> None:
    tokenizer = importers.read(student).tokenizer
    prefixed = tokenizer.encode(">>dog<< is here")
    assert prefixed[-2:] == tokenizer.encode("is here")[-2:]
    assert len(prefixed) > 1 + len(tokenizer.encode("is here"))


def test_unsupported_models_are_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate", reason="fxtranslate is not installed")
    loaded = random_student(tmp_path)
    config = dataclasses.replace(
        loaded.config, model=dataclasses.replace(loaded.config.model, norm_position="pre")
    )
    with pytest.raises(UsageError, match="norm_position=pre"):
        firefox.export(dataclasses.replace(loaded, config=config), tmp_path)
