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
from torch.nn.functional import normalize

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
    panels = page.subplots(len(tables), 3, squeeze=False)
    for row, (name, table) in zip(panels, tables.items(), strict=True):
        heat_map, dimensions, similarities = row
        _heat_map(page, heat_map, name, table)
        _dimensions(dimensions, table)
        _similarity(similarities, table)
        for axis in (heat_map.xaxis, heat_map.yaxis, dimensions.xaxis, similarities.xaxis):
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
    units_MC = normalize(values_MC)
    if table.by == "distance":
        unit_1C = units_MC[table.rows_M == 0]
        return table.rows_M, units_MC @ unit_1C.t()
    cosines_TT = units_MC @ units_MC.t()
    similarity_MT = torch.full_like(cosines_TT, torch.nan)
    num_positions = len(cosines_TT)
    for distance in range(num_positions):
        num_pairs = num_positions - distance
        similarity_MT[distance, :num_pairs] = cosines_TT.diagonal(distance)
    return table.rows_M, similarity_MT


def _heat_map(page: Any, panel: Any, name: str, table: EncodingTable) -> None:
    values_MC = table.values_MC.float()
    # Zero is white; a side of the scale without values is left out.
    lowest = values_MC.min().item()
    highest = values_MC.max().item()
    largest = max(-lowest, highest) or 1.0
    color_map, low, high = "RdBu_r", -largest, largest
    if lowest >= 0:
        color_map, low = "Reds", 0.0
    elif highest <= 0:
        color_map, high = "Blues_r", 0.0
    rows = table.rows_M.tolist()
    left = -0.5 if table.column == "dimension" else 0.5
    right = left + values_MC.shape[1]
    extent = (left, right, rows[-1] + 0.5, rows[0] - 0.5)
    image = panel.imshow(
        values_MC.numpy(),
        aspect="auto",
        cmap=color_map,
        vmin=low,
        vmax=high,
        extent=extent,
        interpolation="nearest",
    )
    panel.set(xlabel=table.column, ylabel=table.by)
    panel.set_title(name, parse_math=False)
    page.colorbar(image, ax=panel)


def _dimensions(panel: Any, table: EncodingTable) -> None:
    num_columns = table.values_MC.shape[1]
    columns = range(num_columns)
    first = 1
    if table.column == "dimension":
        # Dimensions of the first half: sinusoids of higher dimensions are almost constant.
        num_lines = min(num_columns, MAX_LINES)
        step = max(1, num_columns // 2 // num_lines)
        columns = columns[::step][:num_lines]
        first = 0
    for column in columns:
        values_M = table.values_MC[:, column].float().numpy()
        label = f"{table.column} {first + column}"
        panel.plot(table.rows_M.numpy(), values_M, label=label, linewidth=1.2)
    panel.set(title=f"single {table.column}s", xlabel=table.by)
    panel.grid(alpha=0.3)
    panel.legend(fontsize=8)


def _similarity(panel: Any, table: EncodingTable) -> None:
    rows_M, similarity_MX = similarity(table)
    rows = rows_M.numpy()
    if table.column == "head":
        for number, weights_M in enumerate(similarity_MX.t(), 1):
            label = f"head {number}"
            panel.plot(rows, weights_M.numpy(), label=label, linewidth=1.2)
        panel.set(title="attention weight by distance", xlabel="distance")
    elif table.by == "distance":
        panel.plot(rows, similarity_MX[:, 0].numpy(), linewidth=1.2)
        panel.set(title="cosine similarity to distance 0", xlabel="distance")
    else:
        is_padding_MX = similarity_MX.isnan()
        padded_low_MX = similarity_MX.masked_fill(is_padding_MX, torch.inf)
        padded_high_MX = similarity_MX.masked_fill(is_padding_MX, -torch.inf)
        low_M = padded_low_MX.amin(1).numpy()
        high_M = padded_high_MX.amax(1).numpy()
        panel.fill_between(rows, low_M, high_M, alpha=0.25, label="minimum to maximum")
        mean_M = similarity_MX.nanmean(1).numpy()
        panel.plot(rows, mean_M, label="mean", linewidth=1.2)
        panel.set(title="cosine similarity of positions", xlabel="distance")
        panel.legend(fontsize=8)
    panel.grid(alpha=0.3)
