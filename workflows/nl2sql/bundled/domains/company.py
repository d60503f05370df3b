"""An engineering company: offices, teams, employees and their managers, projects, timesheets and pay rises."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import CITIES, people, titles
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice

SCHEMA = """
CREATE TABLE office (
    office_id INTEGER PRIMARY KEY, city TEXT NOT NULL, country TEXT NOT NULL, desk_count INTEGER NOT NULL, opened_on DATE NOT
    NULL);
CREATE TABLE team (
    team_id INTEGER PRIMARY KEY, team_name TEXT NOT NULL, office_id INTEGER REFERENCES office (office_id),
    cost_centre TEXT NOT NULL);
CREATE TABLE employee (
    employee_id INTEGER PRIMARY KEY, employee_name TEXT NOT NULL, team_id INTEGER NOT NULL REFERENCES team (team_id),
    manager_id INTEGER REFERENCES employee (employee_id), job_title TEXT NOT NULL, hired_on DATE NOT NULL, left_on DATE,
    monthly_salary_eur INTEGER NOT NULL, home_city TEXT);
CREATE TABLE client (
    client_id INTEGER PRIMARY KEY, client_name TEXT NOT NULL, industry TEXT NOT NULL, country TEXT NOT NULL);
CREATE TABLE project (
    project_id INTEGER PRIMARY KEY, project_name TEXT NOT NULL, client_id INTEGER REFERENCES client (client_id),
    lead_id INTEGER NOT NULL REFERENCES employee (employee_id), start_date DATE NOT NULL, end_date DATE,
    budget_eur INTEGER NOT NULL, status TEXT NOT NULL);
CREATE TABLE timesheet (
    entry_id INTEGER PRIMARY KEY, employee_id INTEGER NOT NULL REFERENCES employee (employee_id),
    project_id INTEGER NOT NULL REFERENCES project (project_id), work_date DATE NOT NULL, hours REAL NOT NULL,
    is_billable INTEGER NOT NULL, note TEXT);
CREATE TABLE pay_rise (
    employee_id INTEGER NOT NULL REFERENCES employee (employee_id), effective_on DATE NOT NULL, old_salary_eur INTEGER NOT NULL,
    new_salary_eur INTEGER NOT NULL, PRIMARY KEY (employee_id, effective_on));
CREATE TABLE skill (
    employee_id INTEGER NOT NULL REFERENCES employee (employee_id), skill_name TEXT NOT NULL, proficiency INTEGER NOT NULL,
    PRIMARY KEY (employee_id, skill_name));
"""

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


TEAM = TEAMS[:8]
OFFICE = ("Paris", "Vienna", "Rome", "Prague", "Warsaw", "Porto")

ASKS = (
    ask(
        [
            "How many people currently work in the {team} team? Current means that no leaving date is recorded.",
            "Count the employees of the {team} team who have not left.",
        ],
        """SELECT COUNT(*) FROM employee AS e JOIN team AS t ON t.team_id = e.team_id WHERE t.team_name = '{team}'
           AND e.left_on IS NULL""",
        team=TEAM,
    ),
    ask(
        [
            "Which {job}s earn more than {n} euros a month? Give name and monthly salary.",
            "List name and monthly salary of every {job} paid above {n} euros.",
        ],
        "SELECT employee_name, monthly_salary_eur FROM employee WHERE job_title = '{job}' AND monthly_salary_eur > {n}",
        job=JOBS,
        n=("4,500|4500", "4,300|4300", "4,800|4800"),
    ),
    ask(
        "What is the average monthly salary for each job title, from the highest average to the lowest?",
        """SELECT job_title, AVG(monthly_salary_eur) AS mean FROM employee GROUP BY job_title ORDER BY mean DESC""",
    ),
    ask(
        [
            "Who are the direct reports of the employee with id {id}? Give names.",
            "Name everyone whose manager is employee number {id}.",
        ],
        "SELECT employee_name FROM employee WHERE manager_id = {id}",
        id=("3", "5", "8", "12", "20"),
    ),
    ask(
        "Which managers have six or more direct reports? Give the manager's name and the number of reports.",
        """SELECT m.employee_name, COUNT(*) FROM employee AS e JOIN employee AS m ON m.employee_id = e.manager_id
           GROUP BY m.employee_id, m.employee_name HAVING COUNT(*) >= 6""",
    ),
    ask(
        "Who earns more than their own manager? Give employee name and manager name.",
        """SELECT e.employee_name, m.employee_name FROM employee AS e JOIN employee AS m ON m.employee_id = e.manager_id
           WHERE e.monthly_salary_eur > m.monthly_salary_eur""",
    ),
    ask(
        ["How many people work under employee {id}, directly or through other managers, at any level?"],
        """WITH RECURSIVE below AS (SELECT employee_id FROM employee WHERE manager_id = {id} UNION ALL SELECT e.employee_id
           FROM employee AS e JOIN below AS b ON e.manager_id = b.employee_id) SELECT COUNT(*) FROM below""",
        times=1,
        id=("2", "3", "4"),
    ),
    ask(
        [
            "Which employees live in the city of their office, {city}? Give names.",
            "List employees whose team sits in the {city} office and whose home city is {city}.",
        ],
        """SELECT e.employee_name FROM employee AS e JOIN team AS t ON t.team_id = e.team_id JOIN office AS o
           ON o.office_id = t.office_id WHERE o.city = '{city}' AND e.home_city = o.city""",
        city=OFFICE,
    ),
    ask(
        "How many employees live in a different city from that of their team's office? Leave out unknown home cities and teams "
        "without an office.",
        """SELECT COUNT(*) FROM employee AS e JOIN team AS t ON t.team_id = e.team_id JOIN office AS o
           ON o.office_id = t.office_id WHERE e.home_city <> o.city""",
    ),
    ask(
        "Which teams have no office? Give team name and cost centre.",
        "SELECT team_name, cost_centre FROM team WHERE office_id IS NULL",
    ),
    ask(
        "For every office, give its city and the number of teams in it, also where there is none.",
        """SELECT o.city, COUNT(t.team_id) FROM office AS o LEFT JOIN team AS t ON t.office_id = o.office_id
           GROUP BY o.office_id, o.city""",
    ),
    ask(
        [
            "Who was hired in {year} and has left since? Give name, hiring date and leaving date, in order of leaving.",
            "List name, hiring date and leaving date of those hired in {year} who have left, earliest leaver first.",
        ],
        """SELECT employee_name, hired_on, left_on FROM employee WHERE strftime('%Y', hired_on) = '{year}'
           AND left_on IS NOT NULL ORDER BY left_on""",
        year=("2008", "2012", "2015", "2018", "2020", "2021"),
    ),
    ask(
        [
            "Which projects with a budget of at least {n} euros are {status}? Give name and budget, largest first.",
            "List name and budget of {status} projects with {n} euros or more, in descending order of budget.",
        ],
        """SELECT project_name, budget_eur FROM project WHERE status = '{status}' AND budget_eur >= {n}
           ORDER BY budget_eur DESC""",
        status=("active", "completed", "on hold"),
        n=("200,000|200000", "150,000|150000"),
    ),
    ask(
        "How many projects are internal, that is, have no client, and what is their total budget?",
        "SELECT COUNT(*), SUM(budget_eur) FROM project WHERE client_id IS NULL",
    ),
    ask(
        [
            "What is the total budget of projects for clients in the {industry} industry?",
            "Sum the budgets of all projects whose client belongs to the industry {industry}.",
        ],
        """SELECT SUM(p.budget_eur) FROM project AS p JOIN client AS c ON c.client_id = p.client_id
           WHERE c.industry = '{industry}'""",
        industry=INDUSTRIES,
    ),
    ask(
        "Which clients never had a project? Give their names.",
        "SELECT client_name FROM client WHERE client_id NOT IN (SELECT client_id FROM project WHERE client_id IS NOT NULL)",
    ),
    ask(
        "For each client industry, give the number of completed and the number of cancelled projects.",
        """SELECT c.industry, COUNT(CASE WHEN p.status = 'completed' THEN 1 END), COUNT(CASE WHEN p.status = 'cancelled' THEN 1
           END) FROM client AS c JOIN project AS p ON p.client_id = c.client_id GROUP BY c.industry""",
    ),
    ask(
        [
            "How many billable hours were booked on project {project} in total?",
            "Add up the billable hours of the project {project}.",
        ],
        """SELECT SUM(t.hours) FROM timesheet AS t JOIN project AS p ON p.project_id = t.project_id
           WHERE p.project_name = '{project}' AND t.is_billable = 1""",
        project=("Falcon One", "Granite North", "Beacon Link", "Cedar Two", "Delta Survey", "Summit West", "Anchor East"),
    ),
    ask(
        [
            "Who booked the most hours in {month}? Give the name and the hours.",
            "Which employee has the largest sum of hours for {month}, and what is it?",
        ],
        """SELECT e.employee_name, SUM(t.hours) AS total FROM employee AS e JOIN timesheet AS t ON t.employee_id = e.employee_id
           WHERE strftime('%Y-%m', t.work_date) = '{month}' GROUP BY e.employee_id, e.employee_name ORDER BY total DESC LIMIT
           1""",
        month=tuple(
            f"{name} 2023|2023-{number:02d}"
            for number, name in enumerate(["January", "February", "March", "April", "May", "June", "July"], start=1)
        ),
    ),
    ask(
        "For each team, what fraction of its booked hours is billable? Give team name and fraction.",
        """SELECT t.team_name, SUM(s.hours * s.is_billable) / SUM(s.hours) FROM team AS t JOIN employee AS e
           ON e.team_id = t.team_id JOIN timesheet AS s ON s.employee_id = e.employee_id GROUP BY t.team_id, t.team_name""",
    ),
    ask(
        [
            "Which projects had more than {n} different people booking hours? Give project name and number of people.",
            "List the projects that over {n} different employees worked on, with the number.",
        ],
        """SELECT p.project_name, COUNT(DISTINCT s.employee_id) FROM project AS p JOIN timesheet AS s
           ON s.project_id = p.project_id GROUP BY p.project_id, p.project_name HAVING COUNT(DISTINCT s.employee_id) > {n}""",
        n=("45", "50", "60", "40"),
    ),
    ask(
        "How many timesheet entries were booked by the lead of the very project they were booked on?",
        """SELECT COUNT(*) FROM timesheet AS s JOIN project AS p ON p.project_id = s.project_id
           WHERE p.lead_id = s.employee_id""",
    ),
    ask(
        [
            "Who has both {a} and {b} among their skills, each with proficiency {n} or better? Give names.",
            "Name the employees with a proficiency of at least {n} in {a} and also in {b}.",
        ],
        """SELECT e.employee_name FROM employee AS e JOIN skill AS x ON x.employee_id = e.employee_id JOIN skill AS y
           ON y.employee_id = e.employee_id WHERE x.skill_name = '{a}' AND y.skill_name = '{b}' AND x.proficiency >= {n}
           AND y.proficiency >= {n}""",
        a=SKILLS[:3],
        b=SKILLS[3:],
        n=("3", "4"),
    ),
    ask(
        "Which employees have no skill on record? Give names.",
        """SELECT e.employee_name FROM employee AS e LEFT JOIN skill AS s ON s.employee_id = e.employee_id
           WHERE s.skill_name IS NULL""",
    ),
    ask(
        "For each skill, how many people have it and how many of these at proficiency 5?",
        "SELECT skill_name, COUNT(*), SUM(CASE WHEN proficiency = 5 THEN 1 ELSE 0 END) FROM skill GROUP BY skill_name",
    ),
    ask(
        "On which projects did people from every team book hours? Give the project names.",
        """SELECT p.project_name FROM project AS p WHERE NOT EXISTS (SELECT 1 FROM team AS t WHERE NOT EXISTS (SELECT 1
           FROM timesheet AS s JOIN employee AS e ON e.employee_id = s.employee_id WHERE s.project_id = p.project_id
           AND e.team_id = t.team_id))""",
    ),
    ask(
        [
            "Who got the largest pay rise in {year}, in euros? Give the name and the increase, by name where several share it.",
            (
                "Which employee or employees had the highest increase in monthly salary in {year}? Give name and increase, "
                "in order of name."
            ),
        ],
        """SELECT e.employee_name, r.new_salary_eur - r.old_salary_eur FROM pay_rise AS r JOIN employee AS e
           ON e.employee_id = r.employee_id WHERE strftime('%Y', r.effective_on) = '{year}' AND r.new_salary_eur -
           r.old_salary_eur =
           (SELECT MAX(new_salary_eur - old_salary_eur) FROM pay_rise WHERE strftime('%Y', effective_on) = '{year}')
           ORDER BY e.employee_name""",
        year=("2021", "2022", "2023"),
    ),
    ask(
        "How many employees have had no pay rise since being hired?",
        "SELECT COUNT(*) FROM (SELECT employee_id FROM employee EXCEPT SELECT employee_id FROM pay_rise) AS same",
    ),
    ask(
        [
            "Which teams pay an average monthly salary above that of the {team} team? Give team name and average.",
            "List teams whose mean monthly salary is higher than the mean of the {team} team, with their mean.",
        ],
        """SELECT t.team_name, AVG(e.monthly_salary_eur) FROM team AS t JOIN employee AS e ON e.team_id = t.team_id
           GROUP BY t.team_id, t.team_name HAVING AVG(e.monthly_salary_eur) > (SELECT AVG(f.monthly_salary_eur)
           FROM employee AS f JOIN team AS u ON u.team_id = f.team_id WHERE u.team_name = '{team}')""",
        team=TEAM,
    ),
    ask(
        (
            "In each team, who is the best paid? Give team name, employee name and monthly salary; several where they "
            "share the place."
        ),
        """SELECT t.team_name, e.employee_name, e.monthly_salary_eur FROM employee AS e JOIN team AS t ON t.team_id = e.team_id
           WHERE (e.team_id, e.monthly_salary_eur) IN (SELECT team_id, MAX(monthly_salary_eur) FROM employee GROUP BY
           team_id)""",
    ),
)

COMPANY = Domain("company", SCHEMA, fill, ASKS)
