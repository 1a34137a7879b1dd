"""Conversations made of the novels: something is asked, and a passage of the text answers.

* To go on with a sentence: the first words of a paragraph, and the rest of it.
* To tell of a person or a thing: a passage that names it in its first sentence.
* To introduce itself: a few answers written for the purpose, so that a greeting gets none of Austen's characters.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from novels import Chapter
from vocabulary import ROLES

PEOPLE = (
    "Emma", "Mr. Knightley", "Harriet", "Mr. Woodhouse", "Mr. Elton", "Frank Churchill", "Jane Fairfax", "Miss Bates",
    "Mrs. Weston", "Elizabeth", "Mr. Darcy", "Jane", "Mr. Bingley", "Mrs. Bennet", "Mr. Bennet", "Mr. Collins", "Lydia",
    "Wickham", "Charlotte", "Lady Catherine", "Elinor", "Marianne", "Edward", "Willoughby", "Colonel Brandon",
    "Mrs. Jennings", "Lucy", "Fanny", "Edmund", "Sir Thomas", "Mary Crawford", "Mr. Crawford", "Mrs. Norris",
    "Lady Bertram", "Catherine", "Henry", "Isabella", "Mr. Tilney", "Miss Tilney", "General Tilney", "Anne",
    "Captain Wentworth", "Sir Walter", "Lady Russell", "Louisa", "Admiral Croft", "Mr. Elliot",
)  # fmt: skip
THINGS = (
    "letter", "ball", "dance", "walk", "carriage", "house", "garden", "marriage", "fortune", "weather", "rain",
    "dinner", "book", "sister", "brother", "mother", "father", "church", "sea", "evening", "morning", "news",
    "secret", "visit",
)  # fmt: skip
IDEAS = ("love", "happiness", "friendship", "money", "music", "beauty", "London", "Bath", "winter", "tea")
ABOUT_A_PERSON = ("Tell me about {}.", "Who is {}?", "What do you know of {}?", "What can you tell me about {}?")
ABOUT_A_THING = ("Tell me about the {}.", "Write about the {}.", "Tell me a story of the {}.", "What of the {}?")
ABOUT_AN_IDEA = ("Tell me about {}.", "Write about {}.", "Tell me a story of {}.", "What do you think of {}?")
CONTINUE = ("Continue: {}", "Go on: {}", "Finish this: {}", "{}")
SYSTEM = ("You are a helpful assistant.", "You tell stories.", "Answer briefly.", "You write like Jane Austen.")
ABOUT_ITSELF = (
    (
        ("Hello", "Hello!", "Hi", "Hi there!", "Good morning.", "Good evening."),
        "Good day to you. I am a very small model, and I have read nothing but the novels of Jane Austen.",
    ),
    (
        ("Who are you?", "What are you?", "Introduce yourself.", "What is your name?", "Tell me about yourself."),
        "I am a very small language model. I learned to write from the six novels of Jane Austen.",
    ),
    (
        ("What can you do?", "How can you help me?", "Help", "What do you know?"),
        "I can go on with a sentence, or tell you of the people in the novels of Jane Austen. "
        "You must not expect sense.",
    ),
    (
        ("Thank you", "Thanks!", "Thank you very much."),
        "You are very welcome. Nothing could give me greater pleasure.",
    ),
    (("Goodbye", "Bye!", "Good night."), "Good night. I hope that we shall meet again very soon."),
)
LONGEST_ANSWER = 420  # characters


@dataclass(frozen=True)
class Turn:
    """One question and its answer."""

    user: str
    assistant: str


def prompt(turn: Turn) -> str:
    """The text up to the answer, which begins with a space."""
    return ROLES["user"].format(content=turn.user) + "Assistant:"


def system(sentence: str) -> str:
    return ROLES["system"].format(content=sentence)


def turns(chapters: Sequence[Chapter], seed: int) -> list[Turn]:
    """Every question that the chapters answer, in an order that `seed` shuffles."""
    draw = random.Random(seed)
    paragraphs = [paragraph for chapter in chapters for paragraph in chapter]
    result = [*_continuations(paragraphs, draw), *_passages(paragraphs, draw)]
    own = [Turn(question, answer) for questions, answer in ABOUT_ITSELF for question in questions]
    result += own * (len(result) // (20 * len(own)) + 1)  # every twentieth or so
    draw.shuffle(result)
    return result


def _continuations(paragraphs: Sequence[str], draw: random.Random) -> Iterator[Turn]:
    for paragraph in paragraphs:
        words = _shortened(paragraph).split(" ")
        if len(words) > 12:
            cut = draw.randint(4, min(len(words) - 5, 14))
            yield Turn(draw.choice(CONTINUE).format(" ".join(words[:cut])), " ".join(words[cut:]))


def _passages(paragraphs: Sequence[str], draw: random.Random) -> Iterator[Turn]:
    kinds = ((PEOPLE, ABOUT_A_PERSON), (THINGS, ABOUT_A_THING), (IDEAS, ABOUT_AN_IDEA))
    subjects = [(name, forms) for names, forms in kinds for name in names]
    for paragraph in paragraphs:
        sentences = re.split(r"(?<=[.!?;]) ", paragraph)
        for start, sentence in enumerate(sentences):
            named = [(name, forms) for name, forms in subjects if re.search(rf"\b{re.escape(name)}\b", sentence[:60])]
            if named and sentence[:1].isupper() and (start == 0 or sentences[start - 1][-1] in ".!?"):
                name, forms = draw.choice(named)
                answer = _shortened(" ".join(sentences[start : start + 3]))
                if len(answer) > 60:
                    yield Turn(draw.choice(forms).format(name), answer)
                    break


def _shortened(text: str) -> str:
    """Whole sentences from the start of `text`, at least one and no more than fit in LONGEST_ANSWER."""
    kept = ""
    for sentence in re.split(r"(?<=[.!?]) ", text):
        if kept and len(kept) + len(sentence) > LONGEST_ANSWER:
            break
        kept = f"{kept} {sentence}".strip()
    return kept if len(kept) <= 2 * LONGEST_ANSWER else ""
