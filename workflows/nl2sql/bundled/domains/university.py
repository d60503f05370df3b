"""A university: departments, professors, students, courses, their sections and enrolments."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import CITIES, people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

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
