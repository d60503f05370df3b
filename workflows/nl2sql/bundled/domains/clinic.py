"""An outpatient clinic: departments, doctors, patients, appointments, prescriptions and laboratory results."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.domain import Row, Tables
from vinelm.workflows.nl2sql.bundled.names import CITIES, people
from vinelm.workflows.nl2sql.bundled.seeded_random import Dice, later

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
