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
