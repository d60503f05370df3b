CREATE TABLE branch (
    branch_id INTEGER PRIMARY KEY, branch_name TEXT NOT NULL, district TEXT NOT NULL, opened_on DATE NOT NULL,
    floor_area_m2 INTEGER);
CREATE TABLE author (
    author_id INTEGER PRIMARY KEY, author_name TEXT NOT NULL, nationality TEXT NOT NULL, birth_year INTEGER NOT NULL,
    death_year INTEGER);
CREATE TABLE book (
    book_id INTEGER PRIMARY KEY, title TEXT NOT NULL, author_id INTEGER NOT NULL REFERENCES author (author_id),
    genre TEXT NOT NULL, language TEXT NOT NULL, published_year INTEGER NOT NULL, page_count INTEGER);
CREATE TABLE copy (
    copy_id INTEGER PRIMARY KEY, book_id INTEGER NOT NULL REFERENCES book (book_id),
    branch_id INTEGER NOT NULL REFERENCES branch (branch_id), acquired_on DATE NOT NULL, condition TEXT NOT NULL);
CREATE TABLE member (
    member_id INTEGER PRIMARY KEY, member_name TEXT NOT NULL, birth_date DATE, joined_on DATE NOT NULL,
    home_branch_id INTEGER REFERENCES branch (branch_id), category TEXT NOT NULL);
CREATE TABLE loan (
    loan_id INTEGER PRIMARY KEY, copy_id INTEGER NOT NULL REFERENCES copy (copy_id),
    member_id INTEGER NOT NULL REFERENCES member (member_id), borrowed_on DATE NOT NULL, due_on DATE NOT NULL,
    returned_on DATE, fine_eur REAL);
