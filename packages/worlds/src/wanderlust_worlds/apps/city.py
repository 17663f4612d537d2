"""Crime rates by zip code, behind a limit on the number of calls."""

from __future__ import annotations

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

COOLDOWN_SECONDS = 1_800.0
"""Seconds of the world's clock until calls are answered again."""


class CrimeDataPoint(FrozenRecord):
    """The crime rates of one zip code."""

    violent_crime: float
    property_crime: float


class City(App):
    """Crime rates by zip code. After so many calls, there are no more for half an hour.

    The half hour begins with the last call that was answered; in ARE it begins with the first that was not. Calls for
    zip codes that do not exist are not counted.
    """

    aliases = ("CityApp",)
    api_call_limit: int = 100
    api_call_count: int = 0
    limited_since: float | None = None
    """The time of the last call before the limit was reached; None below the limit."""
    crime_data: CowDict[CrimeDataPoint] = CowDict()

    @action("env", writes=True)
    def add_crime_rate(self, zip_code: str, violent_crime_rate: float, property_crime_rate: float) -> str:
        """Set the crime rates of a zip code."""
        self.crime_data[zip_code] = CrimeDataPoint(violent_crime=violent_crime_rate, property_crime=property_crime_rate)
        return "Added Successfully"

    @action("env", writes=True)
    def update_crime_rate(
        self,
        zip_code: str,
        new_violent_crime_rate: float | None = None,
        new_property_crime_rate: float | None = None,
    ) -> str:
        """Change the crime rates of a zip code."""
        old = self._crime_data_of(zip_code)
        if new_violent_crime_rate is None and new_property_crime_rate is None:
            raise ToolError("there is nothing to change: give a new rate")
        violent = old.violent_crime if new_violent_crime_rate is None else new_violent_crime_rate
        against = old.property_crime if new_property_crime_rate is None else new_property_crime_rate
        self.crime_data[zip_code] = replace(old, violent_crime=violent, property_crime=against)
        return "Updated Successfully"

    @action("agent")
    def get_crime_rate(self, zip_code: str) -> CrimeDataPoint:
        """Look up how much crime there is. After a number of calls one must wait for half an hour.

        Args:
            zip_code: The zip code.
        """
        waiting = self.limited_since is not None and self.now - self.limited_since < COOLDOWN_SECONDS
        if waiting or self.api_call_limit <= 0:
            raise ToolError(f"there are {self.api_call_limit} calls in half an hour: try again later")
        data_point = self._crime_data_of(zip_code)
        self.api_call_count = 1 if self.limited_since is not None else self.api_call_count + 1
        self.limited_since = self.now if self.api_call_count >= self.api_call_limit else None
        return data_point

    @action("agent")
    def get_api_call_count(self) -> int:
        """Tell how many calls of get_crime_rate there were."""
        return self.api_call_count

    @action("agent")
    def get_api_call_limit(self) -> int:
        """Tell how many calls of get_crime_rate there may be before one must wait."""
        return self.api_call_limit

    def _crime_data_of(self, zip_code: str) -> CrimeDataPoint:
        data_point = self.crime_data.get(zip_code)
        if data_point is None:
            raise ToolError(f"there is nothing about the zip code {zip_code!r}")
        return data_point
