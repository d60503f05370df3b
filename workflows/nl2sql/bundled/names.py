"""Invented names of people and things, and real cities."""

from __future__ import annotations

from vinelm.workflows.nl2sql.bundled.seeded_random import Dice


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


FIRST = _words(
    "Maria Jonas Aisha Pedro Ingrid Tomas Yuki Elena Omar Clara Stefan Leila Victor Nadia Hugo Freya Andrei Sofia "
    "Malik Greta Paulo Hannah Emil Zara Lucas Irina Kofi Marta Sven Amina Diego Petra Ravi Linnea Marco Judith "
    "Samuel Chloe Anton Priya Felix Rosa Bruno Mei Oskar Dalia Nils Carmen Idris Vera Milan Joana Arthur Selma "
    "Rafael Tove Karim Alma Simon Lucia"
)
LAST = _words(
    "Almeida Novak Lindgren Okafor Rossi Keller Tanaka Moreau Haddad Jensen Kowalski Fischer Castillo Iyer Bakker "
    "Murphy Popescu Santos Dubois Hansen Marchetti Vogel Nakamura Petrov Sorensen Ferreira Osei Weber Lopez "
    "Andersson Khan Horvath Brandt Silva O'Brien Takahashi Virtanen Costa Meyer Ruiz Nowak Laurent Berg Mensah "
    "Conti Eriksen Ivanova Schmidt Navarro Kaya Byrne Lund Molina Adeyemi Kruger Peeters D'Angelo Sato Wagner Vidal "
    "Holm Zielinski Farah Bianchi Olsen Pereira Duarte Huber Mazur Chen"
)
CITIES = (
    ("Lisbon", "Portugal"),
    ("Madrid", "Spain"),
    ("Paris", "France"),
    ("Berlin", "Germany"),
    ("Vienna", "Austria"),
    ("Oslo", "Norway"),
    ("Rome", "Italy"),
    ("Dublin", "Ireland"),
    ("Prague", "Czechia"),
    ("Athens", "Greece"),
    ("Warsaw", "Poland"),
    ("Stockholm", "Sweden"),
    ("Porto", "Portugal"),
    ("Seville", "Spain"),
    ("Lyon", "France"),
    ("Hamburg", "Germany"),
    ("Graz", "Austria"),
    ("Bergen", "Norway"),
    ("Milan", "Italy"),
    ("Cork", "Ireland"),
    ("Munich", "Germany"),
    ("Valencia", "Spain"),
    ("Krakow", "Poland"),
    ("Nice", "France"),
    ("Turin", "Italy"),
    ("Gothenburg", "Sweden"),
)


def people(dice: Dice, count: int) -> list[str]:
    """Return ``count`` distinct full names, some with an apostrophe."""
    return dice.sample([f"{first} {last}" for first in FIRST for last in LAST], count)


def titles(dice: Dice, first: str, second: str, count: int) -> list[str]:
    """Return ``count`` distinct titles of two words. Words are separated by spaces; ``_`` stands for a space inside one."""
    pairs = [f"{a} {b}".replace("_", " ") for a in first.split() for b in second.split()]
    return dice.sample(pairs, count)
