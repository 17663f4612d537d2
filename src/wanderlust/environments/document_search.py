"""Questions over several pages of a small made-up world, to be answered with a search tool.

People, towns and firms are generated, so that no model knows them; every question needs two or three pages.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import cache, cached_property
from itertools import product
from random import Random

from wanderlust.errors import UsageError, quoted
from wanderlust.policies.scripted import Scripted
from wanderlust.rubrics.rewards import exact
from wanderlust.rubrics.rubric import Reward, Rubric
from wanderlust.tools.function import ToolError, tool
from wanderlust.tools.tool_environment import ToolEnvironment
from wanderlust.types import Policy, Task, system, user

REGIONS = {"train": (80, 30, 40, 8), "eval": (16, 8, 8, 4)}
"""Numbers of people, towns, firms and countries of the part of the world that a split asks about."""
MAX_SEARCH_RESULTS = 5
"""Pages that a search lists."""
SEARCH_RULES = (
    "Answer the question about a made-up world. Find pages with the search tool and read them with the page tool. "
    "End with a last line that has the answer alone."
)


@dataclass(frozen=True)
class SearchWorld:
    """The relations of people, towns and firms: from a name to a name or a year."""

    born: Mapping[str, str]
    mentor: Mapping[str, str]
    employer: Mapping[str, str]
    country: Mapping[str, str]
    mayor: Mapping[str, str]
    founder: Mapping[str, str]
    founded: Mapping[str, str]

    @cached_property
    def pages(self) -> dict[str, str]:
        """Text by title."""
        people = {
            who: f"{who} was born in {self.born[who]}, studied under {self.mentor[who]} and works for {firm}."
            for who, firm in self.employer.items()
        }
        towns = {
            town: f"{town} is a town in {land}. Its mayor is {self.mayor[town]}." for town, land in self.country.items()
        }
        firms = {
            firm: f"{firm} is a firm that {who} founded in the year {self.founded[firm]}."
            for firm, who in self.founder.items()
        }
        return people | towns | firms

    @cached_property
    def counts(self) -> dict[str, Counter[str]]:
        """The number of times each word is on each page."""
        return {title: Counter(word_tokens(text)) for title, text in self.pages.items()}

    def ranked(self, query: str) -> list[str]:
        """Titles of the pages that fit best, by BM25 (Robertson and Zaragoza 2009; k1 1.2, b 0.75), at most SHOWN."""
        mean = sum(count.total() for count in self.counts.values()) / len(self.counts)
        scores: Counter[str] = Counter()
        for word in {*word_tokens(query)}:
            having = [title for title, count in self.counts.items() if word in count]
            rarity = math.log(1 + (len(self.counts) - len(having) + 0.5) / (len(having) + 0.5))
            for title in having:
                often, length = self.counts[title][word], self.counts[title].total()
                scores[title] += rarity * often * 2.2 / (often + 1.2 * (0.25 + 0.75 * length / mean))  # type: ignore[assignment]
        return sorted(scores, key=lambda title: (-scores[title], title))[:MAX_SEARCH_RESULTS]

    def questions(self) -> Iterator[tuple[str, str]]:
        """Every question with its answer."""
        for firm, who in self.founder.items():
            yield f"In which country was the founder of {firm} born?", self.country[self.born[who]]
            yield f"Who taught the founder of {firm}?", self.mentor[who]
        for who, teacher in self.mentor.items():
            yield f"Who is mayor of the town where the teacher of {who} was born?", self.mayor[self.born[teacher]]
            yield f"In which year was the firm founded that {who} works for?", self.founded[self.employer[who]]


def word_tokens(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return re.findall(r"\w+", text.lower())


@cache
def make_search_world(seed: int = 0) -> SearchWorld:
    """The world of a seed, the regions of all splits together; equal seeds, equal worlds."""
    parts = [make_region(split, seed) for split in REGIONS]
    return SearchWorld(
        *(
            {name: value for part in parts for name, value in getattr(part, relation.name).items()}
            for relation in fields(SearchWorld)
        )
    )


@cache
def make_region(split: str, seed: int = 0) -> SearchWorld:
    """The part of the world that a split asks about. Regions have no name and no year in common."""
    place = list(REGIONS).index(split)
    people_count, town_count, firm_count, country_count = REGIONS[split]
    rng, syllables = Random(f"search/{seed}"), ["".join(pair) for pair in product("bdfgklmnprstv", "aeiou")]
    every_name = list(dict.fromkeys("".join(rng.choices(syllables, k=3)).title() for _ in range(1000)))
    names = iter(every_name[place :: len(REGIONS)])
    rng = Random(f"search/{seed}/{split}")
    people = [f"{next(names)} {next(names)}" for _ in range(people_count)]
    towns, firms = [next(names) for _ in range(town_count)], [f"{next(names)} Ltd" for _ in range(firm_count)]
    lands = [f"{next(names)}land" for _ in range(country_count)]
    return SearchWorld(
        born={who: rng.choice(towns) for who in people},
        mentor={who: people[n - 1] for n, who in enumerate(people)},
        employer={who: rng.choice(firms) for who in people},
        country={town: rng.choice(lands) for town in towns},
        mayor=dict(zip(towns, rng.sample(people, town_count), strict=True)),
        founder=dict(zip(firms, rng.sample(people, firm_count), strict=True)),
        founded={firm: str(rng.randrange(1800 + place, 2000, len(REGIONS))) for firm in firms},
    )


def search(query: str) -> list[str]:
    """Find pages that have the words of a query.

    Args:
        query: A few words, such as names.

    Returns:
        Titles, the best first.
    """
    return make_search_world().ranked(query[:1000])


def read_page(title: str) -> str:
    """Read a page.

    Args:
        title: Its title, as the search tool gave it.
    """
    if title not in make_search_world().pages:
        raise ToolError(f"there is no page {quoted(title, 100)}: search for it first")
    return make_search_world().pages[title]


def last_line(text: str) -> str:
    """The words and numbers of the last line; what stands around them does not matter, but for a number's sign."""
    return " ".join(re.findall(r"-\d+|\w+", text.strip().rpartition("\n")[2][-1000:].lower()))


class Search(ToolEnvironment):
    """Questions over several pages of a made-up world, with a search tool.

    Answers are exact. Questions of `eval` are about people, towns and firms that none of `train` touches.
    """

    tools = (search, tool(name="page")(read_page))
    rubric = Rubric(Reward(exact(read=last_line, ignore_case=True), name="right"))

    def oracle(self, task: Task) -> Policy:
        """Knows the answer."""
        return Scripted([task.answer])

    def tasks(self, split: str = "train") -> list[Task]:
        """Every question of the split's region once, in an order that mixes the kinds."""
        if split not in REGIONS:
            raise UsageError(f"there is no split {split!r}: one of {', '.join(REGIONS)}")
        questions = list(make_region(split).questions())
        Random(f"search/{split}").shuffle(questions)
        return [
            Task(id=f"search-{split}-{n}", prompt=(system(SEARCH_RULES), user(ask)), answer=reply)
            for n, (ask, reply) in enumerate(questions)
        ]
