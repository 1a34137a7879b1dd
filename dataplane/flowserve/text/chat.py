"""From the messages of a chat to one prompt.

A template is one pattern a role, such as `"User: {content}\\n"`. The prompt is the messages' patterns one after the
other, then the assistant's up to its content: the model goes on from there. The patterns stand under `role_template`
in tokenizer_config.json; a checkpoint that has none gets `DEFAULT_ROLES`. Jinja templates (`chat_template`) are
programs, and are not run: a checkpoint that has only such a one is refused for chat, rather than prompted wrongly.

Role markers are plain text, so a message can imitate them; what it can't do is to produce special tokens.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from flowserve.text.errors import TextError
from flowserve.text.settings import FILE, read_settings

CONTENT = "{content}"
DEFAULT_ROLES = {
    "system": "System: {content}\n",
    "user": "User: {content}\n",
    "assistant": "Assistant: {content}\n",
}


@dataclass(frozen=True)
class ChatTemplate:
    """`roles`: pattern of each role, with `{content}` in it once; `assistant` is one of them."""

    roles: Mapping[str, str]

    def __post_init__(self) -> None:
        if "assistant" not in self.roles:
            raise TextError("role_template has no pattern for the role assistant")
        for role, pattern in self.roles.items():
            if not isinstance(pattern, str) or pattern.count(CONTENT) != 1:
                raise TextError(f"role_template: {role} must be a string with {CONTENT} in it once, not {pattern!r}")

    @classmethod
    def load(cls, directory: Path) -> ChatTemplate:
        """The template of a checkpoint. Raises TextError if it has none that can be used."""
        settings = read_settings(directory)
        roles = settings.get("role_template")
        if roles is None and "chat_template" in settings:
            raise TextError(f"{directory / FILE}: chat_template is Jinja and not supported; add a role_template")
        if roles is not None and not isinstance(roles, dict):
            raise TextError(f"{directory / FILE}: role_template must be an object, not {roles!r}")
        return cls(DEFAULT_ROLES if roles is None else roles)

    def render(self, messages: Iterable[tuple[str, str]]) -> str:
        """The prompt that asks for the assistant's answer to (role, content) pairs. TextError for an unknown role."""
        prompt = ""
        for role, content in messages:
            if role not in self.roles:
                raise TextError(f"role {role!r} is not one of {', '.join(self.roles)}")
            prompt += self.roles[role].replace(CONTENT, content)
        # The space before the answer belongs to its first token.
        return prompt + self.roles["assistant"].partition(CONTENT)[0].rstrip(" ")
