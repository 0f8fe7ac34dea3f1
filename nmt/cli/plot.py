"""`nmt plot`: learning curves, and positional encodings."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from nmt.console import log
from nmt.errors import ConfigError, UsageError, suggest
from nmt.runs import pretrained
from nmt.viz.learning_curves import AXES, draw

if TYPE_CHECKING:
    from nmt.model.positions import EncodingTable, PositionEncoding

OutputOption = Annotated[Path, typer.Option("--output", "-o", help="Picture: .png, .svg or .pdf.")]

app = typer.Typer(
    no_args_is_help=True,
    help="Draw learning curves, or positional encodings; needs matplotlib (pip install matplotlib).",
)


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs.")],
    output: OutputOption = Path("curves.png"),
    by: Annotated[str, typer.Option(help="Horizontal axis: updates, tokens or hours.")] = "updates",
) -> None:
    """Draw learning curves: training and validation loss, BLEU, learning rate, speed.

    Several runs share a picture, for comparing them, and a run may still be training.

    Examples:
      nmt plot curves runs/quickstart
      nmt plot curves runs/a runs/b --by hours -o comparison.svg
    """
    if by not in AXES:
        raise UsageError(f"unknown axis '{by}'", suggest(by, AXES))
    for run in runs:
        pretrained.reject_pretrained(run)
    draw(list(dict.fromkeys(runs)), output, AXES[by])
    typer.echo(output)


@app.command()
def positions(
    encodings: Annotated[
        list[str] | None, typer.Argument(help="Encodings, with their options.", show_default="sinusoidal")
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="A run or checkpoint, to see what it has learned.")
    ] = None,
    output: OutputOption = Path("positions.png"),
    length: Annotated[int, typer.Option(min=2, max=4096, help="Positions to draw.")] = 64,
    decoder: Annotated[bool, typer.Option("--decoder", help="The decoder's, which looks back only.")] = False,
    layer: Annotated[int, typer.Option(min=1, max=100, help="For encodings that differ between layers.")] = 1,
    dim: Annotated[int | None, typer.Option(min=2, max=4096, help="Width of the model.", show_default="128")] = None,
    heads: Annotated[
        int | None, typer.Option(min=1, max=64, help="Attention heads; must divide --dim.", show_default="4")
    ] = None,
) -> None:
    """Draw positional encodings: as a heat map, some channels, and how alike two positions are.

    What is trained is drawn as a training finds it, unless --model names one that has learned; --dim and --heads are
    then the model's.

    Examples:
      nmt plot positions
      nmt plot positions sinusoidal rotary alibi "t5(num_buckets=16)" --length 100
      nmt plot positions --model runs/multi30k --layer 2 -o learned.svg
    """
    from nmt.viz.position_plots import draw

    if model is not None and (encodings or dim is not None or heads is not None):
        raise UsageError("give encodings, or --model, which has its own", "nmt plot positions --model runs/multi30k")
    if model is not None:
        made = _of_model(model, decoder)
    else:
        made = _made(encodings or ["sinusoidal"], dim or 128, heads or 4, layer, decoder)
    draw({name: _table(name, each, length, layer) for name, each in made.items()}, output)
    if model is None and any(list(each.parameters()) for each in made.values()):
        log("trained values are drawn as they begin; --model RUN draws what a model has learned")
    typer.echo(output)


def _made(specs: list[str], dim: int, heads: int, layer: int, decoder: bool) -> dict[str, PositionEncoding]:
    import torch

    from nmt.model.positions import POSITION_ENCODINGS, StackSpec
    from nmt.registry import resolve

    if dim % heads or dim % 2:
        raise ConfigError(f"--dim must be even and a multiple of --heads, got {dim} and {heads}", "--dim 128 --heads 4")
    torch.manual_seed(1)
    stack = StackSpec(dim, heads, layer, causal=decoder)
    return {spec: resolve("position encoding", POSITION_ENCODINGS, spec)(stack) for spec in specs}


def _of_model(path: Path, decoder: bool) -> dict[str, PositionEncoding]:
    from nmt.model.transformer import Transformer
    from nmt.runs import discovery

    loaded = discovery.load(path)
    if not isinstance(loaded.model, Transformer):
        raise UsageError(f"{path} is a recurrent model", "it needs no positions: its states go from word to word")
    made = loaded.model.target_positions if decoder else loaded.model.source_positions
    return {f"{path}: {loaded.config.model.position_encoding}": made}


def _table(name: str, made: PositionEncoding, length: int, layer: int) -> EncodingTable:
    import torch

    if layer > made.stack.layers:
        raise UsageError(f"there is no layer {layer}", f"there are {made.stack.layers}")
    if made.max_positions and length > made.max_positions:
        log(f"{name}: there are {made.max_positions} positions")
    with torch.inference_mode():
        table = made.eval().table(min(length, made.max_positions or length), layer - 1)
    if table is None:
        raise UsageError(f"'{name}' has nothing to draw", "nmt plot positions sinusoidal rotary alibi")
    return table
