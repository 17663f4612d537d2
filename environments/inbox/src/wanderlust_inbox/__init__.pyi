"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_inbox.environment import Inbox as Inbox
from wanderlust_inbox.importing import import_mail as import_mail
from wanderlust_inbox.own_mail import OwnMail as OwnMail
from wanderlust_inbox.question_writers import TemplateWriter as TemplateWriter
from wanderlust_inbox.question_writing import WritingOptions as WritingOptions
from wanderlust_inbox.question_writing import write_inbox_questions as write_inbox_questions
from wanderlust_inbox.store import InboxFile as InboxFile
