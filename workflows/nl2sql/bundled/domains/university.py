"""A university: departments, professors, students, courses, their sections and enrolments."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import CITIES, people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

SCHEMA = """
CREATE TABLE department (
    department_id INTEGER PRIMARY KEY, department_name TEXT NOT NULL, building TEXT NOT NULL, founded_year INTEGER);
CREATE TABLE professor (
    professor_id INTEGER PRIMARY KEY, professor_name TEXT NOT NULL,
    department_id INTEGER NOT NULL REFERENCES department (department_id), academic_rank TEXT NOT NULL, hired_on DATE NOT NULL,
    office TEXT);
CREATE TABLE student (
    student_id INTEGER PRIMARY KEY, student_name TEXT NOT NULL, major_department_id INTEGER REFERENCES department
    (department_id),
    entry_year INTEGER NOT NULL, birth_date DATE NOT NULL, home_city TEXT, scholarship_eur INTEGER);
CREATE TABLE course (
    course_id INTEGER PRIMARY KEY, title TEXT NOT NULL, department_id INTEGER NOT NULL REFERENCES department (department_id),
    credits INTEGER NOT NULL, level INTEGER NOT NULL);
CREATE TABLE prerequisite (
    course_id INTEGER NOT NULL REFERENCES course (course_id), required_course_id INTEGER NOT NULL REFERENCES course (course_id),
    PRIMARY KEY (course_id, required_course_id));
CREATE TABLE section (
    section_id INTEGER PRIMARY KEY, course_id INTEGER NOT NULL REFERENCES course (course_id),
    professor_id INTEGER NOT NULL REFERENCES professor (professor_id), year INTEGER NOT NULL, term TEXT NOT NULL,
    room TEXT, capacity INTEGER NOT NULL);
CREATE TABLE enrollment (
    section_id INTEGER NOT NULL REFERENCES section (section_id), student_id INTEGER NOT NULL REFERENCES student (student_id),
    enrolled_on DATE NOT NULL, grade INTEGER, PRIMARY KEY (section_id, student_id));
"""

DEPARTMENTS = (
    ("Biology", "Linnaeus Hall", 1911),
    ("Chemistry", "Linnaeus Hall", 1908),
    ("Computer Science", "Turing Building", 1974),
    ("Economics", "Market House", 1932),
    ("History", "Old College", 1897),
    ("Linguistics", "Old College", None),
    ("Mathematics", "Euler Building", 1897),
    ("Physics", "Euler Building", 1902),
    ("Astronomy", "Observatory", 1926),
)
TOPICS = {
    1: "Cell Biology,Genetics,Ecology,Evolution,Marine Life",
    2: "Organic Chemistry,Inorganic Chemistry,Spectroscopy,Biochemistry",
    3: "Algorithms,Databases,Operating Systems,Compilers,Machine Learning,Networks",
    4: "Microeconomics,Macroeconomics,Game Theory,Public Finance",
    5: "Ancient History,Medieval Europe,Industrial Revolution,Oral History",
    6: "Phonetics,Syntax,Semantics",
    7: "Linear Algebra,Calculus,Probability,Topology,Number Theory,Statistics",
    8: "Mechanics,Electromagnetism,Thermodynamics,Quantum Physics,Optics",
}
RANKS = ("associate", "assistant", "full", "lecturer")
TERMS = ("autumn", "spring", "summer")


def fill(dice: Dice) -> Tables:
    """9 departments, 42 professors, 420 students, 74 courses, 60 prerequisites, 260 sections, some 3,300 enrolments."""
    departments = [(number, *row) for number, row in enumerate(DEPARTMENTS, start=1)]
    professors = [_professor(dice, number, name) for number, name in enumerate(people(dice, 42), start=1)]
    students = [_student(dice, number, name) for number, name in enumerate(people(dice, 420), start=1)]
    titles = [
        (f"{topic} {part}", home) for home, topics in TOPICS.items() for topic in topics.split(",") for part in ("I", "II")
    ]
    courses = [_course(dice, number, *row) for number, row in enumerate(titles, start=1)]
    pairs = {(second, second - 1) for second in range(2, len(titles) + 1, 2)}
    while len(pairs) < 60:
        course, required = dice.below(len(titles)) + 1, dice.below(len(titles)) + 1
        if required < course - 1:
            pairs.add((course, required))
    sections = [_section(dice, number, len(courses)) for number in range(1, 261)]
    enrolments = _enrolments(dice, sections, students)
    names = ("department", "professor", "student", "course", "prerequisite", "section", "enrollment")
    tables = (departments, professors, students, courses, sorted(pairs), sections, enrolments)
    return dict(zip(names, tables, strict=True))


def _professor(dice: Dice, number: int, name: str) -> Row:
    office = dice.maybe(f"{dice.pick('ABCDE')}{dice.between(101, 420)}", 0.12)
    return (
        number,
        name,
        dice.skewed((3, 7, 8, 1, 4, 5, 2, 6)),
        dice.skewed(RANKS),
        dice.day("1988-01-01", "2022-09-01"),
        office,
    )


def _student(dice: Dice, number: int, name: str) -> Row:
    entry = dice.between(2018, 2023)
    born = dice.day(f"{entry - 24}-01-01", f"{entry - 17}-12-31")
    major = dice.maybe(dice.skewed((3, 4, 1, 7, 8, 5, 2, 6)), 0.08)
    grant = dice.heavy(10, 90) * 100 if dice.chance(0.3) else None
    return (number, name, major, entry, born, dice.maybe(dice.skewed(CITIES)[0], 0.07), grant)


def _course(dice: Dice, number: int, title: str, department: int) -> Row:
    return (
        number,
        title,
        department,
        dice.pick((3, 4, 6, 6, 8)),
        dice.between(1, 3) if title.endswith(" I") else dice.between(2, 4),
    )


def _section(dice: Dice, number: int, courses: int) -> Row:
    room = dice.maybe(f"R{dice.between(1, 40)}", 0.08)
    course = dice.skewed(range(1, courses - 3))
    return (
        number,
        course,
        dice.skewed(range(1, 40)),
        dice.between(2020, 2023),
        dice.skewed(TERMS),
        room,
        dice.pick((20, 30, 40, 60)),
    )


def _enrolments(dice: Dice, sections: list[Row], students: list[Row]) -> list[Row]:
    rows = []
    for section in sections:
        year = section[3]
        start = {"autumn": "09", "spring": "02", "summer": "06"}[section[4]]
        able = [student for student in students[:400] if student[3] <= year]
        for student in dice.sample(able, dice.between(4, min(22, len(able)))):
            grade = dice.maybe(dice.bell(20, 100), 0.09)
            rows.append((section[0], student[0], dice.day(f"{year}-{start}-01", f"{year}-{start}-25"), grade))
    return rows


DEPARTMENT = ("Biology", "Computer Science", "Economics", "History", "Mathematics", "Physics", "Chemistry")
COURSES = ("Algorithms I", "Databases I", "Calculus I", "Genetics I", "Ecology II", "Networks II", "Game Theory I")

ASKS = (
    ask(
        ["How many students entered the university in {year}?", "Count the students whose entry year is {year}."],
        "SELECT COUNT(*) FROM student WHERE entry_year = {year}",
        year=("2019", "2021", "2022"),
    ),
    ask(
        [
            "Which courses of level {level} are worth {credits} credits? Give their titles.",
            "List the titles of the level-{level} courses that carry {credits} credits.",
        ],
        "SELECT title FROM course WHERE level = {level} AND credits = {credits}",
        level=("1", "2", "3"),
        credits=("3|3", "6|6", "8|8"),
    ),
    ask(
        [
            "List name and hiring date of the {rank} professors of the {department} department.",
            "Who are the professors of rank {rank} in {department}, and when were they hired?",
        ],
        """SELECT p.professor_name, p.hired_on FROM professor AS p JOIN department AS d ON d.department_id = p.department_id
           WHERE d.department_name = '{department}' AND p.academic_rank = '{rank}'""",
        rank=RANKS,
        department=DEPARTMENT,
    ),
    ask(
        "Which buildings house more than one department?",
        "SELECT building FROM department GROUP BY building HAVING COUNT(*) > 1",
    ),
    ask(
        "Give each department's name with the number of courses it offers, including departments that offer none.",
        """SELECT d.department_name, COUNT(c.course_id) FROM department AS d LEFT JOIN course AS c
           ON c.department_id = d.department_id GROUP BY d.department_id, d.department_name""",
    ),
    ask(
        ["How many students major in {department}?", "What is the number of {department} majors?"],
        """SELECT COUNT(*) FROM student AS s JOIN department AS d ON d.department_id = s.major_department_id
           WHERE d.department_name = '{department}'""",
        department=DEPARTMENT,
    ),
    ask(
        "How many students have not declared a major, and what is their average scholarship?",
        "SELECT COUNT(*), AVG(scholarship_eur) FROM student WHERE major_department_id IS NULL",
    ),
    ask(
        [
            "Which students receive a scholarship of at least {n} euros? Give names and amounts.",
            "List name and scholarship of everyone whose scholarship is {n} euros or more.",
        ],
        "SELECT student_name, scholarship_eur FROM student WHERE scholarship_eur >= {n}",
        n=("7,000|7000", "7,500|7500", "8,000|8000"),
    ),
    ask(
        [
            "What is the average grade in the course {course}, over all its sections?",
            "Over all sections of {course}, what grade do students get on average?",
        ],
        """SELECT AVG(e.grade) FROM enrollment AS e JOIN section AS s ON s.section_id = e.section_id JOIN course AS c
           ON c.course_id = s.course_id WHERE c.title = '{course}'""",
        course=COURSES,
    ),
    ask(
        [
            "Which courses must be taken before {course}? Give their titles.",
            "List the titles of the courses that {course} requires.",
        ],
        """SELECT r.title FROM prerequisite AS p JOIN course AS c ON c.course_id = p.course_id JOIN course AS r
           ON r.course_id = p.required_course_id WHERE c.title = '{course}'""",
        course=("Algorithms II", "Compilers II", "Probability II", "Topology I", "Quantum Physics II", "Statistics II"),
    ),
    ask(
        "How many courses have no prerequisite?",
        "SELECT COUNT(*) FROM course AS c WHERE NOT EXISTS (SELECT 1 FROM prerequisite AS p WHERE p.course_id = c.course_id)",
    ),
    ask(
        "Which courses are required by the largest number of other courses? Give their titles.",
        """SELECT c.title FROM course AS c JOIN prerequisite AS p ON p.required_course_id = c.course_id
           GROUP BY c.course_id, c.title HAVING COUNT(*) = (SELECT MAX(n) FROM (SELECT COUNT(*) AS n FROM prerequisite
           GROUP BY required_course_id) AS needs)""",
    ),
    ask(
        ["How many sections were taught in the {term} term of {year}?", "Count the {term} {year} sections."],
        "SELECT COUNT(*) FROM section WHERE term = '{term}' AND year = {year}",
        term=TERMS,
        year=("2020", "2021", "2022", "2023"),
    ),
    ask(
        [
            "Which professors taught in {a} but not in {b}? Give their names.",
            "Name the professors with a section in {a} and none in {b}.",
        ],
        """SELECT p.professor_name FROM professor AS p WHERE p.professor_id IN (SELECT professor_id FROM section WHERE year =
           {a})
           AND p.professor_id NOT IN (SELECT professor_id FROM section WHERE year = {b})""",
        a=("2020", "2021"),
        b=("2022", "2023"),
    ),
    ask(
        [
            "Who taught the most sections in {year}? Give the professor's name and the number.",
            "Which professor had the largest number of sections in {year}, and how many?",
        ],
        """SELECT p.professor_name, COUNT(*) AS n FROM professor AS p JOIN section AS s ON s.professor_id = p.professor_id
           WHERE s.year = {year} GROUP BY p.professor_id, p.professor_name ORDER BY n DESC LIMIT 1""",
        year=("2020", "2021", "2022", "2023"),
    ),
    ask(
        "Which professors have never taught a section? List their names.",
        """SELECT p.professor_name FROM professor AS p LEFT JOIN section AS s ON s.professor_id = p.professor_id
           WHERE s.section_id IS NULL""",
    ),
    ask(
        [
            "Which students took a course offered by {department} although their major is in another department? "
            "Count them; leave out students without a major."
        ],
        """SELECT COUNT(DISTINCT t.student_id) FROM student AS t JOIN enrollment AS e ON e.student_id = t.student_id
           JOIN section AS s ON s.section_id = e.section_id JOIN course AS c ON c.course_id = s.course_id
           JOIN department AS d ON d.department_id = c.department_id
           WHERE d.department_name = '{department}' AND t.major_department_id <> c.department_id""",
        times=1,
        department=DEPARTMENT,
    ),
    ask(
        "How many enrolments have no grade yet, per year of the section?",
        """SELECT s.year, COUNT(*) FROM enrollment AS e JOIN section AS s ON s.section_id = e.section_id
           WHERE e.grade IS NULL GROUP BY s.year""",
    ),
    ask(
        [
            "Which sections of {year} had more than {n} students? Give section id and number of students.",
            "List id and enrolment of the {year} sections in which over {n} students enrolled.",
        ],
        """SELECT s.section_id, COUNT(e.student_id) FROM section AS s JOIN enrollment AS e ON e.section_id = s.section_id
           WHERE s.year = {year} GROUP BY s.section_id HAVING COUNT(e.student_id) > {n}""",
        year=("2021", "2022", "2023"),
        n=("18|18", "19|19", "20|20"),
    ),
    ask(
        [
            (
                "Give the {k} students with the best average grade among those with at least eight grades: name and "
                "average, best first."
            ),
            (
                "Among students with eight or more grades, who are the top {k} by average grade? Give name and average in "
                "descending order."
            ),
        ],
        """SELECT t.student_name, AVG(e.grade) AS mean FROM student AS t JOIN enrollment AS e ON e.student_id = t.student_id
           WHERE e.grade IS NOT NULL GROUP BY t.student_id, t.student_name HAVING COUNT(*) >= 8 ORDER BY mean DESC LIMIT {k}""",
        k=("three|3", "five|5", "ten|10"),
    ),
    ask(
        "What is the pass rate (grade of 50 or more) among graded enrolments, for each term of the year? "
        "Give term and rate between 0 and 1.",
        """SELECT s.term, SUM(CASE WHEN e.grade >= 50 THEN 1.0 ELSE 0.0 END) / COUNT(e.grade) FROM section AS s
           JOIN enrollment AS e ON e.section_id = s.section_id GROUP BY s.term""",
    ),
    ask(
        [
            "List the student names that got the highest grade ever given in {course}.",
            "Who holds the best grade awarded in {course}? Give the student name or names.",
        ],
        """SELECT t.student_name FROM student AS t JOIN enrollment AS e ON e.student_id = t.student_id JOIN section AS s
           ON s.section_id = e.section_id JOIN course AS c ON c.course_id = s.course_id WHERE c.title = '{course}'
           AND e.grade = (SELECT MAX(e2.grade) FROM enrollment AS e2 JOIN section AS s2 ON s2.section_id = e2.section_id
           JOIN course AS c2 ON c2.course_id = s2.course_id WHERE c2.title = '{course}')""",
        course=COURSES,
    ),
    ask(
        "For each department, name its most recently hired professor: department name and professor name.",
        """SELECT d.department_name, p.professor_name FROM professor AS p JOIN department AS d
           ON d.department_id = p.department_id WHERE p.hired_on = (SELECT MAX(q.hired_on) FROM professor AS q
           WHERE q.department_id = p.department_id)""",
    ),
    ask(
        "How many credits has each student of entry year {year} earned in courses passed with a grade of 50 or more? "
        "Give student id and credits for those with more than 60, highest first, then by id.",
        """SELECT e.student_id, SUM(c.credits) FROM enrollment AS e JOIN section AS s ON s.section_id = e.section_id
           JOIN course AS c ON c.course_id = s.course_id WHERE e.grade >= 50 AND e.student_id IN
           (SELECT student_id FROM student WHERE entry_year = {year}) GROUP BY e.student_id HAVING SUM(c.credits) > 60
           ORDER BY SUM(c.credits) DESC, e.student_id""",
        times=1,
        year=("2018", "2019"),
    ),
    ask(
        [
            "Which home cities have at least {n} students? Give city and number of students.",
            "Name the cities that {n} or more students come from, with the number.",
        ],
        "SELECT home_city, COUNT(*) FROM student WHERE home_city IS NOT NULL GROUP BY home_city HAVING COUNT(*) >= {n}",
        n=("15", "20", "25", "30"),
    ),
    ask(
        ["Which rooms were used in {a} as well as in {b}?", "Find the rooms that hosted sections both in {a} and in {b}."],
        "SELECT room FROM section WHERE year = {a} AND room IS NOT NULL INTERSECT SELECT room FROM section WHERE year = {b}",
        a=("2020", "2021"),
        b=("2022", "2023"),
    ),
    ask(
        "Rank the departments by the number of students majoring in them: department name and rank, 1 for the most; "
        "equal numbers "
        "share a rank.",
        """SELECT d.department_name, RANK() OVER (ORDER BY COUNT(*) DESC) FROM department AS d JOIN student AS s
           ON s.major_department_id = d.department_id GROUP BY d.department_id, d.department_name""",
    ),
    ask(
        [
            "How full was each section of {course}? Give section id and students per place of capacity, as a fraction.",
            "For the sections of {course}, give the id and the number enrolled divided by the capacity.",
        ],
        """SELECT s.section_id, COUNT(e.student_id) * 1.0 / s.capacity FROM section AS s JOIN course AS c
           ON c.course_id = s.course_id JOIN enrollment AS e ON e.section_id = s.section_id WHERE c.title = '{course}'
           GROUP BY s.section_id, s.capacity""",
        course=COURSES,
    ),
    ask(
        "List the names of everyone who is a student from Paris or a professor of rank full.",
        """SELECT student_name FROM student WHERE home_city = 'Paris' UNION
           SELECT professor_name FROM professor WHERE academic_rank = 'full'""",
    ),
)

UNIVERSITY = Domain("university", SCHEMA, fill, ASKS)
