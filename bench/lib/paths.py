# SPDX-License-Identifier: MIT OR GPL-2.0-only
"""Where the programs are that are measured, and those that measure."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BUILD = Path(os.environ.get("TIFFIN_BUILD", ROOT / "build/release"))
BIN = Path(os.environ.get("TIFFIN_BIN", BUILD / "bin"))
BENCH = Path(os.environ.get("TIFFIN_BENCH", BUILD / "bench"))
