"""A football league: clubs, players, matches, goals and transfers over three seasons."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
CREATE TABLE club (
    club_id INTEGER PRIMARY KEY, club_name TEXT NOT NULL, city TEXT NOT NULL, founded_year INTEGER NOT NULL,
    stadium_name TEXT NOT NULL, stadium_capacity INTEGER NOT NULL);
CREATE TABLE player (
    player_id INTEGER PRIMARY KEY, player_name TEXT NOT NULL, club_id INTEGER REFERENCES club (club_id),
    position TEXT NOT NULL, birth_date DATE NOT NULL, nationality TEXT NOT NULL, height_cm INTEGER);
CREATE TABLE match (
    match_id INTEGER PRIMARY KEY, season TEXT NOT NULL, played_on DATE NOT NULL,
    home_club_id INTEGER NOT NULL REFERENCES club (club_id), away_club_id INTEGER NOT NULL REFERENCES club (club_id),
    home_goals INTEGER NOT NULL, away_goals INTEGER NOT NULL, attendance INTEGER, referee TEXT NOT NULL);
CREATE TABLE goal (
    goal_id INTEGER PRIMARY KEY, match_id INTEGER NOT NULL REFERENCES match (match_id),
    player_id INTEGER NOT NULL REFERENCES player (player_id), minute INTEGER NOT NULL, is_penalty INTEGER NOT NULL,
    assist_player_id INTEGER REFERENCES player (player_id));
CREATE TABLE card (
    card_id INTEGER PRIMARY KEY, match_id INTEGER NOT NULL REFERENCES match (match_id),
    player_id INTEGER NOT NULL REFERENCES player (player_id), minute INTEGER NOT NULL, colour TEXT NOT NULL);
CREATE TABLE transfer (
    transfer_id INTEGER PRIMARY KEY, player_id INTEGER NOT NULL REFERENCES player (player_id),
    from_club_id INTEGER REFERENCES club (club_id), to_club_id INTEGER NOT NULL REFERENCES club (club_id),
    signed_on DATE NOT NULL, fee_eur INTEGER);
"""

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


NAME = tuple(f"{city} {kind}" for kind, city in CLUBS)

ASKS = (
    ask(
        ["How many {nation} players are {position}s?", "Count the players of {nation} nationality who play as {position}."],
        "SELECT COUNT(*) FROM player WHERE nationality = '{nation}' AND position = '{position}'",
        nation=NATIONS[:5],
        position=POSITIONS[:3],
    ),
    ask(
        ["List the names of the {position}s of {club}.", "Who plays as {position} for {club}? Give the names."],
        """SELECT p.player_name FROM player AS p JOIN club AS c ON c.club_id = p.club_id WHERE c.club_name = '{club}'
           AND p.position = '{position}'""",
        club=NAME,
        position=POSITIONS,
    ),
    ask("Which cities are home to two or more clubs?", "SELECT city FROM club GROUP BY city HAVING COUNT(*) >= 2"),
    ask(
        "How many players are without a club at the moment, per position?",
        "SELECT position, COUNT(*) FROM player WHERE club_id IS NULL GROUP BY position",
    ),
    ask(
        [
            "Which {k} players are the tallest? Give name and height, tallest first; players of equal height in order of name.",
            "Name the {k} tallest players with their height, in descending order of height, then by name.",
        ],
        "SELECT player_name, height_cm FROM player WHERE height_cm IS NOT NULL ORDER BY height_cm DESC, player_name LIMIT {k}",
        k=("three|3", "five|5", "ten|10"),
    ),
    ask(
        ["What is the average height of the {nation} {position}s?", "How tall is a {nation} {position} on average, in cm?"],
        "SELECT AVG(height_cm) FROM player WHERE nationality = '{nation}' AND position = '{position}'",
        nation=NATIONS[:4],
        position=POSITIONS[:3],
    ),
    ask(
        ["How many matches did {club} win at home in the {season} season?", "Count the {season} home games that {club} won."],
        """SELECT COUNT(*) FROM match AS m JOIN club AS c ON c.club_id = m.home_club_id WHERE c.club_name = '{club}'
           AND m.season = '{season}' AND m.home_goals > m.away_goals""",
        club=NAME,
        season=SEASONS,
    ),
    ask(
        "For each season, how many matches ended in a draw?",
        "SELECT season, COUNT(*) FROM match WHERE home_goals = away_goals GROUP BY season",
    ),
    ask(
        "For each season, give the average number of goals per match, both sides together, in order of the season.",
        "SELECT season, AVG(home_goals + away_goals) FROM match GROUP BY season ORDER BY season",
    ),
    ask(
        [
            "How many goals did {club} score away from home over all seasons?",
            "Over all seasons, sum the goals of {club} in its away matches.",
        ],
        "SELECT SUM(m.away_goals) FROM match AS m JOIN club AS c ON c.club_id = m.away_club_id WHERE c.club_name = '{club}'",
        club=NAME,
    ),
    ask(
        [
            "How many goals fell in all matches between {a} and {b}, whoever played at home and whoever scored?",
            "Count the goals of both sides over all meetings of {a} and {b}, at either ground.",
        ],
        """SELECT SUM(m.home_goals + m.away_goals) FROM match AS m JOIN club AS h ON h.club_id = m.home_club_id JOIN club AS a
           ON a.club_id = m.away_club_id WHERE (h.club_name = '{a}' AND a.club_name = '{b}')
           OR (h.club_name = '{b}' AND a.club_name = '{a}')""",
        a=NAME[:5],
        b=NAME[6:],
    ),
    ask(
        [
            "Who scored the most goals in the {season} season? Give the name, or the names if several share the first place.",
            "Name the top scorer of {season}, or all of them if there is more than one.",
        ],
        """WITH tally AS (SELECT g.player_id, COUNT(*) AS goals FROM goal AS g JOIN match AS m ON m.match_id = g.match_id
           WHERE m.season = '{season}' GROUP BY g.player_id) SELECT p.player_name FROM player AS p JOIN tally AS t
           ON t.player_id = p.player_id WHERE t.goals = (SELECT MAX(goals) FROM tally)""",
        season=SEASONS,
    ),
    ask(
        [
            "Which players scored at least {n} goals without a penalty among them? Give name and number of goals.",
            "List the players with {n} goals or more of which none was a penalty, with the number of goals.",
        ],
        """SELECT p.player_name, COUNT(*) FROM player AS p JOIN goal AS g ON g.player_id = p.player_id
           GROUP BY p.player_id, p.player_name HAVING COUNT(*) >= {n} AND SUM(g.is_penalty) = 0""",
        n=("five|5", "six|6", "eight|8", "four|4"),
    ),
    ask(
        "How many goals were scored in the last ten minutes, from minute 81 to minute 90, from penalties?",
        "SELECT COUNT(*) FROM goal WHERE is_penalty = 1 AND minute BETWEEN 81 AND 90",
    ),
    ask(
        "How many players have assisted a goal but never scored one?",
        """SELECT COUNT(*) FROM (SELECT assist_player_id FROM goal WHERE assist_player_id IS NOT NULL
           EXCEPT SELECT player_id FROM goal) AS helpers""",
    ),
    ask(
        [
            "Who gave the most assists to goals of {club}'s players? Give the name of the assisting player and the "
            "number of assists."
        ],
        """SELECT h.player_name, COUNT(*) AS assists FROM goal AS g JOIN player AS s ON s.player_id = g.player_id
           JOIN club AS c ON c.club_id = s.club_id JOIN player AS h ON h.player_id = g.assist_player_id
           WHERE c.club_name = '{club}' GROUP BY h.player_id, h.player_name ORDER BY assists DESC LIMIT 1""",
        times=1,
        club=NAME,
    ),
    ask(
        ["Which players of {club} have never scored? Give their names.", "Name the {club} players without a goal."],
        """SELECT p.player_name FROM player AS p JOIN club AS c ON c.club_id = p.club_id WHERE c.club_name = '{club}'
           AND p.player_id NOT IN (SELECT player_id FROM goal)""",
        club=NAME,
    ),
    ask(
        [
            "Which referees showed more than {n} red cards over all matches? Give referee and number.",
            "List referees in whose matches over {n} red cards were shown, with the number.",
        ],
        """SELECT m.referee, COUNT(*) FROM card AS c JOIN match AS m ON m.match_id = c.match_id WHERE c.colour = 'red'
           GROUP BY m.referee HAVING COUNT(*) > {n}""",
        n=("five|5", "eight|8", "ten|10", "twelve|12"),
    ),
    ask(
        (
            "Give, for every club, its name and the numbers of yellow and of red cards its current players have received, "
            "in two columns."
        ),
        """SELECT c.club_name, SUM(CASE WHEN k.colour = 'yellow' THEN 1 ELSE 0 END), SUM(CASE WHEN k.colour = 'red' THEN 1
           ELSE 0 END) FROM club AS c JOIN player AS p ON p.club_id = c.club_id JOIN card AS k ON k.player_id = p.player_id
           GROUP BY c.club_id, c.club_name""",
    ),
    ask(
        [
            "Which match of {season} had the highest attendance? Give the match id, the date and the attendance.",
            "Find id, date and attendance of the best attended match of the {season} season.",
        ],
        """SELECT match_id, played_on, attendance FROM match WHERE season = '{season}' AND attendance =
           (SELECT MAX(attendance) FROM match WHERE season = '{season}')""",
        season=SEASONS,
    ),
    ask(
        [
            "How many matches were sold out to at least {n} percent of the home stadium's capacity?",
            "Count the matches whose attendance reached {n} percent or more of the capacity of the home club's stadium.",
        ],
        """SELECT COUNT(*) FROM match AS m JOIN club AS c ON c.club_id = m.home_club_id
           WHERE m.attendance * 100 >= c.stadium_capacity * {n}""",
        n=("90", "95", "80"),
    ),
    ask(
        "For how many matches is the attendance unknown, by season?",
        "SELECT season, COUNT(*) FROM match WHERE attendance IS NULL GROUP BY season",
    ),
    ask(
        ["What did {club} spend on transfer fees in total?", "Sum the fees that {club} paid for incoming transfers."],
        "SELECT SUM(t.fee_eur) FROM transfer AS t JOIN club AS c ON c.club_id = t.to_club_id WHERE c.club_name = '{club}'",
        club=NAME,
    ),
    ask(
        "What is each club's transfer balance, fees received for departing players minus fees paid for arriving ones? "
        "Give club name and balance.",
        """SELECT c.club_name, (SELECT COALESCE(SUM(t.fee_eur), 0) FROM transfer AS t WHERE t.from_club_id = c.club_id)
           - (SELECT COALESCE(SUM(t.fee_eur), 0) FROM transfer AS t WHERE t.to_club_id = c.club_id) FROM club AS c""",
    ),
    ask(
        [
            "Which transfers between two clubs of the league cost more than {n} million euros? "
            "Give player, selling club, buying club and fee.",
            "List player name, old club, new club and fee of each transfer within the league above {n} million euros.",
        ],
        """SELECT p.player_name, f.club_name, t.club_name, x.fee_eur FROM transfer AS x JOIN player AS p
           ON p.player_id = x.player_id JOIN club AS f ON f.club_id = x.from_club_id JOIN club AS t ON t.club_id = x.to_club_id
           WHERE x.fee_eur > {n}000000""",
        n=("20", "30", "35"),
    ),
    ask(
        "How many players changed clubs by transfer more than twice?",
        "SELECT COUNT(*) FROM (SELECT player_id FROM transfer GROUP BY player_id HAVING COUNT(*) > 2) AS movers",
    ),
    ask(
        [
            "Which clubs founded before {year} have a stadium larger than the league average? Give club and capacity.",
        ],
        """SELECT club_name, stadium_capacity FROM club WHERE founded_year < {year} AND stadium_capacity >
           (SELECT AVG(stadium_capacity) FROM club)""",
        times=1,
        year=("1940", "1930", "1920", "1950"),
    ),
    ask(
        [
            "Give a table of {season}: for each club its name and points, with three for a win and one for a draw, "
            "home and away, from most points to fewest and by name where equal."
        ],
        """WITH result AS (SELECT home_club_id AS club_id, CASE WHEN home_goals > away_goals THEN 3 WHEN home_goals = away_goals
           THEN 1 ELSE 0 END AS points FROM match WHERE season = '{season}' UNION ALL SELECT away_club_id, CASE WHEN
           away_goals >
           home_goals THEN 3 WHEN home_goals = away_goals THEN 1 ELSE 0 END FROM match WHERE season = '{season}')
           SELECT c.club_name, SUM(r.points) AS total FROM club AS c JOIN result AS r ON r.club_id = c.club_id
           GROUP BY c.club_id, c.club_name ORDER BY total DESC, c.club_name""",
        season=SEASONS,
    ),
    ask(
        "Who are the youngest and the oldest player? Give the two names.",
        """SELECT player_name FROM player WHERE birth_date = (SELECT MAX(birth_date) FROM player) OR birth_date =
           (SELECT MIN(birth_date) FROM player)""",
    ),
    ask(
        [
            "On which dates were {n} or more matches played? Give date and number.",
        ],
        "SELECT played_on, COUNT(*) FROM match GROUP BY played_on HAVING COUNT(*) >= {n}",
        times=1,
        n=("four|4", "three|3"),
    ),
)

LEAGUE = Domain("league", SCHEMA, fill, ASKS)
