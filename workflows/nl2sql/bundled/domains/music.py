"""A music streaming service: artists, albums, tracks, listeners, plays and playlists."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import CITIES, people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

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
