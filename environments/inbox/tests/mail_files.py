"""Mail files for tests, made here and of nobody: a small mbox, and messages with whatever can be wrong with mail."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path

START = datetime(2026, 3, 2, 9, tzinfo=UTC)
OWNER = "rita@home.example"


def message(
    number: int,
    sender: str,
    subject: str,
    body: str,
    *,
    to: str = f"Rita Vale <{OWNER}>",
    answers: int | None = None,
    **headers: str,
) -> EmailMessage:
    """InboxMail `number`; a day later than the one before it."""
    mail = EmailMessage()
    mail["From"], mail["To"], mail["Subject"] = sender, to, subject
    mail["Date"] = format_datetime(START + timedelta(days=number))
    mail["Message-ID"] = f"<{number}@home.example>"
    if answers is not None:
        mail["In-Reply-To"] = mail["References"] = f"<{answers}@home.example>"
    for name, value in headers.items():
        mail[name.replace("_", "-")] = value
    mail.set_content(body)
    return mail


def correspondence() -> list[EmailMessage]:
    """Forty mails around one owner: bills, dates, a meeting that is moved, a newsletter."""
    mails = []
    firms = ("Alder Dental", "Brook Heating", "Cedar Garage", "Dune Insurance", "Elm Library", "Fern Optics")
    for number in range(12):
        firm = firms[number % 6]
        address = f"{firm} <office@{firm.split()[0].lower()}.example>"
        amount = 40 + 13 * number
        mails.append(
            message(
                3 * number,
                address,
                f"Invoice {7100 + 37 * number}",
                f"Dear Rita Vale,\n\nyour invoice {7100 + 37 * number} comes to {amount}.50 EUR. "
                f"Please pay it by {1 + number} June 2026.\n\n{firm}",
            )
        )
        mails.append(
            message(
                3 * number + 1,
                f"Rita Vale <{OWNER}>",
                f"Re: Invoice {7100 + 37 * number}",
                f"Thank you, I will pay it.\n\nOn Monday {firm} wrote:\n> your invoice comes to {amount}.50 EUR.",
                to=address,
                answers=3 * number,
            )
        )
        mails.append(
            message(
                3 * number + 2,
                "City News <news@city.example>",
                f"City news, number {number}",
                f"This week: the market on the old square, and concert number {number} in the park, "
                f"by a band from {('Paris', 'Oslo', 'Cork')[number % 3]}.",
            )
        )
    mails.append(message(40, "Ines Roth <ines@club.example>", "Club dinner", "The dinner is on 14 May at 19:30."))
    mails.append(
        message(41, "Ines Roth <ines@club.example>", "Re: Club dinner", "It is moved to 21 May at 20:15.", answers=40)
    )
    return mails


def write_mbox(path: Path, mails: Iterable[EmailMessage]) -> Path:
    """Write the mails as an mbox."""
    with path.open("wb") as file:
        for mail in mails:
            text = mail.as_bytes().replace(b"\nFrom ", b"\n>From ")
            file.write(b"From someone@home.example Mon Mar  2 09:00:00 2026\n" + text + b"\n\n")
    return path
