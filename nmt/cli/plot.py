"""`nmt plot`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from nmt.core.console import log
from nmt.core.errors import ConfigError, UsageError, check_choice
from nmt.runs import pretrained

if TYPE_CHECKING:
    from nmt.model.positions import EncodingTable, PositionEncoding

OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="Output image: .png, .svg or .pdf.")
]

app = typer.Typer(
    no_args_is_help=True,
    help=(
        "Plot learning curves, the scores of sweeps or position encodings. Requires matplotlib"
        " (pip install 'nmtkit[plot]')."
    ),
)


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Directories of runs and sweeps.")],
    output: OutputOption = Path("curves.png"),
    by: Annotated[str, typer.Option(help="Horizontal axis: updates, tokens or hours.")] = "updates",
) -> None:
    """Plot training and validation loss, BLEU, learning rate and speed.

    Pass multiple runs to compare them in one figure. A run may still be training. A sweep has a
    color for each combination: a line for the mean of its seeds, and a band for their range.

    Examples:
      nmt plot curves runs/quickstart
      nmt plot curves runs/a runs/b --by hours -o comparison.svg
      nmt plot curves runs/quickstart-sweep
    """
    from nmt.viz import learning_curves

    check_choice("axis", by, learning_curves.AXES)
    for run in runs:
        pretrained.reject_pretrained(run)
    learning_curves.draw(list(dict.fromkeys(runs)), output, learning_curves.AXES[by])
    typer.echo(output)


@app.command()
def sweep(
    sweeps: Annotated[list[Path], typer.Argument(help="Directories of sweeps.")],
    output: OutputOption = Path("sweep.png"),
    score: Annotated[
        str, typer.Option(help="Score to plot: BLEU or chrF2 (test), valid_bleu or valid_loss.")
    ] = "BLEU",
    join: Annotated[
        bool, typer.Option("--join", help="One panel for all sweeps, the best combination on top.")
    ] = False,
) -> None:
    """Plot the scores of sweeps: a point for each seed, and a dash for the mean.

    Examples:
      nmt plot sweep runs/quickstart-sweep
      nmt plot sweep runs/a-sweep runs/b-sweep --score chrF2 --join -o sweeps.svg
    """
    from nmt.viz import sweep_plots

    check_choice("score", score, sweep_plots.SCORES)
    sweep_plots.draw(list(dict.fromkeys(sweeps)), output, score, join=join)
    typer.echo(output)


@app.command()
def positions(
    encodings: Annotated[
        list[str] | None,
        typer.Argument(
            help="Position encodings, optionally with options.", show_default="sinusoidal"
        ),
    ] = None,
    model: Annotated[
        Path | None, typer.Option("--model", "-m", help="Model whose position encoding to plot.")
    ] = None,
    output: OutputOption = Path("positions.png"),
    length: Annotated[int, typer.Option(min=2, max=4096, help="Number of positions to plot.")] = 64,
    layer: Annotated[
        int, typer.Option(min=1, max=100, help="Layer, for encodings that differ between layers.")
    ] = 1,
    dim: Annotated[
        int | None, typer.Option(min=2, max=4096, help="Model dimension.", show_default="128")
    ] = None,
    heads: Annotated[
        int | None,
        typer.Option(
            min=1, max=64, help="Number of attention heads; must divide --dim.", show_default="4"
        ),
    ] = None,
) -> None:
    """Plot position encodings: a heat map, single dimensions or heads, and the similarity of
    positions.

    Trainable encodings are plotted at initialization, unless --model is set.

    Examples:
      nmt plot positions
      nmt plot positions sinusoidal rotary alibi "t5(num_buckets=16)" --length 100
      nmt plot positions --model runs/multi30k --layer 2 -o learned.svg
    """
    from nmt.viz import position_plots

    if model is not None and (encodings or dim is not None or heads is not None):
        raise UsageError(
            "--model cannot be combined with encodings, --dim or --heads",
            "leave them out to plot those of the model",
        )
    if model is not None:
        modules = _load(model)
    else:
        modules = _build(encodings or ["sinusoidal"], dim or 128, heads or 4, layer)
    position_plots.draw(
        {name: _table(name, module, length, layer) for name, module in modules.items()}, output
    )
    if model is None and any(list(module.parameters()) for module in modules.values()):
        log(
            "trainable encodings are plotted at initialization; use --model RUN to plot learned"
            " ones"
        )
    typer.echo(output)


def _build(specs: list[str], dim: int, heads: int, layer: int) -> dict[str, PositionEncoding]:
    import torch

    from nmt.core.registry import resolve
    from nmt.model.positions import POSITION_ENCODINGS, StackSpec

    if dim % heads or dim % 2:
        raise ConfigError(
            f"--dim must be even and a multiple of --heads, got {dim} and {heads}",
            "for example --dim 128 --heads 4",
        )
    torch.manual_seed(1)
    stack = StackSpec(dim, heads, layer)
    return {spec: resolve("position encoding", POSITION_ENCODINGS, spec)(stack) for spec in specs}


def _load(path: Path) -> dict[str, PositionEncoding]:
    from nmt.models import discovery

    loaded = discovery.load(path)
    if not loaded.model.has_positions:
        raise UsageError(
            f"{path} is a recurrent model without position encoding", "choose a Transformer"
        )
    encoding = cast("PositionEncoding", loaded.model.get_submodule("source_positions"))
    return {f"{path}: {loaded.config.model.position_encoding}": encoding}


def _table(name: str, module: PositionEncoding, length: int, layer: int) -> EncodingTable:
    import torch

    if layer > module.stack.layers:
        raise UsageError(
            f"there is no layer {layer}", f"--layer must be at most {module.stack.layers}"
        )
    if module.max_positions and length > module.max_positions:
        log(f"{name}: plotting all {module.max_positions} positions")
    with torch.inference_mode():
        table = module.eval().table(min(length, module.max_positions or length), layer - 1)
    if table is None:
        raise UsageError(
            f"'{name}' has nothing to plot",
            "for example nmt plot positions sinusoidal rotary alibi",
        )
    return table
