"""One measured promise."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, kw_only=True)
class Bar:
    """A figure, the bar that it must reach and the aim that it should."""

    name: str
    """What was measured, in a few words."""
    figure: float | None
    """The measured value; None when it could not be measured, which misses a bar that is promised."""
    bar: float
    aim: float
    unit: str = ""
    """`s`, `%`, `x`, ... as printed behind the values."""
    better: Literal["lower", "higher"] = "lower"
    """Which way is good; reaching a bar exactly meets it."""
    note: str = ""
    """What a reader must know: the machine's load, the sample size, why there is no figure."""
    promised: bool = True
    """Whether it is missed when it cannot be measured; False for what others' software is compared by."""

    @property
    def met(self) -> bool:
        """Whether the figure reaches the bar, or none was promised."""
        return self._reaches(self.bar) or (self.figure is None and not self.promised)

    @property
    def verdict(self) -> str:
        """`missed`, `met`, `met, and the aim`, or `not measured` where nothing was promised."""
        if not self.met:
            return "missed"
        if self.figure is None:
            return "not measured"
        return "met, and the aim" if self._reaches(self.aim) else "met"

    def _reaches(self, wanted: float) -> bool:
        if self.figure is None:
            return False
        return self.figure <= wanted if self.better == "lower" else self.figure >= wanted

    def line(self) -> str:
        """The bar as one aligned line."""
        figure, bar, aim = self.values()
        wanted = f"{bar:<15} aim {aim:<10}"
        return f"{self.name:<52} {figure:>12}   {wanted} {self.verdict:<16} {self.note}".rstrip()

    def values(self) -> tuple[str, str, str]:
        """Figure, bar (with the sign of what is good) and aim, as they are printed."""
        sign = "<=" if self.better == "lower" else ">="
        figure = "not measured" if self.figure is None else self._value(self.figure)
        return figure, f"{sign} {self._value(self.bar)}", self._value(self.aim)

    def _value(self, value: float) -> str:
        text = f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
        return f"{text} {self.unit}".rstrip()

    def record(self) -> dict[str, object]:
        """The bar as plain data, verdict included."""
        return asdict(self) | {"met": self.met, "verdict": self.verdict}
