"""Rides in cabs: quotations, one ride at a time, the rides of the past."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self, TypedDict

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action, page_extent, page_of, read_time
from wanderlust_worlds.engine.argument_checks import TIME_CHECK, judged_text
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

KM_PER_MINUTE = 50 / 60
DISTANCE_RANGE_KM = (5.0, 20.0)
"""Kilometres between which a distance is drawn when it is first needed."""
CANCELLED_MESSAGE = "The ride has been cancelled. Sorry for the inconvenience."
STATUS_UPDATES = ("DELAYED", "IN_PROGRESS", "ARRIVED_AT_PICKUP")


class Delay(FrozenRecord):
    """The delay at one moment."""

    delay: int | float | None = None
    time_stamp: float | None = None


class Ride(FrozenRecord):
    """A ride, or an offer of one (without status)."""

    ride_id: str
    status: str | None = None
    service_type: str | None = None
    start_location: str | None = None
    end_location: str | None = None
    price: float | None = None
    duration: float | None = None
    """Minutes."""
    time_stamp: float | None = None
    """Seconds since 1970, UTC."""
    distance_km: float | None = None
    delay: int | float | None = None
    """Minutes until the cab comes."""
    delay_history: tuple[Delay, ...] = ()


class CabService(FrozenRecord):
    """The prices and limits of a kind of cab."""

    nb_seats: int | float = 4
    price_per_km: float = 1.0
    base_delay_min: int | float = 5
    max_distance_km: int | float = 25


class RidePage(TypedDict):
    """A part of the rides, by their place in the history."""

    rides: dict[int, Ride]
    range: tuple[int, int]
    total: int


class Rides(App):
    """Rides, and what drivers do."""

    ride_history: CowDict[Ride] = CowDict()
    """By their place, from 0."""
    quotation_history: CowDict[Ride] = CowDict()
    ways: CowDict[float] = CowDict()
    """Distances in kilometres that were drawn, by start and end."""
    current: str = ""
    """The place of the ride that is going on; empty without one."""
    d_service_config: Mapping[str, CabService] = {
        "Default": CabService(),
        "Premium": CabService(price_per_km=2.0, base_delay_min=3),
        "Van": CabService(nb_seats=6, price_per_km=1.5, base_delay_min=7),
    }

    @action("data", writes=True)
    def add_new_ride(
        self,
        service_type: str,
        *,
        start_location: str,
        end_location: str,
        price: float,
        duration: float = 0.0,
        time_stamp: float = 0.0,
        distance_km: float = 0.0,
    ) -> str:
        """Have a ride in the history. Gives its id."""
        ride = Ride(
            ride_id=self.new_id(),
            status="BOOKED",
            service_type=service_type,
            start_location=start_location,
            end_location=end_location,
            price=price,
            duration=duration,
            time_stamp=time_stamp,
            distance_km=distance_km,
        )
        _append_ride(self.ride_history, ride)
        _append_ride(self.quotation_history, ride)
        return ride.ride_id

    @action("data", "env", writes=True, notify="medium", says="ride cancelled")
    def cancel_ride(self, who_cancel: str = "driver", message: str | None = None) -> str:
        """Have the ride that is going on cancelled, by the driver or by the user."""
        if who_cancel not in ("driver", "user"):
            raise ToolError("who_cancel must be driver or user")
        self._end("CANCELLED")
        return message or CANCELLED_MESSAGE

    @action("env", writes=True, notify="medium", says="ride completed")
    def end_ride(self) -> str:
        """Have the ride that is going on arrive."""
        self._end("COMPLETED")
        return "Ride has been completed."

    @action("env", writes=True, notify="high", says="ride status updated")
    def update_ride_status(self, status: str, message: str | None = None) -> str:
        """Set the status of the ride that is going on: DELAYED, IN_PROGRESS or ARRIVED_AT_PICKUP."""
        if status not in STATUS_UPDATES:
            raise ToolError(f"status must be one of {', '.join(STATUS_UPDATES)}")
        self.ride_history[self.current] = replace(self._going_on(), status=status)
        suffix = f" Message from your driver: {message}" if message else ""
        return f"Ride status has been updated to {status}.{suffix}"

    # How it is done

    def _going_on(self) -> Ride:
        if not self.current:
            raise ToolError("no ride is going on")
        return self.ride_history[self.current]

    def _end(self, status: str) -> None:
        self.ride_history[self.current] = replace(self._going_on(), status=status)
        self.current = ""

    def _way(self, start: str, end: str) -> float:
        """The distance in kilometres; drawn once, and the same from then on, also when it was too far to drive."""
        for ride in self.quotation_history.values():
            if (ride.start_location, ride.end_location) == (start, end) and ride.distance_km:
                return ride.distance_km
        way = f"from {start} to {end}"
        if way not in self.ways:
            self.ways[way] = self.world.draw(f"{self.name} {way}").uniform(*DISTANCE_RANGE_KM)
        return self.ways[way]

    def _quote(self, start: str, end: str, *, service: str, time: float) -> Ride:
        if service not in self.d_service_config:
            raise ToolError(f"there is no service {service!r}: one of {', '.join(self.d_service_config)}")
        offered, distance = self.d_service_config[service], self._way(start, end)
        if distance > offered.max_distance_km:
            raise ToolError(f"{distance:.1f} km is too far: at most {offered.max_distance_km:g} km")
        chance = self.world.draw(f"{self.name} delays")
        ride = Ride(
            ride_id=self.new_id(),
            service_type=service,
            start_location=start,
            end_location=end,
            price=distance * offered.price_per_km,
            duration=distance / KM_PER_MINUTE + 10 * chance.random(),
            time_stamp=time,
            distance_km=distance,
            delay=offered.base_delay_min + chance.randint(1, 5),
        )
        _append_ride(self.quotation_history, ride)
        return ride

    def _time(self, ride_time: str | None) -> float:
        return float(int(self.now)) if ride_time is None else read_time(ride_time, "ride_time")

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state: lists of rides. There, a ride that is going on is lost."""
        histories = ((key, enumerate(state[key])) for key in ("ride_history", "quotation_history"))
        lists = {key: {str(n): ride for n, ride in rides} for key, rides in histories}
        fields = {key: state[key] for key in ("current", "ways", "d_service_config") if state.get(key)}
        return cls.load(name, lists | fields)

    def to_are(self) -> dict[str, Any]:
        """Lists of rides, and besides the place of the one that is going on, which ARE leaves."""
        own = self.state()
        for key in ("ride_history", "quotation_history"):
            own[key] = [*own[key].values()]
        return own


class Cabs(Rides):
    """Cabs. A way has one length and each service one price for it, so asking twice gives the same price.

    In ARE, the price of the second quotation is the first one's times a random number that may be below nothing, and
    the delay of a ride that goes on never rises above 0.
    """

    aliases = ("CabApp",)

    @action("agent")
    def get_quotation(
        self, start_location: str, end_location: str, service_type: str, *, ride_time: str | None = None
    ) -> Ride:
        """Ask what a ride costs and how long one waits for it. Nothing is ordered.

        Args:
            start_location: Where it begins.
            end_location: Where it ends.
            service_type: Default, Premium or Van.
            ride_time: When it begins, as YYYY-MM-DD HH:MM:SS; null for now.
        """
        return self._quote(start_location, end_location, service=service_type, time=self._time(ride_time))

    @action("agent", "data")
    def list_rides(self, start_location: str, end_location: str, ride_time: str | None = None) -> list[Ride]:
        """Ask what a ride costs with each service. Nothing is ordered.

        Args:
            start_location: Where it begins.
            end_location: Where it ends.
            ride_time: When it begins, as YYYY-MM-DD HH:MM:SS; null for now.
        """
        time = self._time(ride_time)
        return [self._quote(start_location, end_location, service=one, time=time) for one in self.d_service_config]

    @action(
        "agent",
        "data",
        writes=True,
        checks={"start_location": judged_text("place"), "end_location": judged_text("place"), "ride_time": TIME_CHECK},
    )
    def order_ride(
        self, start_location: str, end_location: str, service_type: str, *, ride_time: str | None = None
    ) -> Ride:
        """Order a ride. There can be one at a time.

        Args:
            start_location: Where it begins.
            end_location: Where it ends.
            service_type: Default, Premium or Van.
            ride_time: When it begins, as YYYY-MM-DD HH:MM:SS; null for now.
        """
        if self.current:
            raise ToolError("a ride is going on; cancel it first, or wait until it has ended")
        ride = self._quote(start_location, end_location, service=service_type, time=self._time(ride_time))
        delays = (Delay(delay=ride.delay, time_stamp=ride.time_stamp),)
        ride = replace(ride, status="BOOKED", delay_history=delays)
        self.current = _append_ride(self.ride_history, ride)
        return ride

    @action("agent", writes=True)
    def user_cancel_ride(self) -> str:
        """Cancel the ride that is going on."""
        self._end("CANCELLED")
        return "Ride has been cancelled, sorry to see you go."

    @action("agent")
    def get_current_ride_status(self) -> Ride:
        """Read how the ride that is going on is doing, with the minutes until the cab comes."""
        ride = self._going_on()
        if ride.delay is None or ride.time_stamp is None:
            return ride
        return replace(ride, delay=max(0.0, ride.delay - max(0.0, self.now - ride.time_stamp) / 60))

    @action("agent", "data")
    def get_ride(self, idx: int) -> Ride:
        """Read a ride by its place in the history.

        Args:
            idx: Its place; 0 is the first ride.
        """
        ride = self.ride_history.get(str(idx))
        if ride is None:
            raise ToolError(f"there is no ride {idx}: there are {len(self.ride_history)}")
        return ride

    @action("agent", "data")
    def get_ride_history(self, offset: int = 0, limit: int = 10) -> RidePage:
        """List rides by their places in the history, the first one first.

        Args:
            offset: How many rides to leave out.
            limit: How many to list at most.
        """
        rides = list(self.ride_history.values())
        page = enumerate(page_of(rides, offset, limit), offset)
        where = page_extent(rides, offset, limit)
        return RidePage(rides=dict(page), range=where["range"], total=where["total"])

    @action("agent", "data")
    def get_ride_history_length(self) -> int:
        """Tell how many rides there are in the history."""
        return len(self.ride_history)


def _append_ride(rides: CowDict[Ride], ride: Ride) -> str:
    place = str(len(rides))
    rides[place] = ride
    return place
