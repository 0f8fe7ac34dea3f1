"""Models of Firefox: the binary format of Marian, import and export."""

from __future__ import annotations

import dataclasses
import gzip
import json
import random
import shutil
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import yaml
from commandline import CommandLine, sentences

from nmt.core.compression import zstd
from nmt.core.config import TokenizerConfig, config_io
from nmt.core.errors import UsageError
from nmt.export import firefox
from nmt.model.build import build_model
from nmt.models import importers, marian_binary
from nmt.models.firefox_layout import EMBEDDINGS, MULTIPLIER, OUTPUT_BIAS
from nmt.models.importers.common import MASKED
from nmt.models.importers.firefox import SUPPORTED
from nmt.models.marian_binary import OPTIONS, Item, Quantized
from nmt.runs.model_files import LoadedModel
from nmt.runs.quantization import MULTIPLIERS
from nmt.search.shortlist import Shortlist
from nmt.text.tokenizer import EOS, train

MODEL = "model.ende.intgemm.alphas.bin"
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
    (directory / MODEL).write_bytes(marian_binary.write(firefox._items(model, ranges)))
    (directory / "vocab.ende.spm").write_bytes(loaded.tokenizer.model)
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
    options = read[OPTIONS]
    assert isinstance(options, bytes)
    assert options.rstrip(b"\0") == b"dim-emb: 64"


@pytest.mark.slow
def test_damaged_files_are_one_error(bare: CommandLine, student: Path) -> None:
    file = student / MODEL
    content = file.read_bytes()
    rng = random.Random(0)
    lengths = [0, 1, 8, 15, 16, 40, 200, len(content) // 2, len(content) - 300]
    damaged = [content[:length] for length in lengths]
    damaged += [rng.randbytes(1000), struct.pack("<Q", 2) + content[8:]]
    damaged += [content[:8] + struct.pack("<Q", count) + content[16:] for count in (0, 2**40)]
    for field in range(4):  # of the first item: lengths, type and number of dimensions
        at = 16 + 8 * field
        damaged += [content[:at] + struct.pack("<Q", 2**63) + content[at + 8 :]]
    for each in damaged:
        file.write_bytes(each)
        bare("import", student, "--run", "run").assert_fails(1, "error: ")
    assert not (bare.directory / "run").exists()


@pytest.mark.slow
def test_wrong_items_are_one_error(bare: CommandLine, student: Path) -> None:
    items = items_of(student)
    bias = "encoder_l1_self_bq"
    changes: list[dict[str, Item]] = [
        {OPTIONS: b"[\0"},
        {OPTIONS: b"{}\0"},
        {OPTIONS: np.zeros((1, 1), np.float32)},
        {"encoder_l1_self_Wq": b"bytes"},
        {"encoder_l1_self_Wq": np.zeros(5, np.float32)},
        {f"encoder_l1_self_Wq{MULTIPLIER}": np.full((1, 1), 3.0, np.float32)},
        {f"encoder_l1_ffn_W1{MULTIPLIER}": np.zeros((1, 1), np.float32)},
        {bias: np.zeros((1, 3), np.float32)},
        {bias: Quantized.of(np.zeros((64, 64), np.float32))},
        {EMBEDDINGS: np.zeros((3, 64), np.float32)},
    ]
    for change in changes:
        write_items(student, items | change)
        bare("import", student, "--run", "run").assert_fails(1, "error: ")
    write_items(student, {name: item for name, item in items.items() if name != bias})
    bare("import", student, "--run", "run").assert_fails(1, bias)
    (student / "vocab.ende.spm").write_bytes(b"no vocabulary")
    bare("import", student, "--run", "run").assert_fails(1, "error: ")
    (student / "vocab.ende.spm").unlink()
    bare("import", student, "--run", "run").assert_fails(1, "error: ")


@pytest.mark.parametrize("name", SUPPORTED)
def test_other_values_of_options_are_refused(bare: CommandLine, student: Path, name: str) -> None:
    set_option(student, name, "another")
    bare("import", student, "--run", "run").assert_fails(1, name)


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
    texts = "\n".join(SOURCES[:20]).encode()
    results = {
        precision: bare.run(
            "translate", "--model", "run", "--precision", precision, stdin=texts
        ).out
        for precision in ("auto", "int8", "fp32")
    }
    assert results["auto"] == results["int8"]


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
    translations = firefox.reference(student)(SOURCES)
    expected = firefox.load(student)(SOURCES)
    assert sum(map(len, expected)) > 20 * len(SOURCES)
    assert [text.strip() for text in translations] == [text.strip() for text in expected]


def test_unsupported_models_are_not_exported(tmp_path: Path) -> None:
    pytest.importorskip("fxtranslate", reason="fxtranslate is not installed")
    loaded = random_student(tmp_path)
    config = dataclasses.replace(
        loaded.config, model=dataclasses.replace(loaded.config.model, norm_position="pre")
    )
    with pytest.raises(UsageError, match="norm_position=pre"):
        firefox.export(dataclasses.replace(loaded, config=config), tmp_path)
