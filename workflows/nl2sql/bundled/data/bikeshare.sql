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
