"""A city's public library: branches, books, copies, members and loans."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
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
"""

BRANCHES = (
    ("Central Library", "Old Town"),
    ("Harbour Branch", "Harbour"),
    ("Northgate Branch", "Northgate"),
    ("Riverside Branch", "Riverside"),
    ("Mill Lane Branch", "Riverside"),
    ("Hilltop Branch", "Northgate"),
    ("Station Branch", "Old Town"),
    ("Garden City Branch", "Garden City"),
)
GENRES = ("novel", "crime", "history", "poetry", "science", "travel", "biography", "fantasy")
LANGUAGES = ("English", "French", "German", "Spanish", "Portuguese")
NATIONS = ("French", "British", "German", "Spanish", "Italian", "Irish", "Polish", "Portuguese")
ADJECTIVES = "Silent Broken Golden Distant Hidden Last Winter Burning Paper Second Crooked Blue Endless Salted Northern Quiet"
NOUNS = (
    "Harbour Orchard Letters River Garden Compass House Summer Bridge Mountain Witness Road Lantern Island Clock Tide Window"
)


def fill(dice: Dice) -> Tables:
    """8 branches, 70 authors, 240 books, 900 copies, 350 members, 2,200 loans."""
    branches = [
        (number, *row, dice.day("1921-01-01", "2015-12-31"), dice.maybe(dice.heavy(250, 5200), 0.12))
        for number, row in enumerate(BRANCHES, start=1)
    ]
    authors = [_author(dice, number, name) for number, name in enumerate(people(dice, 70), start=1)]
    books = [_book(dice, number, title, authors) for number, title in enumerate(titles(dice, ADJECTIVES, NOUNS, 240), start=1)]
    copies = [_copy(dice, number) for number in range(1, 901)]
    members = [_member(dice, number, name) for number, name in enumerate(people(dice, 350), start=1)]
    loans = [_loan(dice, number, copies, members) for number in range(1, 2201)]
    names = ("branch", "author", "book", "copy", "member", "loan")
    return dict(zip(names, (branches, authors, books, copies, members, loans), strict=True))


def _author(dice: Dice, number: int, name: str) -> Row:
    born = dice.between(1880, 1990)
    died = min(2021, born + dice.bell(35, 95)) if born < 1950 and dice.chance(0.8) else None
    return (number, name, dice.skewed(NATIONS), born, died)


def _book(dice: Dice, number: int, title: str, authors: list[Row]) -> Row:
    writer = dice.skewed(authors)
    published = min(2022, writer[3] + dice.bell(22, 70))
    pages = dice.maybe(dice.bell(80, 720), 0.07)
    return (number, f"The {title}", writer[0], dice.skewed(GENRES), dice.skewed(LANGUAGES), published, pages)


def _copy(dice: Dice, number: int) -> Row:
    book = number if number <= 225 else dice.skewed(range(1, 226))
    condition = dice.skewed(("good", "worn", "new", "damaged"))
    return (number, book, dice.skewed(range(1, 9)), dice.day("2008-01-01", "2021-12-31"), condition)


def _member(dice: Dice, number: int, name: str) -> Row:
    joined = dice.day("2012-01-01", "2023-06-30")
    category = dice.skewed(("adult", "student", "senior", "child"))
    span = {"adult": (1955, 2000), "student": (1996, 2006), "senior": (1935, 1957), "child": (2009, 2018)}[category]
    born = dice.maybe(dice.day(f"{span[0]}-01-01", f"{span[1]}-12-31"), 0.06)
    return (number, name, born, joined, dice.maybe(dice.skewed(range(1, 9)), 0.1), category)


def _loan(dice: Dice, number: int, copies: list[Row], members: list[Row]) -> Row:
    member = dice.skewed(members[:320])
    borrowed = dice.day(max("2022-01-01", member[3]), "2023-12-15")
    kept = dice.bell(2, 36) + (dice.heavy(0, 60) if dice.chance(0.2) else 0)
    returned = None if dice.chance(0.07) else later(borrowed, kept)
    fine = round((kept - 28) * 0.25, 2) if returned and kept > 28 else None
    return (number, dice.skewed(copies)[0], member[0], borrowed, later(borrowed, 28), returned, fine)


ASKS = (
    ask(
        ["How many {genre} books does the catalogue hold?", "Count the books whose genre is {genre}."],
        "SELECT COUNT(*) FROM book WHERE genre = '{genre}'",
        genre=GENRES,
    ),
    ask("How many different languages do the books come in?", "SELECT COUNT(DISTINCT language) FROM book"),
    ask(
        [
            "List title and publication year of the {language} books published after {year}.",
            "Which books in {language} came out after {year}? Give title and year of publication.",
        ],
        "SELECT title, published_year FROM book WHERE language = '{language}' AND published_year > {year}",
        language=LANGUAGES,
        year=("1990", "2000", "2010"),
    ),
    ask(
        [
            "Which books have between {low} and {high} pages? Give their titles.",
            "List the titles of all books with at least {low} and at most {high} pages.",
        ],
        "SELECT title FROM book WHERE page_count BETWEEN {low} AND {high}",
        low=("200", "300"),
        high=("330", "350"),
    ),
    ask("For how many books is the number of pages unknown?", "SELECT COUNT(*) FROM book WHERE page_count IS NULL"),
    ask(
        ["Which book titles contain the word {word}?", "Find every title with the word {word} in it."],
        "SELECT title FROM book WHERE title LIKE '%{word}%'",
        word=("Winter", "Clock", "River", "Golden", "Island"),
    ),
    ask(
        [
            "Give the names of the authors who wrote at least one {a} book and at least one {b} book.",
            "Which authors have both a {a} book and a {b} book to their name? List the names.",
        ],
        """SELECT a.author_name FROM author AS a WHERE EXISTS (SELECT 1 FROM book AS b WHERE b.author_id = a.author_id
           AND b.genre = '{a}') AND EXISTS (SELECT 1 FROM book AS b WHERE b.author_id = a.author_id AND b.genre = '{b}')""",
        a=GENRES[:4],
        b=GENRES[4:],
    ),
    ask(
        "How many authors have no book in the catalogue?",
        "SELECT COUNT(*) FROM author WHERE author_id NOT IN (SELECT author_id FROM book)",
    ),
    ask(
        [
            "List the authors with {n} or more books in the catalogue: name and number of books, most productive first and, "
            "where equal, by name.",
            "Which authors wrote at least {n} of our books? Give name and number, from most to fewest, ties in order of name.",
        ],
        """SELECT a.author_name, COUNT(*) AS books FROM author AS a JOIN book AS b ON b.author_id = a.author_id
           GROUP BY a.author_id, a.author_name HAVING COUNT(*) >= {n} ORDER BY books DESC, a.author_name""",
        n=("six|6", "eight|8", "ten|10"),
    ),
    ask(
        [
            "Which author of the nationality {nation} was born first? Give the name and the birth year.",
            "Who is the oldest {nation} author by year of birth, and what is that year?",
        ],
        "SELECT author_name, birth_year FROM author WHERE nationality = '{nation}' ORDER BY birth_year LIMIT 1",
        nation=NATIONS,
    ),
    ask(
        "At what age did authors die on average? Use birth and death year, for those who have died.",
        "SELECT AVG(death_year - birth_year) FROM author WHERE death_year IS NOT NULL",
    ),
    ask(
        [
            "How many copies does each branch hold? Give branch name and number of copies.",
        ],
        """SELECT b.branch_name, COUNT(*) FROM branch AS b JOIN copy AS c ON c.branch_id = b.branch_id
           GROUP BY b.branch_id, b.branch_name""",
    ),
    ask(
        [
            "How many {condition} copies stand in branches of the {district} district?",
            "Count the copies in {condition} condition that belong to a branch in {district}.",
        ],
        """SELECT COUNT(*) FROM copy AS c JOIN branch AS b ON b.branch_id = c.branch_id
           WHERE c.condition = '{condition}' AND b.district = '{district}'""",
        condition=("worn", "new", "damaged"),
        district=("Old Town", "Riverside", "Northgate"),
    ),
    ask(
        [
            "Which members joined in {year}, have no home branch, and are not children? Give their names.",
            "Name the members other than those of category child who joined in {year} and registered no home branch.",
        ],
        """SELECT member_name FROM member WHERE home_branch_id IS NULL AND category <> 'child'
           AND strftime('%Y', joined_on) = '{year}'""",
        year=("2014", "2016", "2018", "2020", "2021"),
    ),
    ask(
        [
            "How many members of each category have {branch} as their home branch?",
            "Give the number of members per category for the home branch {branch}.",
        ],
        """SELECT m.category, COUNT(*) FROM member AS m JOIN branch AS b ON b.branch_id = m.home_branch_id
           WHERE b.branch_name = '{branch}' GROUP BY m.category""",
        branch=("Central Library", "Harbour Branch", "Hilltop Branch"),
    ),
    ask(
        [
            "How many loans began in each month of {year}? Give the two-digit month and the count.",
        ],
        """SELECT strftime('%m', borrowed_on), COUNT(*) FROM loan WHERE borrowed_on >= '{year}-01-01'
           AND borrowed_on <= '{year}-12-31' GROUP BY strftime('%m', borrowed_on)""",
        times=1,
        year=("2022", "2023"),
    ),
    ask("How many loans were returned after their due date?", "SELECT COUNT(*) FROM loan WHERE returned_on > due_on"),
    ask(
        [
            "How many loans have not been returned although they were due before {day}?",
            "Count the loans due before {day} for which no return is recorded.",
        ],
        "SELECT COUNT(*) FROM loan WHERE returned_on IS NULL AND due_on < '{day}'",
        day=("1 July 2023|2023-07-01", "1 January 2023|2023-01-01", "1 October 2022|2022-10-01"),
    ),
    ask(
        [
            "Which {k} members paid the highest total fines? Give name and total.",
            "List the {k} members with the largest sum of fines, with that sum.",
        ],
        """SELECT m.member_name, SUM(l.fine_eur) AS total FROM member AS m JOIN loan AS l ON l.member_id = m.member_id
           WHERE l.fine_eur IS NOT NULL GROUP BY m.member_id, m.member_name ORDER BY total DESC LIMIT {k}""",
        k=("three|3", "four|4", "five|5", "seven|7"),
    ),
    ask(
        [
            "How many loans of {genre} books were made at {branch}, that is, from copies held there?",
            "From the copies of {branch}, how many loans were of {genre} books?",
        ],
        """SELECT COUNT(*) FROM loan AS l JOIN copy AS c ON c.copy_id = l.copy_id JOIN book AS k ON k.book_id = c.book_id
           JOIN branch AS b ON b.branch_id = c.branch_id WHERE k.genre = '{genre}' AND b.branch_name = '{branch}'""",
        genre=GENRES[:5],
        branch=("Central Library", "Harbour Branch", "Northgate Branch", "Station Branch"),
    ),
    ask(
        "How many loans were made from a branch that is not the member's home branch? Leave out members without a home branch.",
        """SELECT COUNT(*) FROM loan AS l JOIN copy AS c ON c.copy_id = l.copy_id JOIN member AS m
           ON m.member_id = l.member_id WHERE c.branch_id <> m.home_branch_id""",
    ),
    ask(
        [
            "Which books have never been borrowed although the library holds a copy? Give the titles.",
        ],
        """SELECT k.title FROM book AS k WHERE k.book_id IN (SELECT book_id FROM copy) AND k.book_id NOT IN
           (SELECT c.book_id FROM copy AS c JOIN loan AS l ON l.copy_id = c.copy_id)""",
    ),
    ask(
        "List the titles of books of which the library owns no copy.",
        "SELECT k.title FROM book AS k LEFT JOIN copy AS c ON c.book_id = k.book_id WHERE c.copy_id IS NULL",
    ),
    ask(
        [
            "What is the average number of days that {category} members kept a book, over returned loans?",
            "On average, after how many days did {category} members return what they borrowed?",
        ],
        """SELECT AVG(julianday(l.returned_on) - julianday(l.borrowed_on)) FROM loan AS l JOIN member AS m
           ON m.member_id = l.member_id WHERE m.category = '{category}' AND l.returned_on IS NOT NULL""",
        category=("adult", "student", "senior", "child"),
    ),
    ask(
        "Which genres have an average page count above that of all books? Give genre and average.",
        """SELECT genre, AVG(page_count) FROM book GROUP BY genre
           HAVING AVG(page_count) > (SELECT AVG(page_count) FROM book)""",
    ),
    ask(
        "For each genre, what is the greatest number of pages in one book?",
        "SELECT genre, MAX(page_count) FROM book GROUP BY genre",
    ),
    ask(
        [
            "Which {genre} books have more pages than the average {genre} book? Give title and page count.",
            "List title and number of pages of each {genre} book that is longer than the mean of its genre.",
        ],
        """SELECT title, page_count FROM book WHERE genre = '{genre}' AND page_count >
           (SELECT AVG(page_count) FROM book WHERE genre = '{genre}')""",
        genre=GENRES[3:],
    ),
    ask(
        "How many members have borrowed books in at least five different genres?",
        """SELECT COUNT(*) FROM (SELECT l.member_id FROM loan AS l JOIN copy AS c ON c.copy_id = l.copy_id
           JOIN book AS k ON k.book_id = c.book_id GROUP BY l.member_id HAVING COUNT(DISTINCT k.genre) >= 5) AS broad""",
    ),
    ask(
        "What is the name of the branch that opened first, and on which day was that?",
        "SELECT branch_name, opened_on FROM branch WHERE opened_on = (SELECT MIN(opened_on) FROM branch)",
    ),
    ask(
        "For each decade of publication, such as 1990, how many books are there? Give the decade's first year and the count.",
        "SELECT published_year / 10 * 10, COUNT(*) FROM book GROUP BY published_year / 10 * 10",
    ),
    ask(
        ["Which nationalities have an author born before {early} as well as one born after {late}?"],
        """SELECT nationality FROM author WHERE birth_year < {early} INTERSECT
           SELECT nationality FROM author WHERE birth_year > {late}""",
        times=1,
        early=("1890", "1895"),
        late=("1985", "1980"),
    ),
)

LIBRARY = Domain("library", SCHEMA, fill, ASKS)
