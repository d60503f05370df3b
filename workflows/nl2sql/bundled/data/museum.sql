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
