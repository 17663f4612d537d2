"""Apartments for rent, and the user's favourites among them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Self

from msgspec.structs import replace

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, action, row_of
from wanderlust_worlds.engine.argument_checks import arguments_from
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord


class Apartment(FrozenRecord):
    """An apartment for rent."""

    name: str
    location: str
    zip_code: str
    price: float
    """A month."""
    bedrooms: int
    bathrooms: int
    property_type: str
    square_footage: int
    furnished_status: str | None = ""
    floor_level: str | None = ""
    pet_policy: str | None = ""
    lease_term: str | None = ""
    apartment_id: str = ""
    amenities: tuple[str, ...] | None = ()
    saved: bool = False


class NewApartment(FrozenRecord):
    """The fields of an apartment that comes onto the market."""

    name: str
    location: str
    zip_code: str
    price: float
    number_of_bedrooms: int
    number_of_bathrooms: int
    square_footage: int
    property_type: str = ""
    furnished_status: str = ""
    floor_level: str = ""
    pet_policy: str = ""
    lease_term: str = ""
    amenities: tuple[str, ...] | None = None


class ApartmentFilter(FrozenRecord):
    """The conditions of a search; None, an empty text and 0 are no condition."""

    name: str | None = None
    location: str | None = None
    zip_code: str | None = None
    min_price: float | None = None
    max_price: float | None = None
    number_of_bedrooms: int | None = None
    number_of_bathrooms: int | None = None
    property_type: str | None = None
    square_footage: int | None = None
    furnished_status: str | None = None
    floor_level: str | None = None
    pet_policy: str | None = None
    lease_term: str | None = None
    amenities: tuple[str, ...] | None = None
    saved_only: bool = False


class Apartments(App):
    """Apartments by id, those that are saved marked. Lists of saved ones come in the order of the catalogue."""

    aliases = ("RentAFlat", "ApartmentListingApp")
    apartments: CowDict[Apartment] = CowDict()

    @action("agent", "data")
    def list_all_apartments(self) -> dict[str, Apartment]:
        """List all apartments by their ids. That may be long: search_apartments is better."""
        return dict(self.apartments.rows())

    @action("agent", "data")
    def get_apartment_details(self, apartment_id: str) -> Apartment:
        """Read all about an apartment.

        Args:
            apartment_id: The id of the apartment.
        """
        return row_of(self.apartments, apartment_id, "apartment")

    @action("agent", "data", writes=True)
    def save_apartment(self, apartment_id: str) -> None:
        """Save an apartment to the favourites. One that is there stays there.

        Args:
            apartment_id: The id of the apartment.
        """
        self.apartments[apartment_id] = replace(self.get_apartment_details(apartment_id), saved=True)

    @action("agent", "data", writes=True)
    def remove_saved_apartment(self, apartment_id: str) -> None:
        """Take an apartment out of the favourites.

        Args:
            apartment_id: The id of the apartment.
        """
        apartment = self.get_apartment_details(apartment_id)
        if not apartment.saved:
            raise ToolError(f"the apartment {apartment_id} is not among the favourites")
        self.apartments[apartment_id] = replace(apartment, saved=False)

    @action("agent", "data")
    def list_saved_apartments(self) -> dict[str, Apartment]:
        """List the favourites by their ids."""
        return {key: one for key, one in self.apartments.rows().items() if one.saved}

    @action("agent", "data")
    @arguments_from(ApartmentFilter)
    def search_apartments(self, filters: ApartmentFilter) -> dict[str, Apartment]:
        """Find apartments that meet all conditions, by their ids. Texts may be in any case.

        Args:
            name: A part of the name.
            location: A part of the location.
            zip_code: The zip code.
            min_price: The lowest price a month.
            max_price: The highest price a month.
            number_of_bedrooms: How many bedrooms.
            number_of_bathrooms: How many bathrooms.
            property_type: Apartment, Condo or another type.
            square_footage: The least square footage.
            furnished_status: Furnished, Unfurnished or Semi-furnished.
            floor_level: Ground floor, Upper floors, Penthouse or Basement.
            pet_policy: Pets allowed, No pets, Cats allowed or Dogs allowed.
            lease_term: Month-to-month, 6 months, 1 year or Long term lease.
            amenities: What there must be.
            saved_only: Whether to look among the favourites alone.
        """
        return {key: one for key, one in self.apartments.rows().items() if all(_meets_filters(one, filters))}

    @action("data", "env", writes=True, notify="high", says="New apartment available with name {name}")
    @arguments_from(NewApartment)
    def add_new_apartment(self, new: NewApartment) -> str:
        """Bring an apartment onto the market. Gives its id."""
        made = Apartment(
            name=new.name,
            location=new.location,
            zip_code=new.zip_code,
            price=new.price,
            bedrooms=new.number_of_bedrooms,
            bathrooms=new.number_of_bathrooms,
            property_type=new.property_type,
            square_footage=new.square_footage,
            furnished_status=new.furnished_status,
            floor_level=new.floor_level,
            pet_policy=new.pet_policy,
            lease_term=new.lease_term,
            apartment_id=self.new_id(),
            amenities=new.amenities or (),
        )
        self.apartments[made.apartment_id] = made
        return made.apartment_id

    @action("data", "env", writes=True)
    def update_apartment(self, apartment_id: str, new_price: float) -> str:
        """Change the price of an apartment."""
        self.apartments[apartment_id] = replace(self.get_apartment_details(apartment_id), price=new_price)
        return apartment_id

    @action("data", "env", writes=True)
    def delete_apartment(self, apartment_id: str) -> None:
        """Take an apartment off the market, and out of the favourites (in ARE these break then)."""
        self.get_apartment_details(apartment_id)
        del self.apartments[apartment_id]

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state, with a list of saved apartments beside their marks."""
        saved = set(state.get("saved_apartments", ()))
        rows = state["apartments"].items()
        marked = {k: {**one, "apartment_id": k, "saved": one.get("saved", False) or k in saved} for k, one in rows}
        return cls.load(name, {"apartments": marked})

    def to_are(self) -> dict[str, Any]:
        """Marks, and the list of those that are saved."""
        return {**self.state(), "saved_apartments": list(self.list_saved_apartments())}


def _meets_filters(one: Apartment, filters: ApartmentFilter) -> Iterator[bool]:
    yield one.saved or not filters.saved_only
    yield not filters.min_price or one.price >= filters.min_price
    yield not filters.max_price or one.price <= filters.max_price
    yield not filters.square_footage or one.square_footage >= filters.square_footage
    yield filters.number_of_bedrooms in (None, 0, one.bedrooms)
    yield filters.number_of_bathrooms in (None, 0, one.bathrooms)
    yield filters.zip_code in (None, "", one.zip_code)
    for key in ("name", "location"):
        yield (getattr(filters, key) or "").lower() in getattr(one, key).lower()
    for key in ("property_type", "furnished_status", "floor_level", "pet_policy", "lease_term"):
        condition = getattr(filters, key)
        yield not condition or condition.lower() == (getattr(one, key) or "").lower()
    there = {amenity.lower() for amenity in one.amenities or ()}
    yield all(amenity.lower() in there for amenity in filters.amenities or ())
