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
