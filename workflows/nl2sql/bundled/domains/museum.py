"""A museum: its halls, artists, artworks, loans to exhibitions, restorations and ticket sales."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

HALLS = (
    ("Rotunda", "Central", 0, 420),
    ("Marble Hall", "Central", 0, 610),
    ("Long Gallery", "North", 1, 540),
    ("Print Room", "North", 2, 130),
    ("Sculpture Court", "South", 0, 780),
    ("Blue Room", "South", 1, 210),
    ("Modern Gallery", "East", 1, 660),
    ("Photography Studio", "East", 2, 190),
    ("Tapestry Hall", "North", 1, 320),
    ("Garden Pavilion", "South", 0, 150),
)
MEDIA = ("oil on canvas", "print", "drawing", "photograph", "bronze", "watercolour", "marble")
COUNTRIES = ("France", "Italy", "Netherlands", "Spain", "Germany", "Norway", "Japan", "Mexico")
CURATORS = ("Helena Brandt", "Idris Mensah", "Tove Lund", "Marco Conti", "Petra Kaya")
RESTORERS = ("Atelier Roux", "Bottega Lanza", "Studio Weiss", "Conserva")
ORIGINS = ("purchase", "bequest", "gift", "long-term loan")
TYPES = ("full", "reduced", "family", "free")


def fill(dice: Dice) -> Tables:
    """10 halls, 80 artists, 640 artworks, 24 exhibitions, some 420 exhibits, 260 restorations, 2,600 tickets."""
    halls = [(number, *row) for number, row in enumerate(HALLS, start=1)]
    artists = [_artist(dice, number, name) for number, name in enumerate(people(dice, 80), start=1)]
    names = titles(
        dice,
        "Portrait_of_a Study_of_a View_of_a Dream_of_a Memory_of_a Fragment_of_a Sketch_of_a Shadow_of_a Song_of_a "
        "Hour_of_a Praise_of_a Return_of_a Reading Sleeping Sitting Dancing Old Young Distant Blue Red Golden White Dark "
        "Lonely Quiet",
        "Woman Sailor Harbour Garden Bridge Merchant Dancer Child Musician Valley Storm Mill Cathedral "
        "Fisherman Mountain River Market Horse Poet Gardener Weaver Island Village Mirror Night Farmer",
        640,
    )
    artworks = [_artwork(dice, number, name, artists) for number, name in enumerate(names, start=1)]
    shows = titles(dice, "Light_and Faces_of Beyond Letters_from Masters_of", "Water the_North Silence Colour the_City", 24)
    exhibitions = [_exhibition(dice, number, name) for number, name in enumerate(shows, start=1)]
    exhibits = [
        (exhibition[0], artwork)
        for exhibition in exhibitions
        for artwork in sorted(dice.sample(range(1, 400), dice.between(6, 30)))
    ]
    restorations = [_restoration(dice, number) for number in range(1, 261)]
    tickets = [_ticket(dice, number, exhibitions) for number in range(1, 2601)]
    tables = ("hall", "artist", "artwork", "exhibition", "exhibit", "restoration", "ticket")
    return dict(zip(tables, (halls, artists, artworks, exhibitions, exhibits, restorations, tickets), strict=True))


def _artist(dice: Dice, number: int, name: str) -> Row:
    born = dice.maybe(dice.between(1590, 1985), 0.07)
    died = None if born is None or (born > 1935 and dice.chance(0.8)) else min(2021, born + dice.bell(28, 94))
    return (number, name, born, died, dice.maybe(dice.skewed(COUNTRIES), 0.06))


def _artwork(dice: Dice, number: int, title: str, artists: list[Row]) -> Row:
    artist = dice.skewed(artists[:74])
    born = artist[2] or 1800
    created = min(2020, born + dice.between(19, 58))
    acquired = dice.day(f"{max(1900, created)}-01-01", "2022-12-31")
    value = dice.maybe(dice.heavy(2, 2400) * 1000, 0.12)
    hall = dice.maybe(dice.skewed(range(1, 10)), 0.4)
    size = dice.heavy(12, 240), dice.heavy(10, 300)
    author = dice.maybe(artist[0], 0.05)
    return (number, title, author, dice.skewed(MEDIA), created, acquired, dice.skewed(ORIGINS), value, hall, *size)


def _exhibition(dice: Dice, number: int, name: str) -> Row:
    opens = dice.day("2021-01-10", "2023-09-30")
    sponsor = dice.maybe(dice.pick(("Banco Vela", "Norda Air", "Helvia")), 0.4)
    return (number, name, opens, later(opens, dice.between(40, 180)), dice.skewed(CURATORS), sponsor)


def _restoration(dice: Dice, number: int) -> Row:
    started = dice.day("2012-01-01", "2023-10-31")
    finished = None if started > "2023-05" and dice.chance(0.6) else later(started, dice.heavy(6, 400))
    cost = dice.maybe(dice.heavy(3, 260) * 100, 0.05) if finished else None
    return (number, dice.skewed(range(1, 520)), dice.skewed(RESTORERS), started, finished, cost)


def _ticket(dice: Dice, number: int, exhibitions: list[Row]) -> Row:
    show = dice.skewed(exhibitions[:22]) if dice.chance(0.55) else None
    visit = dice.day(show[2], show[3]) if show else dice.day("2021-01-02", "2023-12-30")
    kind = dice.skewed(TYPES)
    price = {"full": 14.0, "reduced": 8.5, "family": 30.0, "free": 0.0}[kind] + (4.0 if show and kind != "free" else 0.0)
    online = dice.chance(0.5)
    sold = later(visit, -dice.heavy(0, 60)) if online else visit
    country = dice.maybe(dice.skewed(COUNTRIES), 0.15)
    return (number, visit, sold, kind, price, show[0] if show else None, country, int(online))
