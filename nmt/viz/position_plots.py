"""Plot position encodings: their values, single dimensions and the similarity of positions.

Shape suffixes: M positions or distances, C dimensions or heads, T positions, X similarities or
heads.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from nmt.model.positions import EncodingTable
from nmt.viz import figures

MAX_LINES = 5
"""Maximum number of dimensions drawn as lines."""


def draw(tables: Mapping[str, EncodingTable], output: Path) -> None:
    """Draw a row of three panels per encoding. The suffix of `output` selects the format.

    Raises:
        UsageError: matplotlib is not installed or does not support the format.
        NMTError: the figure cannot be written.
    """
    page = figures.figure(output, 14, 0.4 + 3.2 * len(tables))
    for row, (name, table) in zip(
        page.subplots(len(tables), 3, squeeze=False), tables.items(), strict=True
    ):
        _heat_map(page, row[0], name, table)
        _dimensions(row[1], table)
        _similarity(row[2], table)
        for axis in (row[0].xaxis, row[0].yaxis, row[1].xaxis, row[2].xaxis):
            axis.get_major_locator().set_params(integer=True)
    figures.save(page, output)


def similarity(table: EncodingTable) -> tuple[Tensor, Tensor]:
    """Return distances [M] and similarities for each distance [M, any number].

    For vectors of positions, these are the cosine similarities of all pairs at that distance,
    padded with NaN. For vectors of distances, it is the cosine similarity to the vector of distance
    0. For biases of heads, it is the softmax over distances: the attention weight of a key if
    attention depends on its distance only.
    """
    values_MC = table.values_MC.float()
    if table.column == "head":
        return table.rows_M, values_MC.softmax(0)
    units_MC = torch.nn.functional.normalize(values_MC, dim=1)
    if table.by == "distance":
        return table.rows_M, (units_MC @ units_MC[table.rows_M == 0].t())
    cosines_TT = units_MC @ units_MC.t()
    similarity_MT = torch.full_like(cosines_TT, torch.nan)
    for distance in range(len(cosines_TT)):
        similarity_MT[distance, : len(cosines_TT) - distance] = cosines_TT.diagonal(distance)
    return table.rows_M, similarity_MT


def _heat_map(page: Any, panel: Any, name: str, table: EncodingTable) -> None:
    values_MC = table.values_MC.float()
    max_value = float(values_MC.abs().max()) or 1.0
    first_row, last_row = int(table.rows_M[0]), int(table.rows_M[-1])
    first_column = 0 if table.column == "dimension" else 1
    extent = (
        first_column - 0.5,
        first_column + values_MC.shape[1] - 0.5,
        last_row + 0.5,
        first_row - 0.5,
    )
    image = panel.imshow(
        values_MC.numpy(),
        aspect="auto",
        cmap="RdBu_r",
        vmin=-max_value,
        vmax=max_value,
        extent=extent,
        interpolation="nearest",
    )
    panel.set(xlabel=table.column, ylabel=table.by)
    panel.set_title(name, parse_math=False)
    page.colorbar(image, ax=panel)


def _dimensions(panel: Any, table: EncodingTable) -> None:
    num_columns = table.values_MC.shape[1]
    num_lines = min(num_columns, MAX_LINES if table.column == "dimension" else num_columns)
    for number in range(num_lines):
        # Dimensions of the first half: sinusoids of higher dimensions are almost constant.
        column = (
            number * max(1, num_columns // 2 // num_lines)
            if table.column == "dimension"
            else number
        )
        label = f"{table.column} {column if table.column == 'dimension' else column + 1}"
        panel.plot(
            table.rows_M.numpy(),
            table.values_MC[:, column].float().numpy(),
            label=label,
            linewidth=1.2,
        )
    panel.set(title=f"single {table.column}s", xlabel=table.by)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


def _similarity(panel: Any, table: EncodingTable) -> None:
    rows_M, similarity_MX = similarity(table)
    rows = rows_M.numpy()
    if table.column == "head":
        for number, weights_M in enumerate(similarity_MX.t()):
            panel.plot(rows, weights_M.numpy(), label=f"head {number + 1}", linewidth=1.2)
        panel.set(title="attention weight by distance", xlabel="distance")
    elif table.by == "distance":
        panel.plot(rows, similarity_MX[:, 0].numpy(), linewidth=1.2)
        panel.set(title="cosine similarity to distance 0", xlabel="distance")
    else:
        low = torch.where(similarity_MX.isnan(), torch.inf, similarity_MX).amin(1)
        high = torch.where(similarity_MX.isnan(), -torch.inf, similarity_MX).amax(1)
        panel.fill_between(rows, low.numpy(), high.numpy(), alpha=0.25, label="minimum to maximum")
        panel.plot(rows, similarity_MX.nanmean(1).numpy(), linewidth=1.2, label="mean")
        panel.set(title="cosine similarity of positions", xlabel="distance")
        panel.legend(fontsize=8)
    panel.grid(alpha=0.3)
