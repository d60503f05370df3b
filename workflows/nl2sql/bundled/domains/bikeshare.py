"""A city's bicycle sharing scheme: stations, bicycles, riders, trips and repairs."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

DISTRICTS = ("Centre", "Harbour", "University", "Westend", "Hillside", "Industrial Park")
PLACES = (
    "Market Square,Opera,City Hall,Central Station,Cathedral,Fish Quay,Lighthouse,Ferry Terminal,Campus North,Campus South,"
    "Library,Science Park,West Gate,Palm Street,Linden Street,Old Mill,Vineyard,Observatory,Water Tower,Foundry,Depot,Brewery"
)
MODELS = (("City Classic", 0, 480), ("Volt One", 1, 1650), ("Cargo", 0, 1900), ("Volt Cargo", 1, 3200), ("City Light", 0, 620))
PARTS = ("tyre", "brake", "chain", "light", "lock", "battery")
MEMBERSHIPS = ("annual", "monthly", "day pass", "student")


def fill(dice: Dice) -> Tables:
    """22 stations, 130 bikes, 380 riders, 2,800 trips, 420 repairs, 365 days of weather."""
    stations = [_station(dice, number, name) for number, name in enumerate(PLACES.split(","), start=1)]
    bikes = [_bike(dice, number) for number in range(1, 131)]
    riders = [_rider(dice, number, name) for number, name in enumerate(people(dice, 380), start=1)]
    trips = [_trip(dice, number, bikes) for number in range(1, 2801)]
    repairs = [_repair(dice, number) for number in range(1, 421)]
    weather = _weather(dice)
    names = ("station", "bike", "rider", "trip", "repair", "weather")
    return dict(zip(names, (stations, bikes, riders, trips, repairs, weather), strict=True))


def _station(dice: Dice, number: int, name: str) -> Row:
    district = DISTRICTS[(0, 0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5)[number - 1]]
    closed = dice.day("2023-09-01", "2023-12-31") if number in (7, 17, 21) else None
    return (number, name, district, dice.between(4, 16) * 2, dice.day("2016-03-01", "2021-10-31"), closed)


def _bike(dice: Dice, number: int) -> Row:
    model, electric, price = dice.skewed(MODELS)
    paid = price + dice.between(-8, 8) * 10
    return (number, model, electric, dice.day("2016-03-01", "2022-12-31"), paid, dice.maybe(dice.skewed(range(1, 23)), 0.1))


def _rider(dice: Dice, number: int, name: str) -> Row:
    membership = dice.skewed(MEMBERSHIPS)
    born = dice.maybe(dice.between(1996, 2005) if membership == "student" else dice.bell(1945, 2006), 0.1)
    return (number, name, membership, born, dice.day("2017-01-01", "2022-12-31"), dice.maybe(dice.skewed(DISTRICTS), 0.12))


def _trip(dice: Dice, number: int, bikes: list[Row]) -> Row:
    bike = dice.skewed(bikes[:120])
    start, end = dice.skewed(range(1, 23)), dice.maybe(dice.skewed(range(1, 21)), 0.02)
    minutes = dice.heavy(3, 95) if end else None
    metres = None if minutes is None or dice.chance(0.03) else minutes * dice.between(130, 290)
    fare = round((minutes or 0) * (0.15 if bike[2] else 0.08), 2)
    hour = dice.pick((7, 8, 8, 8, 9, 12, 13, 16, 17, 17, 17, 18, 18, 19, 21, 23))
    return (
        number,
        bike[0],
        dice.skewed(range(1, 361)),
        start,
        end,
        dice.day("2023-01-01", "2023-12-31"),
        hour,
        minutes,
        metres,
        fare,
    )


def _repair(dice: Dice, number: int) -> Row:
    reported = dice.day("2023-01-01", "2023-11-30")
    finished = dice.maybe(min("2023-12-31", later(reported, dice.heavy(0, 45))), 0.08)
    return (
        number,
        dice.skewed(range(1, 116)),
        reported,
        finished,
        dice.skewed(PARTS),
        dice.cents(8, 190) if finished else None,
    )


def _weather(dice: Dice) -> list[Row]:
    warm = (6, 8, 12, 16, 20, 25, 28, 28, 23, 17, 11, 7)
    rows: list[Row] = []
    for month, mean in enumerate(warm, start=1):
        for day in range(1, (31, 28, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)[month - 1] + 1):
            rain = dice.maybe(dice.heavy(1, 300) / 10 if dice.chance(0.4) else 0.0, 0.03)
            rows.append((f"2023-{month:02d}-{day:02d}", mean + dice.between(-50, 50) / 10, rain, dice.heavy(3, 70)))
    return rows
