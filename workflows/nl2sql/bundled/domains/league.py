"""A football league: clubs, players, matches, goals and transfers over three seasons."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

CLUBS = (
    ("Rovers", "Ashford"),
    ("United", "Brackley"),
    ("Athletic", "Colmouth"),
    ("Albion", "Dunmere"),
    ("City", "Elmsworth"),
    ("Wanderers", "Farrow"),
    ("Town", "Glenholm"),
    ("Rangers", "Harwick"),
    ("Sporting", "Inverley"),
    ("County", "Kingsbourne"),
    ("Victoria", "Colmouth"),
    ("Olympic", "Brackley"),
)
POSITIONS = ("midfielder", "defender", "forward", "goalkeeper")
NATIONS = ("English", "Spanish", "Brazilian", "French", "German", "Dutch", "Nigerian", "Norwegian", "Japanese")
REFEREES = ("B. Lowell", "C. Amadi", "D. Ferro", "E. Winslow", "F. Kranz", "G. Petit")
SEASONS = ("2020/21", "2021/22", "2022/23")


def fill(dice: Dice) -> Tables:
    """12 clubs, 290 players, 396 matches in 3 seasons, some 1,100 goals, 1,000 cards, 220 transfers."""
    clubs = [_club(dice, number, *row) for number, row in enumerate(CLUBS, start=1)]
    players = [_player(dice, number, name) for number, name in enumerate(people(dice, 290), start=1)]
    squads = {club: [row for row in players if row[2] == club] for club in range(1, 13)}
    fixtures = [(season, home, away) for season in SEASONS for home in range(1, 13) for away in range(1, 13) if home != away]
    matches = [_match(dice, number, clubs, fixture) for number, fixture in enumerate(fixtures, start=1)]
    goals, cards = [], []
    for match in matches:
        for club, count in ((match[3], match[5]), (match[4], match[6])):
            goals += [(match[0], *_goal(dice, squads[club])) for _ in range(count)]
            cards += [(match[0], *_card(dice, squads[club])) for _ in range(dice.heavy(0, 5))]
    names = ("club", "player", "match", "goal", "card", "transfer")
    transfers = [_transfer(dice, number) for number in range(1, 221)]
    counted = [[(number, *row) for number, row in enumerate(rows, start=1)] for rows in (goals, cards)]
    return dict(zip(names, (clubs, players, matches, *counted, transfers), strict=True))


def _club(dice: Dice, number: int, kind: str, city: str) -> Row:
    stadium = f"{dice.pick(('King', 'Mill', 'River', 'Castle', 'Park'))} {dice.pick(('Lane', 'Road', 'Ground', 'Field'))}"
    return (number, f"{city} {kind}", city, dice.between(1871, 1962), f"{city} {stadium}", dice.heavy(80, 620) * 100)


def _player(dice: Dice, number: int, name: str) -> Row:
    club = number % 12 + 1 if number <= 270 else None
    position = "goalkeeper" if number <= 24 else dice.skewed(POSITIONS[:3])
    height = dice.maybe(dice.bell(166, 202), 0.08)
    return (number, name, club, position, dice.day("1984-01-01", "2004-12-31"), dice.skewed(NATIONS), height)


def _match(dice: Dice, number: int, clubs: list[Row], fixture: tuple[str, int, int]) -> Row:
    season, home, away = fixture
    year = int(season[:4])
    strength = (home - away) / 12
    goals = dice.heavy(0, 5 - int(strength * 2)), dice.heavy(0, 4 + int(strength * 2))
    crowd = None if season == "2020/21" and dice.chance(0.3) else clubs[home - 1][5] * dice.between(35, 100) // 100
    return (number, season, dice.day(f"{year}-08-10", f"{year + 1}-05-25"), home, away, *goals, crowd, dice.skewed(REFEREES))


def _goal(dice: Dice, squad: list[Row]) -> Row:
    scorer = dice.skewed([row for row in reversed(squad) if row[3] != "goalkeeper"])
    penalty = dice.chance(0.1)
    helper = None if penalty or dice.chance(0.25) else dice.pick([row for row in squad if row is not scorer])[0]
    return (scorer[0], dice.between(1, 94), int(penalty), helper)


def _card(dice: Dice, squad: list[Row]) -> Row:
    return (dice.skewed(squad)[0], dice.between(3, 94), "red" if dice.chance(0.07) else "yellow")


def _transfer(dice: Dice, number: int) -> Row:
    target = dice.between(1, 12)
    origin = dice.maybe((target + dice.between(0, 10)) % 12 + 1, 0.2)
    signed = later(dice.day("2020-06-15", "2020-08-31"), 365 * dice.below(4))
    return (number, dice.between(1, 270), origin, target, signed, dice.maybe(dice.heavy(2, 900) * 50_000, 0.2))
