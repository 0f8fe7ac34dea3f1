from __future__ import annotations

import dataclasses
import json

import pytest
import torch
from commandline import CommandLine
from test_model import TINY, VARIANTS, VOCABULARY

from nmt.cli.summary import format_summary
from nmt.core.config import ModelConfig
from nmt.model.build import build_model, count_parameters
from nmt.model.summary import summarize


@pytest.mark.parametrize("change", VARIANTS.values(), ids=VARIANTS)
def test_every_parameter_is_counted_once(change: dict[str, object]) -> None:
    model = build_model(dataclasses.replace(TINY, **change), VOCABULARY)
    actual = summarize(model)
    assert sum(
        part.parameters * part.times for part in actual if part.depth == 0
    ) == count_parameters(model)
    assert model.training


def test_layer_sizes_match_the_paper() -> None:
    actual = summarize(
        build_model(
            ModelConfig(
                dim=512,
                heads=8,
                ffn_dim=2048,
                encoder_layers=6,
                decoder_layers=6,
                norm_position="post",
            ),
            100,
        )
    )
    encoder, decoder = (part for part in actual if part.name == "layers 1 to 6")
    assert (encoder.kind, encoder.times, encoder.parameters) == ("EncoderLayer", 6, 3_152_384)
    assert (decoder.kind, decoder.times, decoder.parameters) == ("DecoderLayer", 6, 4_204_032)
    assert (encoder.output, decoder.output) == (("B", "S", 512), ("B", "T", 512))
    up, _ = (part for part in actual if part.name == "up")
    assert (up.depth, up.weight, up.output) == (3, (2048, 512), ("B", "S", 2048))


def test_shapes_with_few_learned_positions() -> None:
    actual = summarize(
        build_model(
            dataclasses.replace(TINY, position_encoding="learned(max_positions=4)"), VOCABULARY
        )
    )
    assert {part.output[1] for part in actual if part.output} == {"S", "T"}


def test_summary_has_no_side_effects() -> None:
    model = build_model(TINY, VOCABULARY)
    before = torch.get_rng_state()
    actual = summarize(model)
    assert torch.equal(torch.get_rng_state(), before)
    assert not any(module._forward_hooks for module in model.modules())
    assert all(part.parameters for part in actual)


def test_table_merges_identical_layers() -> None:
    model = build_model(
        dataclasses.replace(TINY, ffn_dim=1000, encoder_layers=4, layer_sharing=2), VOCABULARY
    )
    total, encoder = count_parameters(model), sum(p.numel() for p in model.encoder.parameters())
    lines = format_summary(model, summarize(model)).splitlines()
    assert lines[-1].endswith("each layer is applied up to 2 times")
    row, _ = (line for line in lines if line.strip().startswith("layer"))
    assert row.startswith("  layers 1 to 2 ")
    assert row.endswith(
        f"[B, S, 16]  {encoder:>10,}  {encoder / total:.1%}  EncoderLayer  2 x {encoder // 2:,}"
    )
    row = next(line for line in lines if line.strip().startswith("up "))
    up = 2 * (16 * 1000 + 1000)
    assert row.startswith("      up ")
    assert row.split()[1:] == [
        "1000",
        "x",
        "16",
        "[B,",
        "S,",
        "1000]",
        f"{up:,}",
        f"{up / total:.1%}",
        "Linear",
    ]
    size = f"{total:,} parameters, {total * 4 / 1e3:.0f} kB in float32"
    assert lines[-1] == f"{size}; each layer is applied up to 2 times"


def test_different_layers_are_separate() -> None:
    model = build_model(dataclasses.replace(TINY, encoder_layers=3), VOCABULARY)
    model.encoder[1].extra = torch.nn.Linear(2, 2)
    names = [part.name for part in summarize(model) if part.kind == "EncoderLayer"]
    assert names == ["layer 1", "layer 2", "layer 3"]


def test_command_summarizes_runs_and_configs(trained: CommandLine) -> None:
    done = trained.run("summary", "runs/tiny")
    lines = done.out.splitlines()
    assert lines[0].split() == ["part", "weight", "output", "parameters", "share"]
    total = int(lines[-1].split()[0].replace(",", ""))
    assert total == json.loads(trained("info", "runs/tiny", "--json").out)["parameters"]
    shown = json.loads(
        trained("summary", "--set", "model.dim=64", "--set", "model.heads=2", "--json").out
    )
    assert next(part for part in shown if part["name"] == "qkv")["weight"] == [192, 64]
    trained("summary", "runs/tiny", "--config", "quickstart").assert_fails(
        2, "pass either a model, or --config and --set"
    )
    trained("summary", "--set", "model.position_encoding=rotry").assert_fails(
        2, "unknown position encoding 'rotry'", "rotary"
    )
