"""A museum: its halls, artists, artworks, loans to exhibitions, restorations and ticket sales."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
CREATE TABLE hall (
    hall_id INTEGER PRIMARY KEY, hall_name TEXT NOT NULL, wing TEXT NOT NULL, floor INTEGER NOT NULL, area_m2 INTEGER NOT NULL);
CREATE TABLE artist (
    artist_id INTEGER PRIMARY KEY, artist_name TEXT NOT NULL, birth_year INTEGER, death_year INTEGER, birth_country TEXT);
CREATE TABLE artwork (
    artwork_id INTEGER PRIMARY KEY, title TEXT NOT NULL, artist_id INTEGER REFERENCES artist (artist_id), medium TEXT NOT NULL,
    created_year INTEGER NOT NULL, acquired_on DATE NOT NULL, acquisition_type TEXT NOT NULL, insured_value_eur INTEGER,
    hall_id INTEGER REFERENCES hall (hall_id), height_cm INTEGER NOT NULL, width_cm INTEGER NOT NULL);
CREATE TABLE exhibition (
    exhibition_id INTEGER PRIMARY KEY, exhibition_title TEXT NOT NULL, opens_on DATE NOT NULL, closes_on DATE NOT NULL,
    curator TEXT NOT NULL, sponsor TEXT);
CREATE TABLE exhibit (
    exhibition_id INTEGER NOT NULL REFERENCES exhibition (exhibition_id),
    artwork_id INTEGER NOT NULL REFERENCES artwork (artwork_id), PRIMARY KEY (exhibition_id, artwork_id));
CREATE TABLE restoration (
    restoration_id INTEGER PRIMARY KEY, artwork_id INTEGER NOT NULL REFERENCES artwork (artwork_id), restorer TEXT NOT NULL,
    started_on DATE NOT NULL, finished_on DATE, cost_eur INTEGER);
CREATE TABLE ticket (
    ticket_id INTEGER PRIMARY KEY, visit_date DATE NOT NULL, sold_on DATE NOT NULL, ticket_type TEXT NOT NULL, price_eur REAL
    NOT NULL,
    exhibition_id INTEGER REFERENCES exhibition (exhibition_id), visitor_country TEXT, is_online INTEGER NOT NULL);
"""

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


WINGS = ("North", "South", "East", "Central")

ASKS = (
    ask(
        [
            "What is the total area of the halls in the {wing} wing, in square metres?",
            "How many square metres do the halls of the {wing} wing have in sum?",
        ],
        "SELECT SUM(area_m2) FROM hall WHERE wing = '{wing}'",
        wing=WINGS,
    ),
    ask(
        ["How many artworks hang or stand in the {hall}?", "Count the artworks whose hall is the {hall}."],
        "SELECT COUNT(*) FROM artwork AS w JOIN hall AS h ON h.hall_id = w.hall_id WHERE h.hall_name = '{hall}'",
        hall=("Rotunda", "Marble Hall", "Long Gallery", "Blue Room", "Modern Gallery"),
    ),
    ask(
        "What percentage of the artworks is in no hall? Give a number between 0 and 100.",
        "SELECT 100.0 * (COUNT(*) - COUNT(hall_id)) / COUNT(*) FROM artwork",
    ),
    ask(
        "Which hall holds no artworks? Give its name.",
        "SELECT h.hall_name FROM hall AS h LEFT JOIN artwork AS w ON w.hall_id = h.hall_id WHERE w.artwork_id IS NULL",
    ),
    ask(
        [
            "Which {medium} works were created between {a} and {b}, both years included? Give title and year.",
            "List title and year of the works in the medium {medium} made from {a} to {b} inclusive.",
        ],
        "SELECT title, created_year FROM artwork WHERE medium = '{medium}' AND created_year BETWEEN {a} AND {b}",
        medium=MEDIA[:4],
        a=("1700", "1800", "1850"),
        b=("1890", "1900", "1920"),
    ),
    ask(
        "For each medium, give the number of works, the average insured value and the highest insured value.",
        "SELECT medium, COUNT(*), AVG(insured_value_eur), MAX(insured_value_eur) FROM artwork GROUP BY medium",
    ),
    ask(
        [
            (
                "What are the {k} artworks with the highest insured value? Give title and value, most valuable first, by "
                "title where equal."
            ),
            "Name title and insured value of the {k} most valuable works, in descending order of value, then by title.",
        ],
        """SELECT title, insured_value_eur FROM artwork WHERE insured_value_eur IS NOT NULL
           ORDER BY insured_value_eur DESC, title LIMIT {k}""",
        k=("three|3", "five|5", "seven|7"),
    ),
    ask(
        [
            "How many works by artists born in {country} does the museum own?",
            "Count the artworks whose artist's country of birth is {country}.",
        ],
        "SELECT COUNT(*) FROM artwork WHERE artist_id IN (SELECT artist_id FROM artist WHERE birth_country = '{country}')",
        country=COUNTRIES,
    ),
    ask(
        "How many artworks are by an unknown artist, by type of acquisition?",
        "SELECT acquisition_type, COUNT(*) FROM artwork WHERE artist_id IS NULL GROUP BY acquisition_type",
    ),
    ask(
        [
            "Which artists are represented by more than {n} works? Give name and number of works.",
            "List each artist of whom the museum has over {n} works, with the number.",
        ],
        """SELECT a.artist_name, COUNT(*) FROM artist AS a JOIN artwork AS w ON w.artist_id = a.artist_id
           GROUP BY a.artist_id, a.artist_name HAVING COUNT(*) > {n}""",
        n=("20", "25", "15"),
    ),
    ask(
        "Which artists are not represented in the collection at all? Give names.",
        "SELECT artist_name FROM artist AS a WHERE NOT EXISTS (SELECT 1 FROM artwork AS w WHERE w.artist_id = a.artist_id)",
    ),
    ask(
        [
            (
                "Which artists, born in {country}, worked in at least {n} different media, judging by the collection? Give "
                "their names."
            ),
            "Name the artists born in {country} with works in {n} or more media.",
        ],
        """SELECT a.artist_name FROM artist AS a JOIN artwork AS w ON w.artist_id = a.artist_id
           WHERE a.birth_country = '{country}' GROUP BY a.artist_id, a.artist_name HAVING COUNT(DISTINCT w.medium) >= {n}""",
        country=COUNTRIES[:5],
        n=("four|4", "five|5", "three|3"),
    ),
    ask(
        "How many works were acquired in a later year than that of their artist's death?",
        """SELECT COUNT(*) FROM artwork AS w JOIN artist AS a ON a.artist_id = w.artist_id
           WHERE CAST(substr(w.acquired_on, 1, 4) AS INTEGER) > a.death_year""",
    ),
    ask(
        [
            "How old did artists born in {country} become on average, taking year of death minus year of birth?",
            "For artists born in {country}, what is the mean difference between year of death and year of birth?",
        ],
        "SELECT AVG(death_year - birth_year) FROM artist WHERE birth_country = '{country}'",
        country=COUNTRIES[:6],
    ),
    ask(
        ["Which exhibitions were open on {day}? Give their titles.", "List the titles of the exhibitions running on {day}."],
        "SELECT exhibition_title FROM exhibition WHERE '{day}' BETWEEN opens_on AND closes_on",
        day=("1 June 2021|2021-06-01", "15 March 2022|2022-03-15", "1 October 2022|2022-10-01", "20 May 2023|2023-05-20"),
    ),
    ask(
        [
            "Which exhibitions by {curator} had no sponsor? Give title and opening date.",
            "List title and opening date of exhibitions that {curator} curated without a sponsor.",
        ],
        "SELECT exhibition_title, opens_on FROM exhibition WHERE curator = '{curator}' AND sponsor IS NULL",
        curator=CURATORS,
    ),
    ask(
        "How many exhibitions opened per year?",
        "SELECT strftime('%Y', opens_on), COUNT(*) FROM exhibition GROUP BY strftime('%Y', opens_on)",
    ),
    ask(
        "Which exhibition ran for the most days? Give its title and the days from opening to closing.",
        """SELECT exhibition_title, julianday(closes_on) - julianday(opens_on) AS days FROM exhibition
           ORDER BY days DESC LIMIT 1""",
    ),
    ask(
        [
            "Which artworks have been in {n} or more exhibitions? Give title and number of exhibitions.",
            "List the works shown in at least {n} exhibitions, with the number of exhibitions.",
        ],
        """SELECT w.title, COUNT(*) FROM artwork AS w JOIN exhibit AS e ON e.artwork_id = w.artwork_id
           GROUP BY w.artwork_id, w.title HAVING COUNT(*) >= {n}""",
        n=("four|4", "five|5"),
    ),
    ask(
        [
            "What is the insured value of everything shown in exhibitions curated by {curator}, counting a work once "
            "however often it was shown?"
        ],
        """SELECT SUM(insured_value_eur) FROM artwork WHERE artwork_id IN (SELECT e.artwork_id FROM exhibit AS e
           JOIN exhibition AS x ON x.exhibition_id = e.exhibition_id WHERE x.curator = '{curator}')""",
        times=1,
        curator=CURATORS,
    ),
    ask(
        [
            "How many restorations did {restorer} finish, and what did they cost on average?",
            "Give the number and the mean cost of restorations that {restorer} has finished.",
        ],
        "SELECT COUNT(*), AVG(cost_eur) FROM restoration WHERE restorer = '{restorer}' AND finished_on IS NOT NULL",
        restorer=RESTORERS,
    ),
    ask(
        "Which works have been restored by at least three different restorers? Give titles.",
        """SELECT w.title FROM artwork AS w JOIN restoration AS r ON r.artwork_id = w.artwork_id GROUP BY w.artwork_id, w.title
           HAVING COUNT(DISTINCT r.restorer) >= 3""",
    ),
    ask(
        [
            "Which works were restored before they were first shown in an exhibition? Count the works, going by the day the "
            "restoration finished and the earliest opening among their exhibitions."
        ],
        """SELECT COUNT(DISTINCT r.artwork_id) FROM restoration AS r WHERE r.finished_on < (SELECT MIN(x.opens_on)
           FROM exhibit AS e JOIN exhibition AS x ON x.exhibition_id = e.exhibition_id WHERE e.artwork_id = r.artwork_id)""",
    ),
    ask(
        ["How many tickets were sold online for visits in {month}?", "Count the tickets bought online for a visit in {month}."],
        "SELECT COUNT(*) FROM ticket WHERE is_online = 1 AND substr(visit_date, 1, 7) = '{month}'",
        month=("July 2021|2021-07", "April 2022|2022-04", "December 2022|2022-12", "June 2023|2023-06"),
    ),
    ask(
        "Break ticket revenue down by year of the visit and ticket type; leave out free tickets. Give year, type, revenue.",
        """SELECT strftime('%Y', visit_date), ticket_type, SUM(price_eur) FROM ticket WHERE ticket_type <> 'free'
           GROUP BY strftime('%Y', visit_date), ticket_type""",
    ),
    ask(
        [
            "Which exhibitions earned more than {n} euros from tickets? Give title and revenue, highest first.",
            "List title and ticket revenue of exhibitions with revenue above {n} euros, in descending order.",
        ],
        """SELECT x.exhibition_title, SUM(t.price_eur) AS revenue FROM exhibition AS x JOIN ticket AS t
           ON t.exhibition_id = x.exhibition_id GROUP BY x.exhibition_id, x.exhibition_title HAVING SUM(t.price_eur) > {n}
           ORDER BY revenue DESC""",
        n=("2,500|2500", "2,000|2000", "3,000|3000", "1,800|1800"),
    ),
    ask(
        [
            "How many visitors from {country} came without an exhibition ticket?",
            "Count the tickets of visitors from {country} that belong to no exhibition.",
        ],
        "SELECT COUNT(*) FROM ticket WHERE visitor_country = '{country}' AND exhibition_id IS NULL",
        country=COUNTRIES[:6],
    ),
    ask(
        "In which countries were artists born of whom the museum owns no marble work made before 1800? Give each country once.",
        """SELECT birth_country FROM artist WHERE birth_country IS NOT NULL EXCEPT SELECT a.birth_country FROM artist AS a
           JOIN artwork AS w ON w.artist_id = a.artist_id WHERE w.medium = 'marble' AND w.created_year < 1800""",
    ),
    ask(
        "What is the average lead time in days between sale and visit of online tickets, per ticket type?",
        """SELECT ticket_type, AVG(julianday(visit_date) - julianday(sold_on)) FROM ticket WHERE is_online = 1
           GROUP BY ticket_type""",
    ),
    ask(
        ["Label each hall 'large' from {n} square metres on and 'small' otherwise, and list hall name and label by name."],
        "SELECT hall_name, CASE WHEN area_m2 >= {n} THEN 'large' ELSE 'small' END FROM hall ORDER BY hall_name",
        times=1,
        n=("300", "400"),
    ),
    ask(
        "Which works are larger in area (height times width) than every work in the Tapestry Hall? Give titles.",
        """SELECT title FROM artwork WHERE height_cm * width_cm > (SELECT MAX(w.height_cm * w.width_cm) FROM artwork AS w
           JOIN hall AS h ON h.hall_id = w.hall_id WHERE h.hall_name = 'Tapestry Hall')""",
    ),
)

MUSEUM = Domain("museum", SCHEMA, fill, ASKS)
