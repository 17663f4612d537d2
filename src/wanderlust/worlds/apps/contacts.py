"""The user's contacts, of whom the user is one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self, TypedDict, get_args

import msgspec

from wanderlust.tools.function import ToolError
from wanderlust.worlds.engine.app import App, Extent, action, extent, part
from wanderlust.worlds.engine.argument_checks import FREE, PHONE, STRIPPED, soft, wide
from wanderlust.worlds.engine.cow_dict import Record, Table

GENDERS = Literal["Female", "Male", "Other", "Unknown"]
STATUSES = Literal["Student", "Employed", "Unemployed", "Retired", "Unknown"]


class Contact(Record):
    """Somebody."""

    first_name: str
    last_name: str
    contact_id: str
    is_user: bool = False
    gender: GENDERS = "Unknown"
    age: int | None = None
    nationality: str | None = None
    city_living: str | None = None
    country: str | None = None
    status: STATUSES = "Unknown"
    job: str | None = None
    description: str | None = None
    phone: str | None = None
    email: str | None = None
    address: str | None = None


class NewContact(Record):
    """What is known of somebody new."""

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


class Listed(TypedDict):
    """A part of the contacts."""

    contacts: list[Contact]
    metadata: Extent


NEW = dict.fromkeys(NewContact.__struct_fields__, FREE) | {
    "first_name": STRIPPED,
    "last_name": STRIPPED,
    "email": STRIPPED,
    "phone": PHONE,
}


class Contacts(App):
    """Contacts by id. An id cannot be changed, which it can in ARE."""

    aliases = ("ContactsApp", "InternalContacts")
    contacts: Table[Contact] = Table()
    view_limit: int = 10

    @action("agent", "data")
    def get_contacts(self, offset: int = 0) -> Listed:
        """List some contacts; there is a limit, so go on with a larger offset.

        Args:
            offset: How many contacts to leave out.
        """
        rows = list(self.contacts.values())
        chosen = part(rows, offset, self.view_limit)
        return Listed(contacts=list(chosen), metadata=extent(rows, offset, self.view_limit))

    @action("agent", "data")
    def get_contact(self, contact_id: str) -> Contact:
        """Read a contact.

        Args:
            contact_id: The id of the contact.
        """
        found = self.contacts.get(contact_id)
        if found is None:
            raise ToolError(f"there is no contact {contact_id!r}")
        return found

    @action("agent", "data")
    def get_current_user_details(self) -> Contact:
        """Read what is known of the user: name, phone number, address of mail, home and more."""
        for contact in self.contacts.values():
            if contact.is_user:
                return contact
        raise ToolError("none of the contacts is the user")

    @action("agent", "data", writes=True, checks=NEW)
    @wide(NewContact)
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
        for known in self.contacts.values():
            if (known.first_name.lower(), known.last_name.lower()) == name:
                raise ToolError(f"there is a contact of this name already: {known.contact_id}")
        given = msgspec.structs.asdict(new)
        contact = _checked({**given, "contact_id": ""})
        contact = msgspec.structs.replace(contact, contact_id=self.new_id())
        self.contacts[contact.contact_id] = contact
        return contact.contact_id

    @action("agent", "data", writes=True, checks={"updates": soft("changes to a contact")})
    def edit_contact(self, contact_id: str, updates: dict[str, Any]) -> str | None:
        """Change a contact.

        Args:
            contact_id: The id of the contact.
            updates: The fields to change and their new values; fields are called as in get_contact.
        """
        old = msgspec.structs.asdict(self.get_contact(contact_id))
        if unknown := updates.keys() - old.keys() | updates.keys() & {"contact_id"}:
            known = ", ".join(key for key in old if key != "contact_id")
            raise ToolError(f"{', '.join(sorted(unknown))} cannot be changed; what can: {known}")
        self.contacts[contact_id] = _checked(old | updates)
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
        return [contact for contact in self.contacts.values() if any(sought in text for text in _texts(contact))]

    @classmethod
    def adopt(cls, name: str, state: Mapping[str, Any]) -> Self:
        """From ARE's state, which names gender and status in several ways."""
        rows = {key: {**row, "contact_id": row.get("contact_id") or key} for key, row in state["contacts"].items()}
        for row in rows.values():
            row["gender"], row["status"] = _one_of(GENDERS, row.get("gender")), _one_of(STATUSES, row.get("status"))
        return cls.load(name, {"contacts": rows, "view_limit": state.get("view_limit", cls.view_limit)})


def _texts(contact: Contact) -> tuple[str, ...]:
    first, last = contact.first_name.lower(), contact.last_name.lower()
    return f"{first} {last}", f"{last} {first}", (contact.phone or "").lower(), (contact.email or "").lower()


def _one_of(words: Any, given: Any) -> Any:
    """A word as it is written here, from any case, and from the name of an enumeration's member."""
    if not isinstance(given, str):
        return "Unknown" if given is None else given
    word = given.rpartition(".")[2].lower()
    return next((known for known in get_args(words) if known.lower() == word), given)


def _checked(fields: Mapping[str, Any]) -> Contact:
    given = {
        **fields,
        "gender": _one_of(GENDERS, fields["gender"]),
        "status": _one_of(STATUSES, fields["status"]),
    }
    try:
        contact = msgspec.convert(given, Contact)
    except msgspec.ValidationError as error:
        raise ToolError(f"a contact cannot be like this: {error}") from error
    if contact.age is not None and not 1 <= contact.age <= 100:
        raise ToolError(f"age must be from 1 to 100, and not {contact.age}")
    return contact
