"""The user's contacts, of whom the user is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypedDict, get_args

import msgspec

from wanderlust.tools.function import ToolError
from wanderlust_worlds.engine.app import App, PageExtent, action, page_extent, page_of, row_of
from wanderlust_worlds.engine.argument_checks import (
    FREE_CHECK,
    PHONE_CHECK,
    STRIPPED_CHECK,
    arguments_from,
    judged_text,
)
from wanderlust_worlds.engine.cow_dict import CowDict, FrozenRecord

Gender = Literal["Female", "Male", "Other", "Unknown"]
EmploymentStatus = Literal["Student", "Employed", "Unemployed", "Retired", "Unknown"]


class Contact(FrozenRecord):
    """A person in the address book."""

    first_name: str
    last_name: str
    contact_id: str
    is_user: bool = False
    gender: Gender = "Unknown"
    age: int | None = None
    nationality: str | None = None
    city_living: str | None = None
    country: str | None = None
    status: EmploymentStatus = "Unknown"
    job: str | None = None
    description: str | None = None
    phone: str | None = None
    email: str | None = None
    address: str | None = None


class NewContact(FrozenRecord):
    """The fields of a new contact."""

    first_name: str
    last_name: str
    gender: str | None = None
    age: int | None = None
    nationality: str | None = None
    city_living: str | None = None
    country: str | None = None
    status: str | None = None
    job: str | None = None
    description: str | None = None
    phone: str | None = None
    email: str | None = None
    address: str | None = None


class ContactPage(TypedDict):
    """A part of the contacts."""

    contacts: list[Contact]
    metadata: PageExtent


NEW_CONTACT_CHECKS = dict.fromkeys(NewContact.__struct_fields__, FREE_CHECK) | {
    "first_name": STRIPPED_CHECK,
    "last_name": STRIPPED_CHECK,
    "email": STRIPPED_CHECK,
    "phone": PHONE_CHECK,
}


class Contacts(App):
    """Contacts by id. An id cannot be changed, which it can in ARE."""

    aliases = ("ContactsApp", "InternalContacts")
    contacts: CowDict[Contact] = CowDict()
    view_limit: int = 10

    @action("agent", "data")
    def get_contacts(self, offset: int = 0) -> ContactPage:
        """List some contacts; there is a limit, so go on with a larger offset.

        Args:
            offset: How many contacts to leave out.
        """
        rows = list(self.contacts.values())
        chosen = page_of(rows, offset, self.view_limit)
        return ContactPage(contacts=list(chosen), metadata=page_extent(rows, offset, self.view_limit))

    def user_names(self) -> tuple[str, ...]:
        """The full name of the contact who is the user."""
        return tuple(f"{one.first_name} {one.last_name}" for one in self.contacts.values() if one.is_user)

    def user_addresses(self) -> tuple[str, ...]:
        """The address of the contact who is the user."""
        return tuple(one.address for one in self.contacts.values() if one.is_user and one.address)

    @action("agent", "data")
    def get_contact(self, contact_id: str) -> Contact:
        """Read a contact.

        Args:
            contact_id: The id of the contact.
        """
        return row_of(self.contacts, contact_id, "contact")

    @action("agent", "data")
    def get_current_user_details(self) -> Contact:
        """Read what is known of the user: name, phone number, address of mail, home and more."""
        for contact in self.contacts.values():
            if contact.is_user:
                return contact
        raise ToolError("none of the contacts is the user")

    @action("agent", "data", writes=True, checks=NEW_CONTACT_CHECKS)
    @arguments_from(NewContact)
    def add_new_contact(self, new: NewContact) -> str:
        """Add a contact.

        Args:
            first_name: The first name.
            last_name: The last name.
            gender: Female, Male, Other or Unknown.
            age: The age in years, from 1 to 100.
            nationality: The nationality.
            city_living: The city of the home.
            country: The country of the home.
            status: Student, Employed, Unemployed, Retired or Unknown.
            job: The job.
            description: Anything else.
            phone: The phone number.
            email: The address of mail.
            address: The postal address.

        Returns:
            The id of the contact.
        """
        name = (new.first_name.lower(), new.last_name.lower())
        for existing in self.contacts.values():
            if (existing.first_name.lower(), existing.last_name.lower()) == name:
                raise ToolError(f"there is a contact of this name already: {existing.contact_id}")
        fields = msgspec.structs.asdict(new)
        contact = _check_contact({**fields, "contact_id": ""})
        contact = msgspec.structs.replace(contact, contact_id=self.new_id())
        self.contacts[contact.contact_id] = contact
        return contact.contact_id

    @action("agent", "data", writes=True, checks={"updates": judged_text("changes to a contact")})
    def edit_contact(self, contact_id: str, updates: dict[str, Any]) -> str | None:
        """Change a contact.

        Args:
            contact_id: The id of the contact.
            updates: The fields to change and their new values; fields are called as in get_contact.
        """
        old = msgspec.structs.asdict(self.get_contact(contact_id))
        if unknown := updates.keys() - old.keys() | updates.keys() & {"contact_id"}:
            names = ", ".join(key for key in old if key != "contact_id")
            raise ToolError(f"{', '.join(sorted(unknown))} cannot be changed; what can: {names}")
        self.contacts[contact_id] = _check_contact(old | updates)
        return f"Contact {contact_id} updated successfully."

    @action("agent", "data", writes=True)
    def delete_contact(self, contact_id: str) -> str:
        """Delete a contact.

        Args:
            contact_id: The id of the contact.
        """
        self.get_contact(contact_id)
        del self.contacts[contact_id]
        return f"Contact {contact_id} successfully deleted."

    @action("agent")
    def search_contacts(self, query: str) -> list[Contact]:
        """Find contacts with a text in name, phone number or address of mail, in any case.

        Args:
            query: The text.
        """
        sought = query.lower()
        matching = []
        for contact in self.contacts.values():
            first, last = contact.first_name.lower(), contact.last_name.lower()
            texts = (f"{first} {last}", f"{last} {first}", (contact.phone or "").lower(), (contact.email or "").lower())
            if any(sought in text for text in texts):
                matching.append(contact)
        return matching

    @classmethod
    def from_are(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state, which names gender and status in several ways."""
        rows = {key: {**row, "contact_id": row.get("contact_id") or key} for key, row in state["contacts"].items()}
        for row in rows.values():
            row["gender"] = _match_option(Gender, row.get("gender"))
            row["status"] = _match_option(EmploymentStatus, row.get("status"))
        return cls.load(name, {"contacts": rows, "view_limit": state.get("view_limit", cls.view_limit)})


def _match_option(options: Any, value: Any) -> Any:
    """A word as it is written here, from any case, and from the name of an enumeration's member."""
    if not isinstance(value, str):
        return "Unknown" if value is None else value
    word = value.rpartition(".")[2].lower()
    return next((option for option in get_args(options) if option.lower() == word), value)


def _check_contact(fields: Mapping[str, Any]) -> Contact:
    texts = {
        **fields,
        "gender": _match_option(Gender, fields["gender"]),
        "status": _match_option(EmploymentStatus, fields["status"]),
    }
    try:
        contact = msgspec.convert(texts, Contact)
    except msgspec.ValidationError as error:
        raise ToolError(f"a contact cannot be like this: {error}") from error
    if contact.age is not None and not 1 <= contact.age <= 100:
        raise ToolError(f"age must be from 1 to 100, and not {contact.age}")
    return contact
