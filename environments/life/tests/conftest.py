"""Tests check what the bars measure with: the folder `bars` is on the path."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parents[1] / "bars"))
