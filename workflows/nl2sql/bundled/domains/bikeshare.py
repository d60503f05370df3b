"""A city's bicycle sharing scheme: stations, bicycles, riders, trips and repairs."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
CREATE TABLE station (
    station_id INTEGER PRIMARY KEY, station_name TEXT NOT NULL, district TEXT NOT NULL, dock_count INTEGER NOT NULL,
    opened_on DATE NOT NULL, closed_on DATE);
CREATE TABLE bike (
    bike_id INTEGER PRIMARY KEY, model TEXT NOT NULL, is_electric INTEGER NOT NULL, bought_on DATE NOT NULL,
    purchase_price_eur INTEGER NOT NULL, home_station_id INTEGER REFERENCES station (station_id));
CREATE TABLE rider (
    rider_id INTEGER PRIMARY KEY, rider_name TEXT NOT NULL, membership TEXT NOT NULL, birth_year INTEGER, joined_on DATE NOT
    NULL,
    home_district TEXT);
CREATE TABLE trip (
    trip_id INTEGER PRIMARY KEY, bike_id INTEGER NOT NULL REFERENCES bike (bike_id),
    rider_id INTEGER NOT NULL REFERENCES rider (rider_id), start_station_id INTEGER NOT NULL REFERENCES station (station_id),
    end_station_id INTEGER REFERENCES station (station_id), trip_date DATE NOT NULL, start_hour INTEGER NOT NULL,
    duration_minutes INTEGER, distance_m INTEGER, fare_eur REAL NOT NULL);
CREATE TABLE repair (
    repair_id INTEGER PRIMARY KEY, bike_id INTEGER NOT NULL REFERENCES bike (bike_id), reported_on DATE NOT NULL,
    finished_on DATE, part TEXT NOT NULL, cost_eur REAL);
CREATE TABLE weather (
    weather_date DATE PRIMARY KEY, max_temperature_c REAL NOT NULL, rain_mm REAL, wind_kmh INTEGER NOT NULL);
"""

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


DISTRICT = DISTRICTS[:5]
PLACE = tuple(PLACES.split(","))

ASKS = (
    ask(
        ["How many docks are there in the {district} district altogether?", "Sum the docks of all stations in {district}."],
        "SELECT SUM(dock_count) FROM station WHERE district = '{district}'",
        district=DISTRICTS,
    ),
    ask(
        "Which stations have been closed? Give name and closing date, earliest first.",
        "SELECT station_name, closed_on FROM station WHERE closed_on IS NOT NULL ORDER BY closed_on",
    ),
    ask(
        ["Name the stations opened in {a} or in {b}.", "Which stations were opened either in {a} or in {b}? List the names."],
        """SELECT station_name FROM station WHERE strftime('%Y', opened_on) = '{a}' OR strftime('%Y', opened_on) = '{b}'""",
        a=("2016", "2018"),
        b=("2020", "2021", "2019"),
    ),
    ask(
        "How many bikes of each model does the scheme own, and what did they cost in total? Give model, number, total price.",
        "SELECT model, COUNT(*), SUM(purchase_price_eur) FROM bike GROUP BY model",
    ),
    ask(
        ["How many electric bikes were bought before {year}?", "Count the electric bikes bought earlier than {year}."],
        "SELECT COUNT(*) FROM bike WHERE is_electric = 1 AND bought_on < '{year}-01-01'",
        year=("2018", "2019", "2020", "2021"),
    ),
    ask(
        ["How many bikes have their home station in {district}?", "Count the bikes whose home station lies in {district}."],
        """SELECT COUNT(*) FROM bike AS b JOIN station AS s ON s.station_id = b.home_station_id
           WHERE s.district = '{district}'""",
        district=DISTRICT,
    ),
    ask(
        ["How many trips started at {a} and ended at {b}?", "Count the trips from {a} to {b}."],
        """SELECT COUNT(*) FROM trip AS t JOIN station AS a ON a.station_id = t.start_station_id JOIN station AS b
           ON b.station_id = t.end_station_id WHERE a.station_name = '{a}' AND b.station_name = '{b}'""",
        a=PLACE[:3],
        b=PLACE[3:6],
    ),
    ask(
        "How many trips ended at the station where they started?",
        "SELECT COUNT(*) FROM trip WHERE start_station_id = end_station_id",
    ),
    ask(
        "How many trips began in one district and ended in another?",
        """SELECT COUNT(*) FROM trip AS t JOIN station AS a ON a.station_id = t.start_station_id JOIN station AS b
           ON b.station_id = t.end_station_id WHERE a.district <> b.district""",
    ),
    ask(
        [
            "Which {k} stations are the most frequent starting points? Give name and number of trips, busiest first.",
            "List the {k} stations at which most trips start, with the number of trips, in descending order.",
        ],
        """SELECT s.station_name, COUNT(*) AS trips FROM station AS s JOIN trip AS t ON t.start_station_id = s.station_id
           GROUP BY s.station_id, s.station_name ORDER BY trips DESC LIMIT {k}""",
        k=("three|3", "four|4", "five|5", "six|6", "two|2"),
    ),
    ask(
        "Which stations see more trips starting than ending there? Give the names.",
        """SELECT s.station_name FROM station AS s WHERE (SELECT COUNT(*) FROM trip AS t WHERE t.start_station_id =
           s.station_id)
           > (SELECT COUNT(*) FROM trip AS t WHERE t.end_station_id = s.station_id)""",
    ),
    ask(
        [
            "How many trips started between {a} and {b} o'clock, both hours included?",
            "Count the trips with a starting hour from {a} to {b} inclusive.",
        ],
        "SELECT COUNT(*) FROM trip WHERE start_hour BETWEEN {a} AND {b}",
        a=("7", "12"),
        b=("9", "13"),
    ),
    ask(
        "For every starting hour, give the number of trips and the average duration in minutes, by hour.",
        "SELECT start_hour, COUNT(*), AVG(duration_minutes) FROM trip GROUP BY start_hour ORDER BY start_hour",
    ),
    ask(
        [
            "What is the total fare income from {membership} riders in {month}?",
            "How much did {membership} riders pay in fares in {month}?",
        ],
        """SELECT SUM(t.fare_eur) FROM trip AS t JOIN rider AS r ON r.rider_id = t.rider_id WHERE r.membership = '{membership}'
           AND strftime('%Y-%m', t.trip_date) = '{month}'""",
        membership=("annual", "monthly", "day pass", "student"),
        month=("May 2023|2023-05", "July 2023|2023-07", "September 2023|2023-09"),
    ),
    ask(
        "Per membership type, how many riders have never made a trip?",
        """SELECT r.membership, COUNT(*) FROM rider AS r LEFT JOIN trip AS t ON t.rider_id = r.rider_id WHERE t.trip_id IS NULL
           GROUP BY r.membership""",
    ),
    ask(
        [
            "Which riders made more than {n} trips on electric bikes? Give name and number of those trips.",
            "List the riders with over {n} trips by electric bike, and the number.",
        ],
        """SELECT r.rider_name, COUNT(*) FROM rider AS r JOIN trip AS t ON t.rider_id = r.rider_id JOIN bike AS b
           ON b.bike_id = t.bike_id WHERE b.is_electric = 1 GROUP BY r.rider_id, r.rider_name HAVING COUNT(*) > {n}""",
        n=("ten|10", "twelve|12", "eight|8"),
    ),
    ask(
        [
            "Which riders living in {district} were born after {year}? Give name and birth year.",
            "List name and year of birth of riders whose home district is {district} and who were born later than {year}.",
        ],
        "SELECT rider_name, birth_year FROM rider WHERE home_district = '{district}' AND birth_year > {year}",
        district=DISTRICT,
        year=("1990", "1995", "2000"),
    ),
    ask(
        "How many riders have no known birth year or no known home district?",
        "SELECT COUNT(*) FROM rider WHERE birth_year IS NULL OR home_district IS NULL",
    ),
    ask(
        "How many trips have no recorded end station, and how many different bikes were involved?",
        "SELECT COUNT(*), COUNT(DISTINCT bike_id) FROM trip WHERE end_station_id IS NULL",
    ),
    ask(
        [
            "What was the average distance in metres of trips on days with more than {mm} mm of rain?",
            "On days that had over {mm} mm of rain, how many metres long was the average trip?",
        ],
        """SELECT AVG(t.distance_m) FROM trip AS t JOIN weather AS w ON w.weather_date = t.trip_date WHERE w.rain_mm > {mm}""",
        mm=("5", "10", "15"),
    ),
    ask(
        "How many trips were made on days with a maximum temperature above {c} degrees?",
        "SELECT COUNT(*) FROM trip WHERE trip_date IN (SELECT weather_date FROM weather WHERE max_temperature_c > {c})",
        times=1,
        c=("25", "28", "30"),
    ),
    ask(
        "How many days saw at least one trip but fewer than five?",
        "SELECT COUNT(*) FROM (SELECT trip_date FROM trip GROUP BY trip_date HAVING COUNT(*) < 5) AS quiet",
    ),
    ask(
        [
            "Which days had {n} or more trips? Give date, number of trips and maximum temperature.",
            "List date, trips and maximum temperature of all days with at least {n} trips.",
        ],
        """SELECT t.trip_date, COUNT(*), w.max_temperature_c FROM trip AS t JOIN weather AS w ON w.weather_date = t.trip_date
           GROUP BY t.trip_date, w.max_temperature_c HAVING COUNT(*) >= {n}""",
        n=("14", "15", "13"),
    ),
    ask(
        [
            "What has been spent on {part} repairs, and on how many finished ones?",
            "For finished {part} repairs, give the total cost and the number.",
        ],
        "SELECT SUM(cost_eur), COUNT(*) FROM repair WHERE part = '{part}' AND finished_on IS NOT NULL",
        part=PARTS,
    ),
    ask(
        "For each part, what are the average cost and the longest repair time in days? Only finished repairs.",
        """SELECT part, AVG(cost_eur), MAX(julianday(finished_on) - julianday(reported_on)) FROM repair
           WHERE finished_on IS NOT NULL GROUP BY part""",
    ),
    ask(
        [
            "Which bikes needed a {a} repair as well as a {b} repair? Give the bike ids.",
            "List the ids of bikes that needed both a {a} repair and a {b} repair.",
        ],
        "SELECT bike_id FROM repair WHERE part = '{a}' INTERSECT SELECT bike_id FROM repair WHERE part = '{b}'",
        a=PARTS[:2],
        b=PARTS[2:4],
    ),
    ask(
        [
            "Which bikes cost more in repairs than {percent} percent of their purchase price? Give bike id and repair costs.",
            "List id and total repair cost of bikes whose repairs exceeded {percent} percent of the purchase price.",
        ],
        """SELECT b.bike_id, SUM(r.cost_eur) FROM bike AS b JOIN repair AS r ON r.bike_id = b.bike_id
           GROUP BY b.bike_id, b.purchase_price_eur HAVING SUM(r.cost_eur) * 100 > b.purchase_price_eur * {percent}""",
        percent=("40", "50", "60"),
    ),
    ask(
        "Which bike models have bikes that were never repaired? Give model and number of such bikes.",
        """SELECT model, COUNT(*) FROM bike AS b WHERE NOT EXISTS (SELECT 1 FROM repair AS r WHERE r.bike_id = b.bike_id)
           GROUP BY model""",
    ),
    ask(
        "For each district, which station has the most docks? Give district, station name and docks.",
        """SELECT s.district, s.station_name, s.dock_count FROM station AS s WHERE NOT EXISTS (SELECT 1 FROM station AS o
           WHERE o.district = s.district AND o.dock_count > s.dock_count)""",
    ),
    ask(
        "What were the average daily numbers of trips on weekends (Saturday, Sunday) and on working days, over days "
        "with trips? "
        "Give 1 for weekend, 0 otherwise, and the average.",
        """SELECT weekend, AVG(trips) FROM (SELECT CASE WHEN strftime('%w', trip_date) IN ('0', '6') THEN 1 ELSE 0 END AS
           weekend,
           COUNT(*) AS trips FROM trip GROUP BY trip_date) AS daily GROUP BY weekend""",
    ),
)

BIKESHARE = Domain("bikeshare", SCHEMA, fill, ASKS)
