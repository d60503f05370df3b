"""An airline alliance's flights, fleet and bookings."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import CITIES, people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
CREATE TABLE airport (
    airport_code TEXT PRIMARY KEY, airport_name TEXT NOT NULL, city TEXT NOT NULL, country TEXT NOT NULL,
    elevation_m INTEGER, runway_count INTEGER NOT NULL);
CREATE TABLE airline (
    airline_id INTEGER PRIMARY KEY, airline_name TEXT NOT NULL, country TEXT NOT NULL, founded_year INTEGER NOT NULL,
    alliance TEXT);
CREATE TABLE aircraft (
    tail_number TEXT PRIMARY KEY, airline_id INTEGER NOT NULL REFERENCES airline (airline_id), model TEXT NOT NULL,
    seats INTEGER NOT NULL, delivered_on DATE NOT NULL, retired_on DATE);
CREATE TABLE flight (
    flight_id INTEGER PRIMARY KEY, flight_number TEXT NOT NULL,
    airline_id INTEGER NOT NULL REFERENCES airline (airline_id),
    tail_number TEXT NOT NULL REFERENCES aircraft (tail_number),
    origin_code TEXT NOT NULL REFERENCES airport (airport_code),
    destination_code TEXT NOT NULL REFERENCES airport (airport_code),
    departure_date DATE NOT NULL, distance_km INTEGER NOT NULL, status TEXT NOT NULL, delay_minutes INTEGER);
CREATE TABLE passenger (
    passenger_id INTEGER PRIMARY KEY, full_name TEXT NOT NULL, birth_date DATE NOT NULL, home_city TEXT, loyalty_tier TEXT);
CREATE TABLE booking (
    booking_id INTEGER PRIMARY KEY, passenger_id INTEGER NOT NULL REFERENCES passenger (passenger_id),
    flight_id INTEGER NOT NULL REFERENCES flight (flight_id), booked_on DATE NOT NULL, cabin TEXT NOT NULL,
    price_eur REAL NOT NULL, checked_bags INTEGER);
"""

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


COUNTRY = ("Spain", "France", "Germany", "Italy", "Portugal", "Austria")
CITY = ("Lisbon", "Madrid", "Paris", "Berlin", "Vienna", "Oslo", "Rome", "Dublin")
MONTH = ("March 2022|2022-03", "July 2022|2022-07", "November 2022|2022-11", "February 2023|2023-02", "August 2023|2023-08")

ASKS = (
    ask(
        ["How many flights were cancelled in {year}?", "Count the flights of {year} whose status is cancelled."],
        "SELECT COUNT(*) FROM flight WHERE status = 'cancelled' AND strftime('%Y', departure_date) = '{year}'",
        year=("2022", "2023"),
    ),
    ask(
        ["Give the names of the airports in {country}.", "Which airports are located in {country}? List their names."],
        "SELECT airport_name FROM airport WHERE country = '{country}'",
        country=COUNTRY,
    ),
    ask(
        "What share of all flights was cancelled? Answer with a number between 0 and 1.",
        "SELECT SUM(CASE WHEN status = 'cancelled' THEN 1 ELSE 0 END) * 1.0 / COUNT(*) FROM flight",
    ),
    ask(
        ["How many flights departed from {city}?", "What is the number of flights that start in {city}?"],
        "SELECT COUNT(*) FROM flight AS f JOIN airport AS a ON a.airport_code = f.origin_code WHERE a.city = '{city}'",
        city=CITY,
    ),
    ask(
        ["How many flights went from {a} to {b}?", "Count the flights from {a} to {b}."],
        """SELECT COUNT(*) FROM flight AS f JOIN airport AS o ON o.airport_code = f.origin_code
           JOIN airport AS d ON d.airport_code = f.destination_code WHERE o.city = '{a}' AND d.city = '{b}'""",
        a=CITY[:4],
        b=CITY[4:],
    ),
    ask(
        "For each alliance, how many airlines belong to it? Leave out airlines without an alliance.",
        "SELECT alliance, COUNT(*) FROM airline WHERE alliance IS NOT NULL GROUP BY alliance",
    ),
    ask(
        "List the names of the airlines that belong to no alliance.", "SELECT airline_name FROM airline WHERE alliance IS NULL"
    ),
    ask(
        [
            "What are the names and founding years of the airlines founded before {year}, oldest first?",
            "List the airlines founded before {year} with their founding year, from the oldest to the youngest.",
        ],
        "SELECT airline_name, founded_year FROM airline WHERE founded_year < {year} ORDER BY founded_year",
        year=("1980", "2000"),
    ),
    ask(
        [
            "Which {k} airports are the highest? Give name and elevation, highest first.",
            "Name the {k} airports with the greatest elevation, with that elevation, from high to low.",
        ],
        "SELECT airport_name, elevation_m FROM airport ORDER BY elevation_m DESC LIMIT {k}",
        k=("three|3", "four|4", "five|5", "six|6"),
    ),
    ask(
        "Which airline operated the most flights? Give its name.",
        """SELECT a.airline_name FROM airline AS a JOIN flight AS f ON f.airline_id = a.airline_id
           GROUP BY a.airline_id, a.airline_name ORDER BY COUNT(*) DESC LIMIT 1""",
    ),
    ask(
        [
            "Which airlines operate more than {n} flights? Give the name and the number of flights.",
            "List every airline with over {n} flights, together with how many it flew.",
        ],
        """SELECT a.airline_name, COUNT(*) FROM airline AS a JOIN flight AS f ON f.airline_id = a.airline_id
           GROUP BY a.airline_id, a.airline_name HAVING COUNT(*) > {n}""",
        n=("80", "100", "120", "140"),
    ),
    ask(
        [
            "What is the average delay in minutes of flights arriving in {city}?",
            "How many minutes late, on average, were flights whose destination is {city}?",
        ],
        """SELECT AVG(f.delay_minutes) FROM flight AS f JOIN airport AS a ON a.airport_code = f.destination_code
           WHERE a.city = '{city}'""",
        city=CITY,
    ),
    ask(
        "Which airports have never been the origin of a cancelled flight? List their codes.",
        """SELECT airport_code FROM airport WHERE airport_code NOT IN
           (SELECT origin_code FROM flight WHERE status = 'cancelled')""",
    ),
    ask(
        [
            "What is the total revenue in euros from {cabin} bookings made in {year}?",
            "Sum the prices of all {cabin} bookings that were booked in {year}.",
        ],
        "SELECT SUM(price_eur) FROM booking WHERE cabin = '{cabin}' AND booked_on BETWEEN '{year}-01-01' AND '{year}-12-31'",
        cabin=("business", "premium", "economy"),
        year=("2022", "2023"),
    ),
    ask(
        "Give the minimum, average and maximum booking price for each cabin.",
        "SELECT cabin, MIN(price_eur), AVG(price_eur), MAX(price_eur) FROM booking GROUP BY cabin",
    ),
    ask(
        "Which aircraft, by tail number, have more seats than the average aircraft and are already retired?",
        "SELECT tail_number FROM aircraft WHERE retired_on IS NOT NULL AND seats > (SELECT AVG(seats) FROM aircraft)",
    ),
    ask(
        [
            "Who are the {k} passengers who spent the most on bookings? Give full name and total spent, biggest spender first.",
            "List the {k} passengers with the highest total booking price, with name and total, in descending order.",
        ],
        """SELECT p.full_name, SUM(b.price_eur) AS total FROM passenger AS p JOIN booking AS b
           ON b.passenger_id = p.passenger_id GROUP BY p.passenger_id, p.full_name ORDER BY total DESC LIMIT {k}""",
        k=("three|3", "five|5", "ten|10"),
    ),
    ask(
        "How many passengers have never made a booking?",
        """SELECT COUNT(*) FROM passenger AS p LEFT JOIN booking AS b ON b.passenger_id = p.passenger_id
           WHERE b.booking_id IS NULL""",
    ),
    ask(
        [
            "Show the number of flights per month in {year}, as year-month and count, in calendar order.",
            "How many flights departed in each month of {year}? Give months as YYYY-MM, in order.",
        ],
        """SELECT strftime('%Y-%m', departure_date) AS month, COUNT(*) FROM flight
           WHERE strftime('%Y', departure_date) = '{year}' GROUP BY strftime('%Y-%m', departure_date) ORDER BY month""",
        year=("2022", "2023"),
    ),
    ask(
        [
            "To which destination cities did both {a} and {b} have a flight that was more than two hours late?",
            "Find the destination cities that {a} as well as {b} reached with a delay above 120 minutes.",
        ],
        """SELECT d.city FROM airport AS d JOIN flight AS f ON f.destination_code = d.airport_code JOIN airline AS l
           ON l.airline_id = f.airline_id WHERE l.airline_name = '{a}' AND f.delay_minutes > 120 INTERSECT SELECT d.city FROM
           airport AS d JOIN flight AS f
           ON f.destination_code = d.airport_code JOIN airline AS l ON l.airline_id = f.airline_id
           WHERE l.airline_name = '{b}' AND f.delay_minutes > 120""",
        a=("Polonair", "Vela Italia"),
        b=("Euro Hopper", "Gallia"),
    ),
    ask(
        "List the countries that have an airport but no airline.",
        "SELECT country FROM airport EXCEPT SELECT country FROM airline",
    ),
    ask(
        [
            "What are the flight ids and delays of flights in {month} that were delayed by more than two hours?",
            "List id and delay in minutes of each flight departing in {month} with a delay above 120 minutes.",
        ],
        """SELECT flight_id, delay_minutes FROM flight
           WHERE strftime('%Y-%m', departure_date) = '{month}' AND delay_minutes > 120""",
        month=MONTH,
    ),
    ask(
        [
            "Which {tier} passengers live in {city}? Give their full names.",
            "List the full names of passengers from {city} who hold {tier} status.",
        ],
        "SELECT full_name FROM passenger WHERE loyalty_tier = '{tier}' AND home_city = '{city}'",
        tier=TIERS[:3],
        city=CITY[:5],
    ),
    ask(
        "For every loyalty tier, give the average number of checked bags per booking; skip passengers without a tier.",
        """SELECT p.loyalty_tier, AVG(b.checked_bags) FROM passenger AS p JOIN booking AS b ON b.passenger_id = p.passenger_id
           WHERE p.loyalty_tier IS NOT NULL GROUP BY p.loyalty_tier""",
    ),
    ask(
        "What is the average number of bookings per passenger, counting only passengers with at least one booking?",
        "SELECT AVG(n) FROM (SELECT COUNT(*) AS n FROM booking GROUP BY passenger_id) AS per_passenger",
    ),
    ask(
        [
            "How many different passengers flew with {airline}, going by their bookings?",
            "Count the distinct passengers who booked a flight operated by {airline}.",
        ],
        """SELECT COUNT(DISTINCT b.passenger_id) FROM booking AS b JOIN flight AS f ON f.flight_id = b.flight_id
           JOIN airline AS a ON a.airline_id = f.airline_id WHERE a.airline_name = '{airline}'""",
        airline=("Norda Air", "Lusavia", "Celtair", "Alpenjet"),
    ),
    ask(
        "For each airline, what is the longest distance of any of its flights? Give airline name and distance in km.",
        """SELECT a.airline_name, MAX(f.distance_km) FROM airline AS a JOIN flight AS f ON f.airline_id = a.airline_id
           GROUP BY a.airline_id, a.airline_name""",
    ),
    ask(
        "Which airlines have their longest flight above the average of all airlines' longest flights? Give their names.",
        """WITH longest AS (SELECT airline_id, MAX(distance_km) AS km FROM flight GROUP BY airline_id)
           SELECT a.airline_name FROM airline AS a JOIN longest AS l ON l.airline_id = a.airline_id
           WHERE l.km > (SELECT AVG(km) FROM longest)""",
    ),
    ask(
        [
            "Which aircraft of the model {model} are still in service? Give tail number and delivery date.",
            "List tail number and delivery date of every {model} that has not been retired.",
        ],
        "SELECT tail_number, delivered_on FROM aircraft WHERE model = '{model}' AND retired_on IS NULL",
        model=("A320", "B737", "A321", "E190"),
    ),
    ask(
        [
            "How many bookings were made at least {n} days before departure?",
            "Count the bookings whose booking date lies {n} days or more before the departure date of the flight.",
        ],
        """SELECT COUNT(*) FROM booking AS b JOIN flight AS f ON f.flight_id = b.flight_id
           WHERE julianday(f.departure_date) - julianday(b.booked_on) >= {n}""",
        n=("90", "120", "150"),
    ),
)

AIRLINE = Domain("airline", SCHEMA, fill, ASKS)
