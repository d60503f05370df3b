"""An engineering company: offices, teams, employees and their managers, projects, timesheets and pay rises."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import CITIES, people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

TEAMS = ("Bridges", "Rail", "Water", "Energy", "Tunnels", "Surveying", "Software", "Finance", "People", "Safety", "Acoustics")
JOBS = ("engineer", "analyst", "technician", "planner", "consultant")
SKILLS = ("CAD", "Python", "GIS", "contract law", "hydraulics", "geology", "statistics", "welding")
INDUSTRIES = ("transport", "utilities", "public sector", "mining", "construction")
STATUSES = ("completed", "active", "on hold", "cancelled")


def fill(dice: Dice) -> Tables:
    """7 offices, 11 teams, 240 employees, 45 clients, 96 projects, 2,600 timesheet entries, some 300 rises, 600 skills."""
    offices = [
        (number, *CITIES[number * 2], dice.heavy(12, 140), dice.day("1995-01-01", "2019-12-31")) for number in range(1, 8)
    ]
    teams = [
        (number, name, dice.skewed(range(1, 7)) if number < 11 else None, f"CC-{number * 17 % 90 + 10}")
        for number, name in enumerate(TEAMS, start=1)
    ]
    staff = [_employee(dice, number, name) for number, name in enumerate(people(dice, 240), start=1)]
    names = titles(dice, "Nord Alta Terra Via Ponte Hydro Metro Omni", "Group Works Partners Holding Systems Lines", 45)
    clients = [(number, name, dice.skewed(INDUSTRIES), dice.skewed(CITIES)[1]) for number, name in enumerate(names, start=1)]
    codes = titles(
        dice,
        "Falcon Granite Beacon Cedar Harbour Summit Delta Copper Willow Anchor",
        "One Two North South East West Phase_II Renewal Survey Link",
        96,
    )
    projects = [_project(dice, number, name) for number, name in enumerate(codes, start=1)]
    entries = [_entry(dice, number, staff, projects) for number in range(1, 2601)]
    rises = [rise for row in staff for rise in _rises(dice, row)]
    skills = [
        (row[0], skill, dice.between(1, 5)) for row in staff[:225] for skill in sorted(dice.sample(SKILLS, dice.between(1, 5)))
    ]
    tables = ("office", "team", "employee", "client", "project", "timesheet", "pay_rise", "skill")
    return dict(zip(tables, (offices, teams, staff, clients, projects, entries, rises, skills), strict=True))


def _employee(dice: Dice, number: int, name: str) -> Row:
    manager = None if number == 1 else dice.between(max(1, number // 9), max(1, number // 5))
    title = "director" if number <= 4 else "manager" if number <= 48 else dice.skewed(JOBS)
    hired = dice.day("2005-01-01", "2022-11-30")
    left = dice.day("2023-01-01", "2023-12-31") if number > 48 and dice.chance(0.1) else None
    salary = {"director": 9000, "manager": 5600}.get(title, 3300) + dice.bell(-90, 210) * 10
    return (
        number,
        name,
        dice.skewed(range(1, 12)),
        manager,
        title,
        hired,
        left,
        salary,
        dice.maybe(dice.skewed(CITIES)[0], 0.06),
    )


def _project(dice: Dice, number: int, name: str) -> Row:
    start = dice.day("2019-01-01", "2023-03-31")
    status = dice.skewed(STATUSES)
    end = dice.day("2023-04-01", "2023-12-31") if status in ("completed", "cancelled") else None
    return (
        number,
        name,
        dice.maybe(dice.skewed(range(1, 41)), 0.12),
        dice.skewed(range(2, 60)),
        start,
        end,
        dice.heavy(15, 900) * 1000,
        status,
    )


def _entry(dice: Dice, number: int, staff: list[Row], projects: list[Row]) -> Row:
    worker = dice.pick(staff[30:228])
    project = dice.skewed(projects[:92])
    day = dice.day("2023-01-01", min(worker[6] or "2023-12-31", project[5] or "2023-12-31"))
    note = dice.maybe(dice.pick(("site visit", "drawings", "client call", "report", "travel")), 0.3)
    return (number, worker[0], project[0], day, dice.bell(1, 20) / 2, int(dice.chance(0.72)), note)


def _rises(dice: Dice, worker: Row) -> list[Row]:
    rows, pay = [], worker[7]
    for year in (2023, 2022, 2021):
        if dice.chance(0.45) and worker[5] < f"{year - 1}-06":
            before = pay - dice.between(4, 40) * 10
            rows.append((worker[0], f"{year}-{dice.pick(('01', '04', '07'))}-01", before, pay))
            pay = before
    return rows[::-1]
