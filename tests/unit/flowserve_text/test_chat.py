"""Chat prompts from role patterns."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from flowserve.text import ChatTemplate, TextError

TINY = Path(__file__).parents[3] / "examples/models/tiny-deepseek-v3"


def load(directory: Path, settings: dict[str, Any]) -> ChatTemplate:
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return ChatTemplate.load(directory)


def test_messages_become_one_prompt_that_asks_for_an_answer() -> None:
    chat = [("system", "Be brief."), ("user", "Hi {content}"), ("assistant", "Hello."), ("user", "Bye")]
    assert ChatTemplate.load(TINY).render(chat) == (
        "System: Be brief.\nUser: Hi {content}\nAssistant: Hello.\nUser: Bye\nAssistant:"
    )


def test_a_checkpoint_brings_its_own_patterns(tmp_path: Path) -> None:
    template = load(tmp_path, {"role_template": {"user": "<|U|>{content}", "assistant": "<|A|>{content}<|end|>"}})
    assert template.render([("user", "a"), ("assistant", "b"), ("user", "c")]) == "<|U|>a<|A|>b<|end|><|U|>c<|A|>"


def test_a_checkpoint_without_any_gets_the_default(tmp_path: Path) -> None:
    assert load(tmp_path, {}) == ChatTemplate.load(TINY)


def test_an_unknown_role_is_named() -> None:
    with pytest.raises(TextError, match="role 'tool' is not one of system, user, assistant"):
        ChatTemplate.load(TINY).render([("tool", "x")])


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"chat_template": "{{ messages }}"}, "chat_template is Jinja and not supported"),
        ({"role_template": "x"}, "role_template must be an object"),
        ({"role_template": {"user": "{content}"}}, "no pattern for the role assistant"),
        ({"role_template": {"assistant": "A"}}, "assistant must be a string with {content} in it once"),
        ({"role_template": {"assistant": "{content}{content}"}}, "once"),
        ({"role_template": {"assistant": None}}, "assistant must be a string"),
    ],
)
def test_a_template_that_cannot_be_used_is_refused(tmp_path: Path, settings: dict[str, Any], message: str) -> None:
    with pytest.raises(TextError, match=message):
        load(tmp_path, settings)
