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
