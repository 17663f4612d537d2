"""The public names, each from the module that defines it: read when one is first used, and by type checkers."""

from wanderlust_hub.index import Hub as Hub
from wanderlust_hub.publishing import create_hub as create_hub
from wanderlust_hub.publishing import publish as publish
