"""Options of the commands that synthesize corpora."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

TeacherOption = Annotated[
    list[Path],
    typer.Option(
        "--model",
        "-m",
        show_default=False,
        help=(
            "Run or checkpoint, or the name of a pretrained or published model, that translates;"
            " repeat to ensemble."
        ),
    ),
]
OutputOption = Annotated[
    Path, typer.Option("--output", "-o", help="Directory of the new corpus.", show_default=False)
]
MinScoreOption = Annotated[
    float | None,
    typer.Option(
        help="Minimum log-probability divided by the number of tokens.", show_default="none"
    ),
]
CleanOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="STEP",
        help="Cleaning step for the pairs, as in data.clean; may be repeated.",
        show_default="length(max=200), ratio(max=3.0), drop_identical",
    ),
]
TestOption = Annotated[
    list[str] | None,
    typer.Option(
        help=(
            "Drop pairs that overlap with this test set: a corpus, a sacreBLEU test set, or"
            " SRC:TGT."
        )
    ),
]
IgnoreOption = Annotated[
    list[str] | None,
    typer.Option(metavar="FILTER", help="Filter to disable, such as missing; may be repeated."),
]
ShardOption = Annotated[
    str | None,
    typer.Option(
        metavar="I/N", help="Translate shard I (from 1) of N; the last one completes the corpus."
    ),
]
ResumeOption = Annotated[bool, typer.Option("--resume", help="Continue an interrupted command.")]
