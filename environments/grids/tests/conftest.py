"""Puts the bars and the tools of this package on the path of its tests."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path += [str(Path(__file__).parents[1] / part) for part in ("bars", "tools")]
