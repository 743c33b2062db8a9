# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""The paper's findings, one by one, held against what was measured."""

from dataclasses import dataclass

from points import GIB, LEAST_SAMPLES_FOR_P999, MIB, ROW_BYTES, SCHEMES

TOLERANCE = 0.05  # of means: the model's, and auto's


@dataclass
class Finding:
    name: str
    claim: str
    seen: bool
    figures: str


def size_text(size: int) -> str:
    for unit, name in ((GIB, "GiB"), (MIB, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:g} {name}"
    return f"{size} B"


def place(row: dict) -> str:
    return f"{size_text(row['bytes'])}, {row['drop']:g}"


class Measured:
    """Results by group, place and scheme."""

    def __init__(self, rows: list[dict]):
        self.rows = rows

    def cells(self, *groups: str) -> list[dict[str, dict]]:
        """For each place of these groups: its rows by scheme."""
        found: dict[tuple, dict[str, dict]] = {}
        for row in self.rows:
            if row["group"] in groups:
                key = (row["group"], row["bytes"], row["drop"], row["packet"], row["gbit"], row["rtt_ms"],
                       row["burst"], row["nodes"], row["control_lost"], row.get("chance", 0), row.get("k"), row.get("m"))
                found.setdefault(key, {})[row["scheme"]] = row
        return list(found.values())


def any_row(cell: dict[str, dict]) -> dict:
    return next(iter(cell.values()))


def has_tail(*rows: dict) -> bool:
    return all(row["samples"] >= LEAST_SAMPLES_FOR_P999 for row in rows)


def greatest_ratio(cells: list[dict], better: str, worse: str, figure: str) -> tuple[float, dict] | None:
    pairs = [(cell[worse][figure] / cell[better][figure], cell[better])
             for cell in cells if better in cell and worse in cell
             and (figure != "p999_s" or has_tail(cell[better], cell[worse]))]
    return max(pairs, key=lambda pair: pair[0], default=None)


# The paper's figures end here; beyond it the ratios grow.
PAPERS_GREATEST_DROP = 1e-2


def up_to(name: str, claim: str, cells: list[dict], better: str, worse: str, figure: str,
          factor: float) -> list[Finding]:
    """Judged inside of the paper's range; nothing where that has no figures."""
    inside = greatest_ratio([cell for cell in cells if any_row(cell)["drop"] <= PAPERS_GREATEST_DROP],
                            better, worse, figure)
    everywhere = greatest_ratio(cells, better, worse, figure)
    if inside is None or everywhere is None:
        return []
    ratio, row = inside
    beyond, beyond_row = everywhere
    text = f"{ratio:.1f} times, at {place(row)}"
    if beyond_row is not row:
        text += f"; beyond the paper's range {beyond:.1f} times, at {place(beyond_row)}"
    return [Finding(name, claim, ratio >= factor, text)]


def region(name: str, claim: str, cells: list[dict], better: str, worse: list[str]) -> list[Finding]:
    """`better` has the smallest mean in every place, for chunks of one size after the other."""
    found = []
    for chunk in sorted({any_row(cell)["packet"] for cell in cells}):
        judged = [cell for cell in cells
                  if any_row(cell)["packet"] == chunk and {better, *worse} <= cell.keys()]
        lost = [cell for cell in judged
                if cell[better]["mean_s"] > min(cell[scheme]["mean_s"] for scheme in worse)]
        where = ", ".join(place(any_row(cell)) for cell in lost[:8]) + (", ..." if len(lost) > 8 else "")
        found.append(Finding(f"{name} ({chunk >> 10} KiB)", claim, not lost,
                             f"in {len(judged) - len(lost)} of {len(judged)} places"
                             + (f"; not at {where}" if lost else "")))
    return found


def erasure_region(cells: list[dict]) -> list[Finding]:
    return region("EC's region", "EC's mean is below SR RTO's from 128 KiB to 1 GiB and 1e-6 to 1e-2",
                  [cell for cell in cells if any_row(cell)["bytes"] <= GIB
                   and 1e-6 <= any_row(cell)["drop"] <= PAPERS_GREATEST_DROP], "ec_mds", ["sr_rto"])


def repeat_region(cells: list[dict]) -> list[Finding]:
    return region("SR's region", "SR NACK's mean is below EC's where less than 1e-6 is lost",
                  [cell for cell in cells if any_row(cell)["drop"] < 1e-6], "sr_nack", ["ec_mds"])


def fallbacks(measured: Measured, group: str) -> list[Finding]:
    cells = [cell for cell in measured.cells(group) if any_row(cell)["bytes"] == ROW_BYTES]
    if not cells:
        return []

    def shares(scheme: str) -> dict[float, float]:
        return {cell[scheme]["drop"]: cell[scheme]["fallbacks"] / cell[scheme]["samples"]
                for cell in cells if scheme in cell}

    def text(of: dict[float, float]) -> str:
        return ", ".join(f"{drop:g}: {100 * share:.1f} %" for drop, share in sorted(of.items()))

    exclusive_or, mds = shares("ec_xor"), shares("ec_mds")
    chunk = any_row(cells[0])["packet"] >> 10
    return [
        Finding(f"XOR's limit ({chunk} KiB)", "128 MiB in XOR fall back from about 1e-3 on",
                all(share < 0.01 for drop, share in exclusive_or.items() if drop <= 1e-4)
                and all(share > 0 for drop, share in exclusive_or.items() if 1e-3 <= drop < 1e-2)
                and all(share > 0.1 for drop, share in exclusive_or.items() if drop >= 1e-2),
                ("" if min(exclusive_or) <= 1e-4 else "below 1e-3 not measured; ")
                + f"messages with a fallback: {text(exclusive_or)}"),
        Finding(f"MDS's limit ({chunk} KiB)", "128 MiB in MDS hold to 1e-2 and beyond",
                mds[1e-2] < 0.01, f"messages with a fallback: {text(mds)}"),
    ]


def within(name: str, claim: str, rows: list[dict], key: str) -> Finding:
    judged = [(row["mean_s"] / row[key] - 1, row) for row in rows]
    # A rare loss that no sample had, or two had, is no error of the model.
    off = [(error, row) for error, row in judged
           if abs(error) > TOLERANCE and abs(row["mean_s"] - row[key]) > 3 * standard_error_s(row)]
    worst, row = max(judged, key=lambda pair: abs(pair[0]))
    return Finding(name, claim, not off,
                   f"off in {len(off)} of {len(judged)} places; furthest: {100 * worst:+.1f} % "
                   f"({row['scheme']}, {place(row)}, chunks of {row['packet'] >> 10} KiB)")


def standard_error_s(row: dict) -> float:
    """Where no sample had a loss, they all agree, and one loss more or less is a timeout of all of them."""
    return max(row["standard_error_s"], 3 * row["rtt_ms"] / 1000 / row["samples"])


def models(rows: list[dict]) -> list[Finding]:
    rows = [row for row in rows if "model_mean_s" in row and not row["control_lost"]]
    exact = [row for row in rows if not row["model_is_lower_bound"]]
    rto = [row for row in exact if row["scheme"] == "sr_rto"]
    nack = [row for row in exact if row["scheme"] == "sr_nack"]
    coded = [row for row in exact if row["scheme"].startswith("ec_")]
    return [
        within("the model of SR RTO",
               "the mean is within 5 % of the paper's model where that is no mere bound",
               rto, "model_mean_s"),
        within("the model of SR NACK", "the same", nack, "model_mean_s"),
        within("the model of EC", "the same, while at most one message in a hundred falls back",
               [row for row in coded if row["model_fallback"] <= 0.01], "model_mean_s"),
        within("the estimate", "the mean is within 5 % of what auto goes by, everywhere",
               [row for row in rows if "estimate_mean_s" in row and row["scheme"] != "ec_xor"],
               "estimate_mean_s"),
    ]


def automatic_tail(cells: list[dict]) -> list[Finding]:
    """No standard error is known of a percentile: this is what the samples say."""
    judged = []
    for cell in cells:
        if "auto" in cell and all(scheme in cell for scheme in SCHEMES) and has_tail(*cell.values()):
            best = min((cell[scheme] for scheme in SCHEMES), key=lambda row: row["p999_s"])
            judged.append((cell["auto"]["p999_s"] / best["p999_s"] - 1, best["scheme"], cell["auto"]))
    if not judged:
        return []
    off = [entry for entry in judged if entry[0] > TOLERANCE]
    worst = max(judged, key=lambda entry: entry[0])
    return [Finding("auto's tail", "auto's p99.9 is at most 5 % above that of the scheme with the best one", not off,
                    f"off in {len(off)} of {len(judged)} places; furthest: {100 * worst[0]:+.1f} % "
                    f"(best {worst[1]}, {place(worst[2])}, chunks of {worst[2]['packet'] >> 10} KiB)")]


def automatic(name: str, claim: str, cells: list[dict]) -> Finding:
    judged = []
    for cell in cells:
        if "auto" in cell and all(scheme in cell for scheme in SCHEMES if scheme != "sr_rto"):
            best = min((cell[scheme] for scheme in SCHEMES if scheme in cell), key=lambda row: row["mean_s"])
            allowed = best["mean_s"] * (1 + TOLERANCE)
            error = (best["standard_error_s"] ** 2 + cell["auto"]["standard_error_s"] ** 2) ** 0.5
            judged.append((cell["auto"]["mean_s"] / best["mean_s"] - 1, best["scheme"], cell["auto"],
                           cell["auto"]["mean_s"] > allowed + 3 * error, error / best["mean_s"]))
    off = [entry for entry in judged if entry[3]]
    worst = max(judged, key=lambda entry: entry[0])
    return Finding(name, claim, not off, f"off in {len(off)} of {len(judged)} places; furthest: "
                   f"{100 * worst[0]:+.1f} %, standard error {100 * worst[4]:.1f} % (best {worst[1]}, {place(worst[2])}, "
                   + (f"bursts of {worst[2]['burst']:g}, " if worst[2]["burst"] > 1 else "") +
                   f"chunks of {worst[2]['packet'] >> 10} KiB)")


def crossing(measured: Measured, group: str, axis: str) -> list[Finding]:
    rows = [(any_row(cell)[axis], cell) for cell in measured.cells(group)
            if any_row(cell)["bytes"] == 8 * GIB]
    if not rows:
        return []
    found = []
    for scheme, name in (("sr_rto", "SR RTO"), ("sr_nack", "SR NACK")):
        ratios = {value: cell[scheme]["mean_s"] / cell["ec_mds"]["mean_s"] for value, cell in rows}
        text = ", ".join(f"{value:g}: {ratio:.2f}" for value, ratio in sorted(ratios.items()))
        found.append(Finding(f"8 GiB by {group}, {name}", f"with enough of it, EC passes {name} at 8 GiB too (1e-5)",
                             ratios[max(ratios)] > 1, f"{name}'s mean over EC MDS's, by {axis}: {text}"))
    return found


def ring(measured: Measured) -> list[Finding]:
    cells = [cell for cell in measured.cells("ring")
             if {"sr_rto", "ec_mds"} <= cell.keys() and has_tail(cell["sr_rto"], cell["ec_mds"])]
    if not cells:
        return []
    ratios = {any_row(cell)["drop"]: cell["sr_rto"]["p999_s"] / cell["ec_mds"]["p999_s"]
              for cell in cells}
    text = ", ".join(f"{drop:g}: {ratio:.1f}" for drop, ratio in sorted(ratios.items()))
    often = [ratio for drop, ratio in ratios.items() if drop >= 1e-3]
    return [Finding("Allreduce", "ring Allreduce of 4, 128 MiB: p99.9 at least 3 times better in EC from 1e-3 on, up to over 6",
                    min(often) >= 3 and max(often) > 6, f"SR RTO's p99.9 over EC MDS's: {text}")]


def all_findings(rows: list[dict]) -> list[Finding]:
    measured = Measured(rows)
    cells = measured.cells("coarse", "fine")
    all_cells = measured.cells("coarse", "fine", "row", "row-fine", "tails", "tails-coarse")
    if not measured.cells("coarse"):
        return []
    findings = [
        *up_to("EC's mean", "EC MDS up to 5 times better than SR RTO in the mean", all_cells,
              "ec_mds", "sr_rto", "mean_s", 5),
        *up_to("EC's tail", "EC MDS up to 12 times better than SR RTO at p99.9", all_cells,
              "ec_mds", "sr_rto", "p999_s", 12),
        *erasure_region(cells),
        *repeat_region(cells),
        *up_to("NACK's mean", "NACK up to 4 times better than RTO in the mean", all_cells,
              "sr_nack", "sr_rto", "mean_s", 4),
        *up_to("NACK's tail", "NACK up to 4 times better than RTO at p99.9", all_cells,
              "sr_nack", "sr_rto", "p999_s", 4),
        *fallbacks(measured, "row"),
        *fallbacks(measured, "row-fine"),
        *crossing(measured, "distance", "rtt_ms"),
        *crossing(measured, "bandwidth", "gbit"),
        *ring(measured),
        *models(rows),
        automatic("auto", "auto's mean is at most 5 % above the best scheme's", all_cells),
        *automatic_tail(all_cells),
    ]
    elsewhere = [("auto in bursts", "auto's mean, the same when losses come in bursts", ("bursts",)),
                 ("auto elsewhere", "the same at other distances and bandwidths, and where what goes back is lost as often",
                  ("distance", "bandwidth", "lost-control")),
                 ("auto in rings", "the same in ring Allreduce", ("ring", "ring-size"))]
    for name, claim, groups in elsewhere:
        if cells := [cell for cell in measured.cells(*groups) if "auto" in cell]:
            findings.append(automatic(name, claim, cells))
    return findings
