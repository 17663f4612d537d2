"""Hosted models by the names of their providers: `openai/MODEL`, `anthropic/MODEL`, `ollama/MODEL`, `vllm:URL`."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from wanderlust.errors import UsageError

Api = Literal["chat", "anthropic", "google"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Provider:
    """Where a provider's models are, and which environment variables its own SDK reads."""

    name: str
    url: str
    url_variable: str
    key_variables: tuple[str, ...] = ()
    """The first one that is set holds the key; none: no key is needed."""
    api: Api = "chat"

    def base_url(self) -> str:
        """The base URL, or the one that the user has set in its place."""
        given = os.environ.get(self.url_variable)
        if not given:
            return self.url
        if self.name == "ollama":  # its variable is a host, as often without a scheme
            host = given if "://" in given else f"http://{given}"
            host = host.replace("//0.0.0.0", "//127.0.0.1")
            return host.rstrip("/") if host.rstrip("/").endswith("/v1") else f"{host.rstrip('/')}/v1"
        return given

    def key(self, variable: str | None) -> str | None:
        """The key in `variable`, else in the provider's own. Raises UsageError where one is needed and none is set.

        It is sent to this provider's base URL and nowhere else.
        """
        names = (variable,) if variable is not None else self.key_variables
        found = next((value for name in names if (value := os.environ.get(name))), None)
        if found is None and names:
            raise UsageError(f"set {' or '.join(names)} to your key of {self.name}, or name a variable by --api-key")
        return found


PROVIDERS: Mapping[str, Provider] = {
    provider.name: provider
    for provider in (
        Provider(
            name="openai",
            url="https://api.openai.com/v1",
            url_variable="OPENAI_BASE_URL",
            key_variables=("OPENAI_API_KEY",),
        ),
        Provider(
            name="anthropic",
            url="https://api.anthropic.com",
            url_variable="ANTHROPIC_BASE_URL",
            key_variables=("ANTHROPIC_API_KEY",),
            api="anthropic",
        ),
        Provider(
            name="google",
            url="https://generativelanguage.googleapis.com",
            url_variable="GOOGLE_GEMINI_BASE_URL",
            key_variables=("GEMINI_API_KEY", "GOOGLE_API_KEY"),
            api="google",
        ),
        Provider(
            name="openrouter",
            url="https://openrouter.ai/api/v1",
            url_variable="OPENROUTER_BASE_URL",
            key_variables=("OPENROUTER_API_KEY",),
        ),
        Provider(name="ollama", url="http://127.0.0.1:11434/v1", url_variable="OLLAMA_HOST"),
    )
}
VLLM_PREFIX = "vllm:"


def split_provider(name: str) -> tuple[Provider, str] | None:
    """The provider and the model in `provider/MODEL`; None where the name is none of a provider's."""
    prefix, slash, model = name.partition("/")
    return (PROVIDERS[prefix], model) if slash and model and prefix in PROVIDERS else None
