"""A music streaming service: artists, albums, tracks, listeners, plays and playlists."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import CITIES, people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

SCHEMA = """
CREATE TABLE artist (
    artist_id INTEGER PRIMARY KEY, artist_name TEXT NOT NULL, country TEXT NOT NULL, formed_year INTEGER,
    disbanded_year INTEGER);
CREATE TABLE album (
    album_id INTEGER PRIMARY KEY, album_title TEXT NOT NULL, artist_id INTEGER NOT NULL REFERENCES artist (artist_id),
    released_on DATE NOT NULL, genre TEXT NOT NULL, label TEXT);
CREATE TABLE track (
    track_id INTEGER PRIMARY KEY, track_title TEXT NOT NULL, album_id INTEGER NOT NULL REFERENCES album (album_id),
    track_number INTEGER NOT NULL, duration_seconds INTEGER NOT NULL, is_explicit INTEGER NOT NULL);
CREATE TABLE listener (
    listener_id INTEGER PRIMARY KEY, listener_name TEXT NOT NULL, country TEXT, plan TEXT NOT NULL, signed_up_on DATE NOT NULL,
    cancelled_on DATE);
CREATE TABLE play (
    play_id INTEGER PRIMARY KEY, listener_id INTEGER NOT NULL REFERENCES listener (listener_id),
    track_id INTEGER NOT NULL REFERENCES track (track_id), played_on DATE NOT NULL, seconds_played INTEGER NOT NULL,
    device TEXT);
CREATE TABLE playlist (
    playlist_id INTEGER PRIMARY KEY, playlist_name TEXT NOT NULL, owner_id INTEGER NOT NULL REFERENCES listener (listener_id),
    created_on DATE NOT NULL, is_public INTEGER NOT NULL);
CREATE TABLE playlist_track (
    playlist_id INTEGER NOT NULL REFERENCES playlist (playlist_id), position INTEGER NOT NULL,
    track_id INTEGER NOT NULL REFERENCES track (track_id), added_on DATE NOT NULL, PRIMARY KEY (playlist_id, position));
"""

BANDS = "Velvet Paper Electric Northern Crystal Slow Neon Wild"
GROUPS = "Foxes Harbour Antenna Lions Parade Mirrors"
GENRES = ("pop", "rock", "electronic", "jazz", "folk", "hip hop", "classical")
LABELS = ("Blue Door", "Meridian Sound", "Tall Tree", "Kestrel", "Ninth Wave")
DEVICES = ("phone", "desktop", "speaker", "car", "television")
PLANS = ("free", "premium", "family", "student")


def fill(dice: Dice) -> Tables:
    """40 artists, 110 albums, 780 tracks, 320 listeners, 2,600 plays, 90 playlists, 1,000 playlist entries."""
    artists = [_artist(dice, number, name) for number, name in enumerate(titles(dice, BANDS, GROUPS, 40), start=1)]
    names = titles(
        dice,
        "Midnight Open Silver Lost Early Second Borrowed Hollow Burning Blue Distant",
        "Signals Rooms Roads Skies Letters Waters Machines Seasons Hours Gardens",
        110,
    )
    albums = [_album(dice, number, name, artists) for number, name in enumerate(names, start=1)]
    songs = titles(
        dice,
        "Dancing Waiting Falling Running Dreaming Calling Driving Sleeping Leaving Singing Drifting Breathing Looking "
        "Turning Hiding Growing Sailing Fading",
        "Tonight Alone Again Home Slowly Forever Away Together Outside Apart "
        "Underwater Backwards Sideways Ahead In_Circles Without_You For_Hours By_the_Sea To_the_Moon Until_Dawn After_Dark "
        "On_Mondays In_Colour Out_Loud Like_Rain Past_Midnight In_the_Snow With_Strangers At_Noon Past_the_Lights "
        "On_the_Radio In_Reverse Under_the_Bridge Before_Winter In_Silence Near_the_Border With_the_Tide On_Empty_Streets "
        "Through_the_Wall Into_the_Blue In_My_Sleep Down_the_Line Over_the_Hills",
        770,
    )
    tracks = _tracks(dice, albums, songs)
    listeners = [_listener(dice, number, name) for number, name in enumerate(people(dice, 320), start=1)]
    plays = [_play(dice, number, tracks, listeners) for number in range(1, 2601)]
    lists = titles(
        dice,
        "Morning Gym Late Rainy Summer Office Sunday Road Quiet Party",
        "Mix Favourites Energy Mood Loop Hits Classics Discoveries Drive",
        90,
    )
    playlists = [
        (number, name, dice.skewed(range(1, 301)), dice.day("2021-01-01", "2023-12-01"), int(dice.chance(0.4)))
        for number, name in enumerate(lists, start=1)
    ]
    entries = [
        (playlist[0], place, track[0], dice.day(playlist[3], "2023-12-31"))
        for playlist in playlists[:84]
        for place, track in enumerate(dice.sample(tracks, dice.between(4, 20)), start=1)
    ]
    tables = ("artist", "album", "track", "listener", "play", "playlist", "playlist_track")
    return dict(zip(tables, (artists, albums, tracks, listeners, plays, playlists, entries), strict=True))


def _artist(dice: Dice, number: int, name: str) -> Row:
    formed = dice.maybe(dice.between(1968, 2018), 0.1)
    ended = None if formed is None or dice.chance(0.7) else min(2022, formed + dice.bell(3, 30))
    return (number, f"The {name}" if dice.chance(0.4) else name, dice.skewed(CITIES)[1], formed, ended)


def _album(dice: Dice, number: int, name: str, artists: list[Row]) -> Row:
    artist = dice.skewed(artists[:37])
    first = artist[3] or 1990
    released = dice.day(f"{first}-01-01", f"{artist[4] or 2023}-12-31")
    return (number, name, artist[0], released, dice.skewed(GENRES), dice.maybe(dice.skewed(LABELS), 0.15))


def _tracks(dice: Dice, albums: list[Row], songs: list[str]) -> list[Row]:
    rows: list[Row] = []
    for album in albums:
        for place in range(1, dice.between(4, 10) + 1):
            if len(rows) < len(songs):
                row = (songs[len(rows)], album[0], place, dice.bell(95, 420), int(dice.chance(0.1)))
                rows.append((len(rows) + 1, *row))
    return rows


def _listener(dice: Dice, number: int, name: str) -> Row:
    joined = dice.day("2018-01-01", "2022-12-31")
    left = dice.day("2023-01-01", "2023-12-31") if dice.chance(0.15) else None
    return (number, name, dice.maybe(dice.skewed(CITIES)[1], 0.06), dice.skewed(PLANS), joined, left)


def _play(dice: Dice, number: int, tracks: list[Row], listeners: list[Row]) -> Row:
    listener = dice.skewed(listeners[:300])
    track = dice.skewed(tracks)
    length = track[4]
    seconds = length if dice.chance(0.6) else dice.between(1, length)
    day = dice.day("2023-01-01", listener[5] or "2023-12-31")
    return (number, listener[0], track[0], day, seconds, dice.maybe(dice.skewed(DEVICES), 0.05))


NATION = ("Portugal", "Spain", "France", "Germany", "Austria")

ASKS = (
    ask(
        [
            "Which artists from {country} are still active, that is, not disbanded? Give their names.",
            "List the artists of {country} for which no year of disbanding is recorded.",
        ],
        "SELECT artist_name FROM artist WHERE country = '{country}' AND disbanded_year IS NULL",
        country=NATION,
    ),
    ask(
        ["How many artists were formed in the {decade}s?", "Count the artists whose year of formation falls in the {decade}s."],
        "SELECT COUNT(*) FROM artist WHERE formed_year >= {decade} AND formed_year < {decade} + 10",
        decade=("1970", "1980", "1990", "2000"),
    ),
    ask(
        [
            "List title and release date of the {genre} albums on the label {label}, newest first.",
            "Which {genre} albums appeared on {label}? Give title and date of release, latest first.",
        ],
        "SELECT album_title, released_on FROM album WHERE genre = '{genre}' AND label = '{label}' ORDER BY released_on DESC",
        genre=GENRES[:4],
        label=LABELS[:3],
    ),
    ask("How many albums have no label?", "SELECT COUNT(*) FROM album WHERE label IS NULL"),
    ask(
        [
            "What is the total playing time in minutes of the album {number}, by album id?",
            "Add up the track durations of album number {number} and give the sum in minutes, with fractions.",
        ],
        "SELECT SUM(duration_seconds) / 60.0 FROM track WHERE album_id = {number}",
        number=("7", "19", "42", "64"),
    ),
    ask(
        [
            "Which {k} tracks are the longest? Give title and duration in seconds, longest first, by title where equal.",
            "Name the {k} longest tracks with their seconds, in descending order, ties by title.",
        ],
        "SELECT track_title, duration_seconds FROM track ORDER BY duration_seconds DESC, track_title LIMIT {k}",
        k=("three|3", "six|6", "ten|10"),
    ),
    ask(
        [
            "What is the opening track (number 1) of each {genre} album? Give album title and track title.",
            "For every {genre} album, list its title and that of its first track.",
        ],
        """SELECT a.album_title, t.track_title FROM album AS a JOIN track AS t ON t.album_id = a.album_id
           WHERE a.genre = '{genre}' AND t.track_number = 1""",
        genre=GENRES[2:],
    ),
    ask(
        "Which artists have no album? Give their names.",
        """SELECT artist_name FROM artist EXCEPT SELECT r.artist_name FROM artist AS r JOIN album AS a
           ON a.artist_id = r.artist_id""",
    ),
    ask(
        [
            "Which artists have albums in at least {n} different genres? Give name and number of genres.",
            "List artists whose albums span {n} genres or more, and how many genres that is.",
        ],
        """SELECT r.artist_name, COUNT(DISTINCT a.genre) FROM artist AS r JOIN album AS a ON a.artist_id = r.artist_id
           GROUP BY r.artist_id, r.artist_name HAVING COUNT(DISTINCT a.genre) >= {n}""",
        n=("three|3", "four|4"),
    ),
    ask(
        "Which genre has the longest tracks on average? Give genre and mean duration in seconds.",
        """SELECT a.genre, AVG(t.duration_seconds) AS mean FROM album AS a JOIN track AS t ON t.album_id = a.album_id
           GROUP BY a.genre ORDER BY mean DESC LIMIT 1""",
    ),
    ask(
        [
            "How many explicit tracks did artists from {country} release?",
            "Count the tracks marked explicit by artists whose country is {country}.",
        ],
        """SELECT COUNT(*) FROM track AS t JOIN album AS a ON a.album_id = t.album_id JOIN artist AS r
           ON r.artist_id = a.artist_id WHERE t.is_explicit = 1 AND r.country = '{country}'""",
        country=NATION,
    ),
    ask(
        ["How many {plan} listeners signed up in {year}?", "Count the listeners on the {plan} plan who joined in {year}."],
        "SELECT COUNT(*) FROM listener WHERE plan = '{plan}' AND signed_up_on LIKE '{year}%'",
        plan=PLANS,
        year=("2019", "2020", "2021", "2022"),
    ),
    ask(
        "For each plan, what fraction of the listeners has cancelled? Give plan and fraction.",
        "SELECT plan, COUNT(cancelled_on) * 1.0 / COUNT(*) FROM listener GROUP BY plan",
    ),
    ask(
        [
            "How many plays per device were there in {month}? Leave out plays with an unknown device.",
            "Give the number of plays on each known device for {month}.",
        ],
        """SELECT device, COUNT(*) FROM play WHERE device IS NOT NULL AND played_on >= '{month}-01' AND played_on <=
           '{month}-31'
           GROUP BY device""",
        month=("January 2023|2023-01", "May 2023|2023-05", "October 2023|2023-10"),
    ),
    ask(
        [
            (
                "Which {k} tracks were played most? Give track title and number of plays, most played first and by title "
                "where equal."
            ),
            "Name the top {k} tracks by plays, with the number of plays, ties in order of title.",
        ],
        """SELECT t.track_title, COUNT(*) AS plays FROM play AS p JOIN track AS t ON t.track_id = p.track_id
           GROUP BY t.track_id, t.track_title ORDER BY plays DESC, t.track_title LIMIT {k}""",
        k=("five|5", "eight|8", "ten|10"),
    ),
    ask(
        "What share of plays ran to the end of the track? Give a number between 0 and 1.",
        """SELECT AVG(CASE WHEN p.seconds_played = t.duration_seconds THEN 1.0 ELSE 0.0 END) FROM play AS p
           JOIN track AS t ON t.track_id = p.track_id""",
    ),
    ask(
        ["Which listeners heard music by {a} as well as jazz or folk albums? Count them."],
        """SELECT COUNT(DISTINCT p.listener_id) FROM play AS p JOIN track AS t ON t.track_id = p.track_id JOIN album AS a
           ON a.album_id = t.album_id WHERE a.genre IN ('jazz', 'folk') AND p.listener_id IN (SELECT q.listener_id FROM play
           AS q
           JOIN track AS u ON u.track_id = q.track_id JOIN album AS b ON b.album_id = u.album_id JOIN artist AS r
           ON r.artist_id = b.artist_id WHERE r.country = '{a}')""",
        times=1,
        a=("artists from Spain|Spain", "artists from France|France"),
    ),
    ask(
        [
            "How many minutes did listeners from {country} listen in total?",
            "Sum up the listening time, in minutes with fractions, of the listeners from {country}.",
        ],
        """SELECT SUM(p.seconds_played) / 60.0 FROM play AS p JOIN listener AS l ON l.listener_id = p.listener_id
           WHERE l.country = '{country}'""",
        country=NATION,
    ),
    ask(
        [
            "Who listened for more than {n} seconds in all? Give listener name and seconds, the most avid first.",
            "List listeners with over {n} seconds played, with the seconds, in descending order.",
        ],
        """SELECT l.listener_name, SUM(p.seconds_played) AS heard FROM listener AS l JOIN play AS p
           ON p.listener_id = l.listener_id GROUP BY l.listener_id, l.listener_name HAVING SUM(p.seconds_played) > {n}
           ORDER BY heard DESC""",
        n=("6,000|6000", "5,000|5000", "5,500|5500"),
    ),
    ask(
        "How many listeners have never played anything?",
        "SELECT COUNT(*) FROM listener WHERE listener_id NOT IN (SELECT listener_id FROM play)",
    ),
    ask(
        [
            "Which public playlists contain at least {n} tracks? Give playlist name and number of tracks.",
            "List public playlists of {n} tracks or more with the number of tracks.",
        ],
        """SELECT y.playlist_name, COUNT(*) FROM playlist AS y JOIN playlist_track AS e ON e.playlist_id = y.playlist_id
           WHERE y.is_public = 1 GROUP BY y.playlist_id, y.playlist_name HAVING COUNT(*) >= {n}""",
        n=("12", "15", "18"),
    ),
    ask(
        "Which playlists are empty? Give playlist name and the name of the owner.",
        """SELECT y.playlist_name, l.listener_name FROM playlist AS y JOIN listener AS l ON l.listener_id = y.owner_id
           LEFT JOIN playlist_track AS e ON e.playlist_id = y.playlist_id WHERE e.track_id IS NULL""",
    ),
    ask(
        [
            "Which tracks appear in {n} or more playlists? Give the titles.",
            "Name the tracks that are on at least {n} playlists.",
        ],
        """SELECT track_title FROM track WHERE track_id IN (SELECT track_id FROM playlist_track GROUP BY track_id
           HAVING COUNT(DISTINCT playlist_id) >= {n})""",
        n=("four|4", "five|5", "three|3"),
    ),
    ask(
        "How many plays were of tracks that the listener has on one of their own playlists?",
        """SELECT COUNT(*) FROM play AS p WHERE EXISTS (SELECT 1 FROM playlist AS y JOIN playlist_track AS e
           ON e.playlist_id = y.playlist_id WHERE y.owner_id = p.listener_id AND e.track_id = p.track_id)""",
    ),
    ask(
        "For each month of 2023, give the number of plays and the running total of plays up to and including that "
        "month, as YYYY-MM, "
        "plays, total, in order of month.",
        """WITH monthly AS (SELECT substr(played_on, 1, 7) AS month, COUNT(*) AS plays FROM play GROUP BY substr(played_on,
           1, 7))
           SELECT month, plays, SUM(plays) OVER (ORDER BY month) FROM monthly ORDER BY month""",
    ),
    ask(
        [
            "Which {genre} albums are longer in total than the average album? Give title and total seconds.",
            "List title and total duration in seconds of {genre} albums whose duration exceeds the mean over all albums.",
        ],
        """WITH length AS (SELECT album_id, SUM(duration_seconds) AS seconds FROM track GROUP BY album_id)
           SELECT a.album_title, n.seconds FROM album AS a JOIN length AS n ON n.album_id = a.album_id
           WHERE a.genre = '{genre}' AND n.seconds > (SELECT AVG(seconds) FROM length)""",
        genre=GENRES[:5],
    ),
    ask(
        (
            "How many plays fall on each weekday? Give weekday, as a number from 0 (Sunday) to 6 (Saturday), "
            "and plays, in order of the weekday."
        ),
        "SELECT strftime('%w', played_on) AS weekday, COUNT(*) FROM play GROUP BY strftime('%w', played_on) ORDER BY weekday",
    ),
    ask(
        [
            "Which listeners on the {plan} plan own a public playlist? Give each name once.",
            "Name, without repetition, the {plan} listeners with at least one public playlist.",
        ],
        """SELECT DISTINCT l.listener_name FROM listener AS l JOIN playlist AS y ON y.owner_id = l.listener_id
           WHERE l.plan = '{plan}' AND y.is_public = 1""",
        plan=PLANS,
    ),
    ask(
        "Which countries are home to both an artist and a listener?",
        "SELECT country FROM artist INTERSECT SELECT country FROM listener",
    ),
    ask(
        [
            "Which artists were active for the longest time? Give name and years between forming and disbanding of the "
            "top {k}, "
            "longest first, by name where equal."
        ],
        """SELECT artist_name, disbanded_year - formed_year AS years FROM artist WHERE disbanded_year IS NOT NULL
           ORDER BY years DESC, artist_name LIMIT {k}""",
        times=1,
        k=("three|3", "four|4"),
    ),
)

MUSIC = Domain("music", SCHEMA, fill, ASKS)
