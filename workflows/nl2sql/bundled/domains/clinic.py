"""An outpatient clinic: departments, doctors, patients, appointments, prescriptions and laboratory results."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Domain, Row, Tables, ask
from vinelm.workflows.nl2sql.bundled.names import CITIES, people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

SCHEMA = """
CREATE TABLE department (
    department_id INTEGER PRIMARY KEY, department_name TEXT NOT NULL, floor INTEGER NOT NULL, annual_budget_eur INTEGER);
CREATE TABLE doctor (
    doctor_id INTEGER PRIMARY KEY, doctor_name TEXT NOT NULL,
    department_id INTEGER NOT NULL REFERENCES department (department_id), hired_on DATE NOT NULL,
    salary_eur INTEGER NOT NULL, supervisor_id INTEGER REFERENCES doctor (doctor_id));
CREATE TABLE patient (
    patient_id INTEGER PRIMARY KEY, patient_name TEXT NOT NULL, sex TEXT NOT NULL, birth_date DATE NOT NULL, city TEXT,
    insurer TEXT, family_doctor_id INTEGER REFERENCES doctor (doctor_id));
CREATE TABLE appointment (
    appointment_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patient (patient_id),
    doctor_id INTEGER NOT NULL REFERENCES doctor (doctor_id), booked_on DATE NOT NULL, held_on DATE NOT NULL,
    status TEXT NOT NULL, duration_minutes INTEGER, fee_eur REAL);
CREATE TABLE medication (
    medication_id INTEGER PRIMARY KEY, medication_name TEXT NOT NULL, drug_class TEXT NOT NULL, unit_price_eur REAL NOT NULL);
CREATE TABLE prescription (
    prescription_id INTEGER PRIMARY KEY, appointment_id INTEGER NOT NULL REFERENCES appointment (appointment_id),
    medication_id INTEGER NOT NULL REFERENCES medication (medication_id), days INTEGER NOT NULL, units_per_day INTEGER NOT
    NULL);
CREATE TABLE lab_result (
    result_id INTEGER PRIMARY KEY, patient_id INTEGER NOT NULL REFERENCES patient (patient_id), test_name TEXT NOT NULL,
    taken_on DATE NOT NULL, value REAL, is_abnormal INTEGER NOT NULL);
"""

DEPARTMENTS = (
    ("Cardiology", 2, 1_450_000),
    ("Dermatology", 1, 620_000),
    ("General Medicine", 0, 980_000),
    ("Neurology", 3, 1_210_000),
    ("Orthopaedics", 1, 1_330_000),
    ("Paediatrics", 0, 870_000),
    ("Radiology", 4, None),
)
DRUGS = (
    ("Cardolol", "beta blocker"),
    ("Nebivane", "beta blocker"),
    ("Amoxaril", "antibiotic"),
    ("Penidox", "antibiotic"),
    ("Claricin", "antibiotic"),
    ("Ibunal", "painkiller"),
    ("Paradol", "painkiller"),
    ("Codexan", "painkiller"),
    ("Metforal", "antidiabetic"),
    ("Glipizan", "antidiabetic"),
    ("Lorazan", "antihistamine"),
    ("Cetirel", "antihistamine"),
    ("Statorin", "statin"),
    ("Lipovas", "statin"),
)
TESTS = ("glucose", "cholesterol", "haemoglobin", "creatinine", "ferritin")
INSURERS = ("Medica", "Union Health", "SaludPlus", "CareFirst", "Helvia")


def fill(dice: Dice) -> Tables:
    """7 departments, 34 doctors, 380 patients, 1,700 appointments, 14 medications, 1,300 prescriptions, 1,100 results."""
    departments = [(number, *row) for number, row in enumerate(DEPARTMENTS, start=1)]
    doctors = [_doctor(dice, number, name) for number, name in enumerate(people(dice, 34), start=1)]
    patients = [_patient(dice, number, name) for number, name in enumerate(people(dice, 380), start=1)]
    appointments = [_appointment(dice, number) for number in range(1, 1701)]
    drugs = [(number, *row, dice.heavy(5, 250) / 100) for number, row in enumerate(DRUGS, start=1)]
    held = [row[0] for row in appointments if row[5] == "completed"]
    prescriptions = [
        (number, dice.pick(held), dice.skewed(range(1, 14)), dice.pick((5, 7, 10, 14, 30, 90)), dice.between(1, 3))
        for number in range(1, 1301)
    ]
    results = [_result(dice, number) for number in range(1, 1101)]
    names = ("department", "doctor", "patient", "appointment", "medication", "prescription", "lab_result")
    tables = (departments, doctors, patients, appointments, drugs, prescriptions, results)
    return dict(zip(names, tables, strict=True))


def _doctor(dice: Dice, number: int, name: str) -> Row:
    boss = None if number <= 3 else dice.between(1, min(number - 1, 9))
    return (number, name, (number * 5) % 6 + 1, dice.day("1998-01-01", "2023-03-31"), dice.bell(520, 1480) * 100, boss)


def _patient(dice: Dice, number: int, name: str) -> Row:
    city = dice.maybe(dice.skewed(CITIES[:9])[0], 0.05)
    born = dice.day("1936-01-01", "2020-12-31")
    return (
        number,
        name,
        dice.pick("FM"),
        born,
        city,
        dice.maybe(dice.skewed(INSURERS), 0.12),
        dice.maybe(dice.between(1, 34), 0.2),
    )


def _appointment(dice: Dice, number: int) -> Row:
    booked = dice.day("2022-01-01", "2023-11-30")
    status = "completed" if dice.chance(0.8) else dice.skewed(("cancelled", "missed"))
    minutes = dice.bell(5, 60) if status == "completed" else None
    fee = None if status != "completed" else dice.cents(35, 260)
    row = (dice.skewed(range(1, 361)), dice.skewed(range(1, 34)), booked, later(booked, dice.heavy(0, 70)))
    return (number, *row, status, minutes, fee)


def _result(dice: Dice, number: int) -> Row:
    value = dice.maybe(dice.bell(300, 2600) / 100, 0.04)
    abnormal = int(value is not None and (value > 19 or value < 8))
    return (number, dice.skewed(range(1, 351)), dice.skewed(TESTS), dice.day("2022-01-01", "2023-12-31"), value, abnormal)


DEPARTMENT = ("Cardiology", "Dermatology", "General Medicine", "Neurology", "Orthopaedics", "Paediatrics")
TOWN = ("Lisbon", "Madrid", "Paris", "Berlin", "Vienna", "Oslo")
CLASSES = ("antibiotic", "painkiller", "statin", "beta blocker", "antidiabetic")

ASKS = (
    ask(
        ["How many female patients live in {city}?", "Count the patients of sex F whose city is {city}."],
        "SELECT COUNT(*) FROM patient WHERE sex = 'F' AND city = '{city}'",
        city=TOWN,
    ),
    ask(
        ["Which doctors work in {department}? List their names.", "Name all doctors of the {department} department."],
        """SELECT d.doctor_name FROM doctor AS d JOIN department AS p ON p.department_id = d.department_id
           WHERE p.department_name = '{department}'""",
        department=DEPARTMENT,
    ),
    ask(
        "Which department has no doctors? Give its name.",
        "SELECT department_name FROM department WHERE department_id NOT IN (SELECT department_id FROM doctor)",
    ),
    ask(
        "For every department, including any without doctors, give the name and the number of its doctors.",
        """SELECT p.department_name, COUNT(d.doctor_id) FROM department AS p LEFT JOIN doctor AS d
           ON d.department_id = p.department_id GROUP BY p.department_id, p.department_name""",
    ),
    ask(
        ["Which doctors earn more than their supervisor? Give the names of the doctors."],
        """SELECT d.doctor_name FROM doctor AS d JOIN doctor AS s ON s.doctor_id = d.supervisor_id
           WHERE d.salary_eur > s.salary_eur""",
    ),
    ask(
        "List each supervisor's name with the number of doctors directly under them.",
        """SELECT s.doctor_name, COUNT(*) FROM doctor AS d JOIN doctor AS s ON s.doctor_id = d.supervisor_id
           GROUP BY s.doctor_id, s.doctor_name""",
    ),
    ask("Give the names of the doctors without a supervisor.", "SELECT doctor_name FROM doctor WHERE supervisor_id IS NULL"),
    ask(
        [
            "What is the average salary of the doctors in {department}?",
            "How much does a doctor in {department} earn on average?",
        ],
        """SELECT AVG(salary_eur) FROM doctor WHERE department_id =
           (SELECT department_id FROM department WHERE department_name = '{department}')""",
        department=DEPARTMENT,
    ),
    ask(
        [
            "Who are the {k} best paid doctors? Give name and salary, the best paid first.",
            "List name and salary of the {k} doctors with the highest salaries, in descending order of salary.",
        ],
        "SELECT doctor_name, salary_eur FROM doctor ORDER BY salary_eur DESC LIMIT {k}",
        k=("three|3", "four|4", "five|5", "six|6", "seven|7", "eight|8"),
    ),
    ask(
        "Who has the second highest salary among the doctors? Give the name only.",
        "SELECT doctor_name FROM doctor ORDER BY salary_eur DESC LIMIT 1 OFFSET 1",
    ),
    ask(
        [
            (
                "Which departments pay their doctors more than {n} euros a year on average? Give department name and "
                "average salary."
            ),
            "List departments whose mean doctor salary exceeds {n} euros, with that mean.",
        ],
        """SELECT p.department_name, AVG(d.salary_eur) FROM department AS p JOIN doctor AS d
           ON d.department_id = p.department_id GROUP BY p.department_id, p.department_name HAVING AVG(d.salary_eur) > {n}""",
        n=("98,000|98000", "100,000|100000", "105,000|105000", "95,000|95000"),
    ),
    ask(
        ["How many appointments were {status} in {month}?", "Count the {status} appointments that were to be held in {month}."],
        "SELECT COUNT(*) FROM appointment WHERE status = '{status}' AND held_on LIKE '{month}-%'",
        status=("missed", "cancelled"),
        month=("June 2022|2022-06", "May 2023|2023-05", "September 2023|2023-09"),
    ),
    ask(
        "For each appointment status, give the number of appointments, from the most to the least frequent.",
        "SELECT status, COUNT(*) AS n FROM appointment GROUP BY status ORDER BY n DESC",
    ),
    ask(
        [
            "What did the clinic earn in fees from {department} appointments held in {year}?",
            "Give the sum of fees of appointments with {department} doctors held in {year}.",
        ],
        """SELECT SUM(a.fee_eur) FROM appointment AS a JOIN doctor AS d ON d.doctor_id = a.doctor_id JOIN department AS p
           ON p.department_id = d.department_id WHERE p.department_name = '{department}'
           AND a.held_on BETWEEN '{year}-01-01' AND '{year}-12-31'""",
        department=DEPARTMENT,
        year=("2022", "2023"),
    ),
    ask(
        [
            "Which patients had more than {n} completed appointments? Give name and number of them.",
            "List the patients with over {n} completed appointments, and how many each had.",
        ],
        """SELECT p.patient_name, COUNT(*) FROM patient AS p JOIN appointment AS a ON a.patient_id = p.patient_id
           WHERE a.status = 'completed' GROUP BY p.patient_id, p.patient_name HAVING COUNT(*) > {n}""",
        n=("eight|8", "ten|10", "twelve|12"),
    ),
    ask(
        [
            "How many patients insured with {insurer} have never had an abnormal lab result?",
            "Count the patients of the insurer {insurer} without any abnormal lab result.",
        ],
        """SELECT COUNT(*) FROM patient AS p WHERE p.insurer = '{insurer}' AND NOT EXISTS (SELECT 1 FROM lab_result AS r
           WHERE r.patient_id = p.patient_id AND r.is_abnormal = 1)""",
        insurer=INSURERS,
    ),
    ask("How many patients have no insurer on record?", "SELECT COUNT(*) FROM patient WHERE insurer IS NULL"),
    ask(
        "How many appointments were with the patient's own family doctor?",
        """SELECT COUNT(*) FROM appointment AS a JOIN patient AS p ON p.patient_id = a.patient_id
           AND p.family_doctor_id = a.doctor_id""",
    ),
    ask(
        [
            "What are the lowest, mean and highest values of the {test} test?",
            "For the test {test}, give minimum, average and maximum value.",
        ],
        "SELECT MIN(value), AVG(value), MAX(value) FROM lab_result WHERE test_name = '{test}'",
        test=TESTS,
    ),
    ask(
        "Per test, what fraction of the results is abnormal? Give the test name and the fraction between 0 and 1.",
        "SELECT test_name, AVG(is_abnormal) FROM lab_result GROUP BY test_name",
    ),
    ask(
        [
            "Which medications of the class {drug} cost less than {price} euros per unit? Give name and unit price.",
            "List name and unit price of each {drug} priced below {price} euros per unit.",
        ],
        "SELECT medication_name, unit_price_eur FROM medication WHERE drug_class = '{drug}' AND unit_price_eur < {price}",
        drug=CLASSES,
        price=("0.5", "1.2", "1.5", "2"),
    ),
    ask(
        "Which medication has never been prescribed? Give its name.",
        """SELECT m.medication_name FROM medication AS m LEFT JOIN prescription AS r ON r.medication_id = m.medication_id
           WHERE r.prescription_id IS NULL""",
    ),
    ask(
        [
            "How many units of {drug} were prescribed in total? Units are days times units per day.",
            "Over all prescriptions of {drug}, sum up days times units per day.",
        ],
        """SELECT SUM(r.days * r.units_per_day) FROM prescription AS r JOIN medication AS m
           ON m.medication_id = r.medication_id WHERE m.medication_name = '{drug}'""",
        drug=("Cardolol", "Amoxaril", "Ibunal", "Metforal"),
    ),
    ask(
        "For each drug class, what is the total value of all prescriptions, as days times units per day times unit price?",
        """SELECT m.drug_class, SUM(r.days * r.units_per_day * m.unit_price_eur) FROM prescription AS r JOIN medication AS m
           ON m.medication_id = r.medication_id GROUP BY m.drug_class""",
    ),
    ask(
        [
            "Which doctors prescribed {drug} at least {n} times? Give their names.",
            "Name the doctors with {n} or more prescriptions of {drug}.",
        ],
        """SELECT d.doctor_name FROM doctor AS d JOIN appointment AS a ON a.doctor_id = d.doctor_id JOIN prescription AS r
           ON r.appointment_id = a.appointment_id JOIN medication AS m ON m.medication_id = r.medication_id
           WHERE m.medication_name = '{drug}' GROUP BY d.doctor_id, d.doctor_name HAVING COUNT(*) >= {n}""",
        drug=("Cardolol", "Nebivane", "Amoxaril", "Penidox"),
        n=("10", "12", "15"),
    ),
    ask(
        "How many patients were born in each decade? Give the first year of the decade and the number of patients.",
        """SELECT CAST(strftime('%Y', birth_date) AS INTEGER) / 10 * 10, COUNT(*) FROM patient
           GROUP BY CAST(strftime('%Y', birth_date) AS INTEGER) / 10 * 10""",
    ),
    ask(
        [
            "List the names of patients who took both a {a} and a {b} test.",
            "Which patients have results for {a} as well as for {b}? Give their names.",
        ],
        """SELECT patient_name FROM patient WHERE patient_id IN (SELECT patient_id FROM lab_result WHERE test_name = '{a}')
           AND patient_id IN (SELECT patient_id FROM lab_result WHERE test_name = '{b}')""",
        a=TESTS[2:4],
        b=TESTS[4:],
        times=1,
    ),
    ask(
        (
            "Classify completed appointments as 'short' (under 20 minutes), 'medium' (20 to 39) or 'long' (40 or more) and "
            "count each."
        ),
        """SELECT CASE WHEN duration_minutes < 20 THEN 'short' WHEN duration_minutes < 40 THEN 'medium' ELSE 'long' END AS kind,
           COUNT(*) FROM appointment WHERE status = 'completed' GROUP BY CASE WHEN duration_minutes < 20 THEN 'short'
           WHEN duration_minutes < 40 THEN 'medium' ELSE 'long' END""",
    ),
    ask(
        [
            (
                "Which doctors hired before {year} had no missed appointments in 2023, by the date they were to be held? "
                "Give names."
            ),
        ],
        """SELECT doctor_name FROM doctor WHERE hired_on < '{year}-01-01' EXCEPT SELECT d.doctor_name FROM doctor AS d
           JOIN appointment AS a ON a.doctor_id = d.doctor_id WHERE a.status = 'missed' AND a.held_on >= '2023-01-01'
           AND a.held_on <= '2023-12-31'""",
        times=1,
        year=("2008", "2012", "2016"),
    ),
    ask(
        "How long, in days, is the average wait between booking and holding an appointment, for each department? "
        "Give department name and days.",
        """SELECT p.department_name, AVG(julianday(a.held_on) - julianday(a.booked_on)) FROM appointment AS a
           JOIN doctor AS d ON d.doctor_id = a.doctor_id JOIN department AS p ON p.department_id = d.department_id
           GROUP BY p.department_id, p.department_name""",
    ),
)

CLINIC = Domain("clinic", SCHEMA, fill, ASKS)
