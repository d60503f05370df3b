"""An airline alliance's flights, fleet and bookings."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import CITIES, people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

MODELS = (("A320", 180), ("B737", 174), ("A321", 220), ("E190", 104), ("ATR 72", 70), ("A330", 277), ("B787", 296))
AIRLINES = (
    ("Norda Air", "Norway", 1946, "Northern Cross"),
    ("Iberwing", "Spain", 1987, "Meridian"),
    ("Lusavia", "Portugal", 1979, "Meridian"),
    ("Alpenjet", "Austria", 1998, None),
    ("Rhein Airways", "Germany", 1955, "Northern Cross"),
    ("Celtair", "Ireland", 2003, None),
    ("Gallia", "France", 1962, "Meridian"),
    ("Vela Italia", "Italy", 2011, None),
    ("Polonair", "Poland", 1971, "Northern Cross"),
    ("Euro Hopper", "Ireland", 2015, None),
)
TIERS = ("blue", "silver", "gold", "platinum")


def fill(dice: Dice) -> Tables:
    """22 airports, 10 airlines, 60 aircraft, 1,200 flights, 420 passengers, 2,600 bookings."""
    airports = [_airport(dice, city, country) for city, country in CITIES[:22]]
    airlines = [(number, *row) for number, row in enumerate(AIRLINES, start=1)]
    fleet = [_aircraft(dice, number) for number in range(60)]
    codes = [row[0] for row in airports]
    flying = [row for row in fleet if row[5] is None]
    flights = [_flight(dice, number, flying, codes) for number in range(1, 1201)]
    passengers = [
        (number, name, dice.day("1945-01-01", "2006-12-31"), dice.maybe(dice.skewed(CITIES)[0], 0.08), _tier(dice))
        for number, name in enumerate(people(dice, 420), start=1)
    ]
    bookings = [_booking(dice, number, flights) for number in range(1, 2601)]
    names = ("airport", "airline", "aircraft", "flight", "passenger", "booking")
    return dict(zip(names, (airports, airlines, fleet, flights, passengers, bookings), strict=True))


def _airport(dice: Dice, city: str, country: str) -> Row:
    kind = "International" if dice.chance(0.6) else "City"
    return (
        (city[0] + city[2:4]).upper(),
        f"{city} {kind} Airport",
        city,
        country,
        dice.maybe(dice.heavy(1, 620), 0.1),
        dice.between(1, 4),
    )


def _aircraft(dice: Dice, number: int) -> Row:
    model, seats = dice.skewed(MODELS)
    delivered = dice.day("1999-01-01", "2021-12-31")
    retired = dice.day("2022-01-01", "2024-06-30") if delivered < "2008" and dice.chance(0.6) else None
    return (f"VX-{number * 37 % 900 + 100}", number % 10 + 1, model, seats - dice.below(3) * 6, delivered, retired)


def _flight(dice: Dice, number: int, fleet: list[Row], codes: list[str]) -> Row:
    tail, airline = dice.skewed(fleet)[:2]
    origin = dice.skewed(codes)
    destination = dice.pick([code for code in codes if code != origin])
    status = "cancelled" if dice.chance(0.06) else "diverted" if dice.chance(0.02) else "landed"
    delay = None if status == "cancelled" else max(0, dice.heavy(-25, 240))
    row = (f"NX{dice.between(100, 399)}", airline, tail, origin, destination, dice.day("2022-01-01", "2023-12-31"))
    return (number, *row, dice.between(180, 2900), status, delay)


def _tier(dice: Dice) -> str | None:
    return dice.maybe(dice.skewed(TIERS), 0.35)


def _booking(dice: Dice, number: int, flights: list[Row]) -> Row:
    flight = dice.pick(flights)
    cabin = "business" if dice.chance(0.12) else "premium" if dice.chance(0.15) else "economy"
    price = dice.cents(29, 310) * {"economy": 1, "premium": 2, "business": 4}[cabin]
    booked = later(flight[6], -dice.heavy(0, 200))
    return (number, dice.skewed(range(1, 401)), flight[0], booked, cabin, round(price, 2), dice.maybe(dice.heavy(0, 3), 0.15))
