"""A city's public library: branches, books, copies, members and loans."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

BRANCHES = (
    ("Central Library", "Old Town"),
    ("Harbour Branch", "Harbour"),
    ("Northgate Branch", "Northgate"),
    ("Riverside Branch", "Riverside"),
    ("Mill Lane Branch", "Riverside"),
    ("Hilltop Branch", "Northgate"),
    ("Station Branch", "Old Town"),
    ("Garden City Branch", "Garden City"),
)
GENRES = ("novel", "crime", "history", "poetry", "science", "travel", "biography", "fantasy")
LANGUAGES = ("English", "French", "German", "Spanish", "Portuguese")
NATIONS = ("French", "British", "German", "Spanish", "Italian", "Irish", "Polish", "Portuguese")
ADJECTIVES = "Silent Broken Golden Distant Hidden Last Winter Burning Paper Second Crooked Blue Endless Salted Northern Quiet"
NOUNS = (
    "Harbour Orchard Letters River Garden Compass House Summer Bridge Mountain Witness Road Lantern Island Clock Tide Window"
)


def fill(dice: Dice) -> Tables:
    """8 branches, 70 authors, 240 books, 900 copies, 350 members, 2,200 loans."""
    branches = [
        (number, *row, dice.day("1921-01-01", "2015-12-31"), dice.maybe(dice.heavy(250, 5200), 0.12))
        for number, row in enumerate(BRANCHES, start=1)
    ]
    authors = [_author(dice, number, name) for number, name in enumerate(people(dice, 70), start=1)]
    books = [_book(dice, number, title, authors) for number, title in enumerate(titles(dice, ADJECTIVES, NOUNS, 240), start=1)]
    copies = [_copy(dice, number) for number in range(1, 901)]
    members = [_member(dice, number, name) for number, name in enumerate(people(dice, 350), start=1)]
    loans = [_loan(dice, number, copies, members) for number in range(1, 2201)]
    names = ("branch", "author", "book", "copy", "member", "loan")
    return dict(zip(names, (branches, authors, books, copies, members, loans), strict=True))


def _author(dice: Dice, number: int, name: str) -> Row:
    born = dice.between(1880, 1990)
    died = min(2021, born + dice.bell(35, 95)) if born < 1950 and dice.chance(0.8) else None
    return (number, name, dice.skewed(NATIONS), born, died)


def _book(dice: Dice, number: int, title: str, authors: list[Row]) -> Row:
    writer = dice.skewed(authors)
    published = min(2022, writer[3] + dice.bell(22, 70))
    pages = dice.maybe(dice.bell(80, 720), 0.07)
    return (number, f"The {title}", writer[0], dice.skewed(GENRES), dice.skewed(LANGUAGES), published, pages)


def _copy(dice: Dice, number: int) -> Row:
    book = number if number <= 225 else dice.skewed(range(1, 226))
    condition = dice.skewed(("good", "worn", "new", "damaged"))
    return (number, book, dice.skewed(range(1, 9)), dice.day("2008-01-01", "2021-12-31"), condition)


def _member(dice: Dice, number: int, name: str) -> Row:
    joined = dice.day("2012-01-01", "2023-06-30")
    category = dice.skewed(("adult", "student", "senior", "child"))
    span = {"adult": (1955, 2000), "student": (1996, 2006), "senior": (1935, 1957), "child": (2009, 2018)}[category]
    born = dice.maybe(dice.day(f"{span[0]}-01-01", f"{span[1]}-12-31"), 0.06)
    return (number, name, born, joined, dice.maybe(dice.skewed(range(1, 9)), 0.1), category)


def _loan(dice: Dice, number: int, copies: list[Row], members: list[Row]) -> Row:
    member = dice.skewed(members[:320])
    borrowed = dice.day(max("2022-01-01", member[3]), "2023-12-15")
    kept = dice.bell(2, 36) + (dice.heavy(0, 60) if dice.chance(0.2) else 0)
    returned = None if dice.chance(0.07) else later(borrowed, kept)
    fine = round((kept - 28) * 0.25, 2) if returned and kept > 28 else None
    return (number, dice.skewed(copies)[0], member[0], borrowed, later(borrowed, 28), returned, fine)
